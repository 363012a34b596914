"""What the watcher says of itself."""

from __future__ import annotations

from grpo_watch.core.engine import Engine
from grpo_watch.core.records import EventKind, RunEvent, Tick
from tests.support.detecting import DETECTORS, SHIPPED, Watched
from tests.support.records import Scripted, a_rule, row

RULE = "rule-broken"


def trouble(name: str, step: int) -> RunEvent:
    return RunEvent(name, EventKind.RULE_BROKEN, step, "it is so")


def test_each_has_an_alert_of_its_own() -> None:
    """One recovers, the other does not."""
    run = Watched(RULE).feed(row(1, loss=0.0), trouble("one", 2), trouble("two", 3))
    run.feed(RunEvent("one", EventKind.RULE_LOADED, 4))
    assert run.changes == [("firing", 2, "warning"), ("firing", 3, "warning"), ("resolved", 4, "warning")]
    assert [t.key for t in run.said] == ["one", "two", "one"]
    assert "it is so" in run.said[0].reading.message


def test_a_tick_shows_that_nothing_was_said() -> None:
    """Only on a run that has begun: an empty folder must not look judged."""
    assert not Watched(RULE).feed(Tick(100.0)).monitor.evaluated
    assert Watched(RULE).feed(row(1, loss=0.0), Tick(100.0)).monitor.evaluated


def test_other_events_are_not_its_matter() -> None:
    run = Watched(RULE).feed(RunEvent("log", EventKind.TRACEBACK, 1, "boom"))
    assert run.said == []


def test_the_engine_tells_once_at_the_record_that_broke_it() -> None:
    """Whatever the order of the rules; the rest of the rules goes on."""
    broken = a_rule("scripted", detector="scripted")
    for rules in ([broken, SHIPPED[RULE]], [SHIPPED[RULE], broken]):
        engine = Engine(rules, {**DETECTORS, "scripted": Scripted})
        said = [t for s in (1, 2, 3) for t in engine.feed("run", row(s, **({"boom": 1.0} if s > 1 else {"ok": 1.0})))]
        assert [(t.rule, t.key, t.step) for t in said] == [(RULE, "scripted", 2)]
        assert "RuntimeError: boom" in said[0].reading.message
