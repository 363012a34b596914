"""A source that raises ends alone, and the run reports it."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.daemon.run_reader import GuardedSource
from grpo_watch.engine.records import Activity, Cursor, EventKind, Item, RunEvent
from grpo_watch.sources.base import SourceStats


class Breaking:
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
        return Cursor("log", "", 0)

    def close(self) -> None:
        pass


def test_the_failure_is_reported_once_as_an_event() -> None:
    """What was read before it counts; nothing is read after it."""
    source = GuardedSource(Breaking())
    first, reported = source.poll(1.0)
    assert first == Activity("log", 1.0)
    assert isinstance(reported, RunEvent)
    assert (reported.channel, reported.kind) == ("log", EventKind.SOURCE_PROBLEM)
    assert "ValueError: boom" in reported.text
    assert [*source.poll(2.0), *source.finish()] == []
