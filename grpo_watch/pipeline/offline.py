"""Reads complete runs through their pipelines, in step order: for checks, backtests and listings of sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpo_watch.config.schema import Settings, entry_for
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.records import Activity, Item, Record, Scalar, Tick, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.channel_merge import ChannelMerge
from grpo_watch.pipeline.open_run import STEP, OpenedRun, OpenedSource, open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.discovery.discover import FoundRun

NAMES_ITS_STEP = frozenset(
    {"metrics jsonl", "metrics table", "metrics jsonl, several lines per step", "wandb offline", "trackio"}
)
"""Channels whose step column may be named; other channels number their rows themselves."""


@dataclass(frozen=True)
class ReadRun:
    """A run that was read to its end; its sources are closed.

    ``unused_columns``: one line for each of the user's ``columns`` without effect, to show spelling mistakes.
    """

    pipeline: Pipeline
    sources: Sequence[OpenedSource]
    unused_columns: Sequence[str]


def read_run(  # noqa: PLR0913  all that a run is read with
    found: FoundRun,
    rules: Sequence[Rule],
    detectors: Mapping[str, type[Detector]],
    tick: Tick,
    settings: Settings | None = None,
    overrides: Mapping[str, Scalar] | None = None,
    *,
    observe: Callable[[Record], None] | None = None,
) -> ReadRun:
    """Read a whole run.

    Args:
        found: the run, from discovery.
        rules: the rules to judge by.
        detectors: the catalogue.
        tick: ends the run.
        settings: the user's, whose entry for the run counts.
        overrides: ``--set``; they win over that entry.
        observe: called with every record before it is judged.
    """
    chosen = settings or Settings()
    entry = entry_for(found.root, chosen.runs, found.files, found.remote)
    columns = entry.columns if entry else None
    pipeline = Pipeline(found.name, rules, detectors, entry.labels if entry else {}, observe)
    known = {**(entry.settings if entry else {}), **(overrides or {})}
    opened = open_run(found, pipeline, known, examples=KeptTexts(chosen.privacy.examples), columns=columns)
    try:
        for _ in replay(opened, pipeline, tick):
            pass
    finally:
        opened.close()
    unused = tuple(_unused(columns, pipeline.assembler.resolver.unused_columns, found))
    return ReadRun(pipeline, opened.sources, unused)


def replay(opened: OpenedRun, pipeline: Pipeline, tick: Tick) -> Iterator[Transition]:
    """Feed a whole run as of its files' last change, and one final tick; yields the transitions as they happen."""
    for item in _items(opened, pipeline, tick):
        yield from pipeline.feed(item)


def _items(opened: OpenedRun, pipeline: Pipeline, tick: Tick) -> Iterator[Item]:
    yield from opened.announcements
    merge = ChannelMerge(opened.sources, pipeline.assembler)
    yield from filter(None, merge.items())
    yield from pipeline.elections(tick.now, ended=True)
    for name, modified in opened.modified():
        yield Activity(name, modified)
    yield tick


def _unused(columns: Mapping[str, str] | None, unread: Mapping[str, str], found: FoundRun) -> Iterator[str]:
    """Yield one line per column without effect; ``unread``: own keys that no row had, and their metrics."""
    for key, metric in unread.items():
        yield f"columns: {metric}: no row has a key {key!r}"
    channels = {channel.what.value for channel in found.channels if channel.what.kind is not None}
    if columns and STEP in columns and channels and NAMES_ITS_STEP.isdisjoint(channels):
        kinds = ", ".join(sorted(channels))
        yield f"columns: step: has no effect here: the rows of {kinds} carry their step themselves"
