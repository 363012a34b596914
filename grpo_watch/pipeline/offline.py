"""The offline driver: reads all channels of a run to their end, in step order, through the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Activity, Item, Tick, Transition
from grpo_watch.pipeline.channel_merge import ChannelMerge
from grpo_watch.pipeline.channel_reading import ReadToEnd
from grpo_watch.pipeline.open_run import OpenedRun
from grpo_watch.pipeline.pipeline import Pipeline


def replay(opened: OpenedRun, pipeline: Pipeline, tick: Tick) -> Iterator[Transition]:
    """Feed a whole run, when its files were last written, and one final tick; yields the transitions as they happen."""
    for item in _items(opened, pipeline, tick):
        yield from pipeline.feed(opened.name, item)


def _items(opened: OpenedRun, pipeline: Pipeline, tick: Tick) -> Iterator[Item]:
    yield from opened.announcements
    merge = ChannelMerge(opened.sources, ReadToEnd(), lambda channel: pipeline.trusts(opened.name, channel))
    yield from (item for item in merge.items() if item is not None)
    yield from (election for _, election in pipeline.elections(tick.now, ended=True))
    for name, modified in opened.modified():
        yield Activity(name, modified)
    yield tick
