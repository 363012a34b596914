"""A rule that broke. What these rules share: ``tests/detectors/test_event_detector.py``."""

from __future__ import annotations

from grpo_watch.detectors.watcher.events import RULE_FILES
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import EventKind, RunEvent
from tests.support.detecting import DETECTORS, SHIPPED, Watched
from tests.support.records import Scripted, a_rule, row

RULE = "rule-broken"


def test_says_that_old_rules_go_on_where_files_are_at_fault() -> None:
    trouble = RunEvent(RULE_FILES, EventKind.RULE_BROKEN, 2, "my.yaml:3:5: unknown metric")
    (said,) = Watched(RULE).feed(row(1, loss=0.0), trouble).said
    assert "the previous rules stay in force: my.yaml:3:5" in said.reading.message


def test_the_engine_reports_once_at_the_record_that_broke_it() -> None:
    """Whatever the order of the rules; the rest of the rules goes on."""
    broken = a_rule("scripted", detector="scripted")
    for rules in ([broken, SHIPPED[RULE]], [SHIPPED[RULE], broken]):
        engine = Engine("run", rules, {**DETECTORS, "scripted": Scripted})
        said = [t for s in (1, 2, 3) for t in engine.feed(row(s, **({"boom": 1.0} if s > 1 else {"ok": 1.0})))]
        assert [(t.rule, t.key, t.step) for t in said] == [(RULE, "scripted", 2)]
        assert "RuntimeError: boom" in said[0].reading.message
