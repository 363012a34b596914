"""The offline driver: reads all channels of a run to their end, in step order, through the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Activity, ChannelOpened, Item, Tick, Transition
from grpo_watch.frameworks.raw_block import RawBlock
from grpo_watch.pipeline.channel_merge import ChannelMerge
from grpo_watch.pipeline.channel_reading import ReadToEnd
from grpo_watch.pipeline.gathered_rows import gathered
from grpo_watch.pipeline.open_run import OpenedRun
from grpo_watch.pipeline.pipeline import Pipeline


def replay(opened: OpenedRun, pipeline: Pipeline, tick: Tick) -> Iterator[Transition]:
    """Feed a whole run, when its files were last written, and one final tick; yields the transitions as they happen."""
    for item in _items(opened, pipeline, tick):
        yield from pipeline.feed(opened.name, item)


def _items(opened: OpenedRun, pipeline: Pipeline, tick: Tick) -> Iterator[Item | RawBlock]:
    yield from opened.announcements
    merge = ChannelMerge(opened.sources, ReadToEnd(), lambda channel: pipeline.trusts(opened.name, channel))
    items = (item for item in merge.items() if item is not None)
    channels = sum(isinstance(item, ChannelOpened) for item in opened.announcements)
    yield from gathered(items) if channels <= 1 else items
    yield from (election for _, election in pipeline.elections(tick.now, ended=True))
    for name, modified in opened.modified():
        yield Activity(name, modified)
    yield tick
