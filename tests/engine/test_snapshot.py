"""A run's picture: rule statuses with reasons, alerts as diagnosis leaves them, and the verdict of the interface."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.engine import Engine, RunState
from grpo_watch.engine.records import (
    AlertState,
    EventKind,
    Progress,
    Record,
    RunConfig,
    RunEvent,
    Setting,
    Severity,
    Tick,
)
from grpo_watch.engine.snapshot import RuleStatus, RuleView, RunSnapshot, RunVerdict, caveats, take_snapshot, verdict_of
from grpo_watch.rules.packs import load_rules
from tests.support.records import Scripted, a_rule, row

INFO, WARNING, CRITICAL = Severity
OK, FIRING, BLIND, BROKEN = RuleStatus
DETECTORS = {**catalogue(), "scripted": Scripted}


def watched(*rules: str, records: list[Record]) -> RunSnapshot:
    """The run's picture after these records under these rules."""
    engine = Engine("run", [a_rule(name) for name in rules], DETECTORS)
    state = engine.state
    state.shows_end = True
    for record in records:
        engine.feed(record)
    return take_snapshot(state)


def status(snapshot: RunSnapshot) -> dict[str, tuple[RuleStatus, str]]:
    """Status and reason by rule."""
    return {view.rule: (view.status, view.reason) for view in snapshot.rules}


@pytest.mark.parametrize(("rows", "reported"), [(1, ["one row is"]), (2, ["2 rows are"]), (3, [])])
def test_few_rows_are_too_little_to_judge(rows: int, reported: list[str]) -> None:
    """Rules need three rows before they alarm: fewer are no verdict."""
    engine = Engine("run", load_rules(), DETECTORS)
    for step in range(1, rows + 1):
        engine.feed(row(step, reward_mean=0.5, kl_reference=0.001, grad_norm=1.0))
    snapshot = take_snapshot(engine.state)
    assert snapshot.verdict is (RunVerdict.TOO_SHORT if reported else RunVerdict.HEALTHY)
    assert [each.partition(" too little")[0] for each in caveats(snapshot) if "too little" in each] == reported


def test_few_rows_with_a_finding_are_judged() -> None:
    """Groups of one completion teach nothing, whatever comes: one row is enough to say so."""
    engine = Engine("run", load_rules(), DETECTORS)
    engine.feed(RunConfig("trl", None, {"num_generations": Setting(1, "test")}))
    engine.feed(row(1, reward_mean=0.5))
    snapshot = take_snapshot(engine.state)
    assert "group-size-one" in {finding.rule for finding in snapshot.findings}
    assert snapshot.verdict is RunVerdict.CRITICAL
    assert not [caveat for caveat in caveats(snapshot) if "too little" in caveat]


def a_finding(**changes: object) -> Finding:
    """A critical, unresolved finding of attempt 1."""
    known = {"rule": "r", "key": "", "severity": CRITICAL, "attempt": 1, "first_step": 1, "fired_step": 2}
    rest = {"resolved_step": None, "evidence": {}, "summary": "", "hint": ""}
    return Finding(**{**known, **rest, **changes})  # type: ignore[arg-type]


SEES, SEES_NOT, BROKE = (RuleView("rule", CRITICAL, each) for each in (OK, BLIND, BROKEN))


@pytest.mark.parametrize(
    ("findings", "rules", "attempt", "verdict"),
    [
        ([], (SEES,), 1, RunVerdict.HEALTHY),
        ([], (SEES, SEES_NOT, BROKE), 1, RunVerdict.HEALTHY),
        ([], (SEES_NOT, BROKE), 1, RunVerdict.NOT_EVALUABLE),
        ([{"severity": INFO}], (SEES,), 1, RunVerdict.HEALTHY),
        ([{"severity": INFO}], (SEES_NOT,), 1, RunVerdict.HEALTHY),
        ([{"severity": WARNING}], (SEES,), 1, RunVerdict.WARNING),
        ([{"severity": WARNING}, {}], (SEES,), 1, RunVerdict.CRITICAL),
        ([{}], (SEES_NOT,), 1, RunVerdict.CRITICAL),
        ([{}], (SEES,), 2, RunVerdict.CRITICAL),
        ([{"resolved_step": 9}], (SEES,), 1, RunVerdict.WARNING),
        ([{"resolved_step": 9, "severity": INFO}], (SEES,), 1, RunVerdict.HEALTHY),
        ([{"resolved_step": 9}, {}], (SEES,), 1, RunVerdict.CRITICAL),
        ([{"resolved_step": 9}], (SEES,), 2, RunVerdict.HEALTHY),
        ([{"resolved_step": 9}], (SEES_NOT,), 2, RunVerdict.HEALTHY),
        ([{"resolved_step": 9}, {"attempt": 2, "severity": WARNING}], (SEES,), 2, RunVerdict.WARNING),
    ],
)
def test_the_verdict(
    findings: list[dict[str, object]], rules: tuple[RuleView, ...], attempt: int, verdict: RunVerdict
) -> None:
    """What is unresolved at the end counts; what the last attempt recovered from is a warning at most."""
    state = RunState("run", ())
    state.rows, state.attempt, state.values = 20, attempt, {"reward_mean": 0.5, "kl_reference": 0.01}
    found, _ = verdict_of(tuple(a_finding(**each) for each in findings), rules, state)
    assert found is verdict


