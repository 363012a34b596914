"""What the watcher says of itself."""

from __future__ import annotations

from grpo_watch.core.records import EventKind, RunEvent, Tick
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "delivery-failing"


def trouble(name: str, step: int) -> RunEvent:
    return RunEvent(name, EventKind.DELIVERY_PROBLEM, step, "it is so")


def test_each_has_an_alert_of_its_own() -> None:
    """One recovers, the other does not."""
    run = Watched(RULE).feed(row(1, loss=0.0), trouble("one", 2), trouble("two", 3))
    run.feed(RunEvent("one", EventKind.DELIVERY_RECOVERED, 4))
    assert run.changes == [("firing", 2, "warning"), ("firing", 3, "warning"), ("resolved", 4, "warning")]
    assert [t.key for t in run.said] == ["one", "two", "one"]
    assert "it is so" in run.said[0].reading.message


def test_without_deliveries_it_is_blind() -> None:
    run = Watched(RULE).feed(row(1, loss=0.0), Tick(100.0))
    assert "nothing tells of deliveries" in run.blind_reason
    assert not run.monitor.evaluated


def test_other_events_are_not_its_matter() -> None:
    run = Watched(RULE).feed(RunEvent("log", EventKind.TRACEBACK, 1, "boom"))
    assert run.said == []
