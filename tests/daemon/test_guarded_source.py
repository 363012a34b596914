"""A source that raises ends alone, and the run reports it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from grpo_watch.engine.records import Activity, ChannelKind, Cursor, EventKind, Item, RunEvent
from grpo_watch.pipeline.channel_merge import guarded
from grpo_watch.pipeline.open_run import OpenedSource
from grpo_watch.sources.base import Source, SourceStats


class Breaking(Source):
    """Gives one item and raises."""

    name = "log"

    def __init__(self) -> None:
        self.stats = SourceStats()

    def poll(self, seen: float | None) -> Iterator[Item]:
        yield Activity("log", seen or 0.0)
        raise ValueError("boom")

    def finish(self) -> Iterator[Item]:
        yield Activity("log", 9.0)

    def cursor(self) -> Cursor:
        return Cursor("log", "", 7)

    def close(self) -> None:
        pass


def test_the_failure_is_reported_once_as_an_event() -> None:
    """What was read before it counts; nothing is read after it."""
    opened = OpenedSource(Breaking(), "console", ChannelKind.CONSOLE, 0, Path("log"))
    first, reported = guarded(opened, partial(opened.source.poll, 1.0))
    assert first == Activity("log", 1.0)
    assert isinstance(reported, RunEvent)
    assert (reported.channel, reported.kind) == ("log", EventKind.SOURCE_PROBLEM)
    assert "ValueError: boom" in reported.text
    assert opened.stats.problem == reported.text
    assert [*opened.source.poll(2.0), *opened.source.finish()] == []
    assert opened.source.cursor() == Cursor("log", "", 7)