def test_a_rule_is_ok_firing_blind_or_broken() -> None:
    engine = Engine("run", [a_rule(name, detector="scripted") for name in ("one", "two")], DETECTORS)
    engine.feed(row(1, blind=None))
    assert status(take_snapshot(engine.state))["one"] == (BLIND, "row 1")
    engine.feed(row(2, ok=None))
    assert status(take_snapshot(engine.state))["one"] == (OK, "")
    engine.feed(row(3, breach=None))
    assert status(take_snapshot(engine.state))["one"] == (FIRING, "")
    engine.feed(row(4, boom=None))
    assert status(take_snapshot(engine.state))["one"] == (BROKEN, "RuntimeError: boom")


def test_a_blind_rule_says_what_is_missing() -> None:
    """Each alternative of evidence with what it lacks; the rule's own reason once all is there."""
    nothing = watched("kl-stuck-at-zero", "gradient-lost", "parameters-unchanged", records=[])
    reasons = {rule: reason for rule, (_, reason) in status(nothing).items()}
    assert reasons["kl-stuck-at-zero"] == "needs kl_reference and learning_rate, or kl_policy_update and learning_rate"
    assert reasons["parameters-unchanged"] == "needs checkpoints, or probe"
    assert reasons["gradient-lost"].startswith("needs grad_norm and reward_zero_std_ratio, or grad_norm and")
    groups = watched("gradient-lost", records=[row(1, reward_zero_std_ratio=0.5, reward_group_std=0.1)])
    assert status(groups)["gradient-lost"][1] == "needs grad_norm, or grad_norm and advantage_max and advantage_min"
    logged = watched("kl-stuck-at-zero", records=[row(1, learning_rate=1e-6, kl_reference=0.0)])
    assert status(logged)["kl-stuck-at-zero"][0] is BLIND
    assert "needs" not in status(logged)["kl-stuck-at-zero"][1]


def test_a_rule_that_the_configuration_blinds_is_blind_although_it_was_evaluated() -> None:
    beta = RunConfig("trl", None, {"beta": Setting(0.0, "args.json")})
    found = watched("kl-stuck-at-zero", records=[row(1, kl_reference=0.1, learning_rate=1e-6), beta])
    assert status(found)["kl-stuck-at-zero"][0] is BLIND
    assert "beta is 0" in status(found)["kl-stuck-at-zero"][1]


def test_progress_and_values_of_the_run() -> None:
    found = watched(
        "kl-stuck-at-zero",
        records=[
            RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "args.json")}),
            Progress("log", 1, 100),
            row(1, loss=0.1),
            row(2, 2, loss=0.2),
        ],
    )
    assert (found.run, found.framework, found.version) == ("run", "trl", "1.16.0")
    assert (found.attempt, found.step, found.rows, found.max_steps) == (2, 2, 2, 100)
    assert (found.values, found.config) == ({"loss": 0.2}, {"beta": Setting(0.04, "args.json")})


def test_a_total_that_the_run_is_past_is_not_shown() -> None:
    """It was of another training in the same log, such as a supervised one before."""
    records: list[Record] = [Progress("log", 100, 100), row(99, loss=0.1), row(100, loss=0.1)]
    assert watched("kl-stuck-at-zero", records=records).max_steps == 100
    assert watched("kl-stuck-at-zero", records=[*records, row(101, loss=0.1)]).max_steps is None


def test_an_alert_shows_what_diagnosis_leaves_it() -> None:
    """A rejected batch configuration explains the crash at step 0: the crash is a warning on every surface."""
    text = "generation_batch_size (6) must be divisible by num_generations (4)"
    refused = [RunEvent("log", kind, None, text) for kind in (EventKind.CONFIG_ERROR, EventKind.TRACEBACK)]
    found = watched("batch-not-divisible", "run-crashed", records=[*refused, Tick(5.0, live=False)])
    alerts = {alert.rule: (alert.state, alert.fired_step, alert.severity, alert.caused_by) for alert in found.alerts}
    assert alerts == {
        "batch-not-divisible": (AlertState.FIRING, 0, CRITICAL, None),
        "run-crashed": (AlertState.FIRING, 0, WARNING, "batch-not-divisible"),
    }
    assert found.verdict is RunVerdict.CRITICAL


def test_a_pending_alert_is_shown_and_is_no_finding() -> None:
    engine = Engine("run", [a_rule("scripted", min_observations=2)], DETECTORS)
    engine.feed(row(5, breach=None))
    found = take_snapshot(engine.state)
    (alert,) = found.alerts
    assert (alert.state, alert.first_step, alert.fired_step, alert.fired_total) == (AlertState.PENDING, 5, None, 0)
    assert (found.findings, found.verdict) == ((), RunVerdict.TOO_SHORT)


def test_a_picture_does_not_change_with_the_run() -> None:
    engine = Engine("run", [a_rule("scripted")], DETECTORS)
    engine.feed(row(1, breach=None))
    before = take_snapshot(engine.state)
    engine.feed(row(2, ok=None))
    assert (before.step, before.alerts[0].state) == (1, AlertState.FIRING)
    assert before.values == {"breach": None}
    with pytest.raises(FrozenInstanceError):
        before.step = 3  # type: ignore[misc]
