"""What a message holds, and which transitions are worth one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import AlertState, MetricRow, Reading, Severity, Stream, Transition, Verdict
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RunSnapshot, RunVerdict
from grpo_watch.notify.notifications import NotificationContext, digest, notifications
from grpo_watch.report.series import Series
from grpo_watch.rules.packs import load_rules
from tests.support.receiving import a_notification

READING = Reading(Verdict.BREACH, message="KL is 0", evidence={"kl_reference": 0.0})
FIRED = Transition(
    "abc",
    "run",
    1,
    "kl-stuck-at-zero",
    "",
    1,
    AlertState.PENDING,
    AlertState.FIRING,
    10,
    2,
    Severity.CRITICAL,
    50.0,
    READING,
)
FINDING = Finding(
    "kl-stuck-at-zero", "", Severity.CRITICAL, 1, 2, 10, None, {}, "KL is 0", "Stop.", causes=("a.", "b", "c")
)


def material(*findings: Finding) -> NotificationContext:
    history = Series()
    for step in range(30):
        values = {"kl_reference": float(step), "loss": 1.0, "reward_mean": float("nan") if step % 2 else 0.5}
        history.take(MetricRow("run", Stream.TRAIN, 1, step, values))
    snapshot = RunSnapshot("run", None, None, 1, 10, 10, 80, None, RunVerdict.CRITICAL, {}, {}, (), (), findings)
    return NotificationContext(
        snapshot,
        history.recent,
        100.0,
        {"team": "math"},
        "http://here/",
        {"kl-stuck-at-zero": Rule("kl-stuck-at-zero", summary="KL stays 0.")},
    )


def test_a_message_holds_what_is_needed_to_act() -> None:
    (message,) = notifications([FIRED], material(FINDING))
    assert (message.id, message.status, message.severity, message.step, message.first_step) == (
        "abc",
        "firing",
        "critical",
        10,
        2,
    )
    assert (message.summary, message.message, message.hint, message.cause) == (
        "KL stays 0.",
        "KL is 0",
        "Stop.",
        "a; b",
    )
    assert (message.started, message.ended, message.at, message.max_steps) == (50.0, None, 100.0, 80)
    assert (message.labels, message.page) == ({"team": "math"}, "http://here/#/run/run")
    assert message.series["kl_reference"] == tuple(float(step) for step in range(6, 30))
    assert set(message.series["reward_mean"]) == {0.5}
    assert "loss" not in message.series


def test_a_completion_is_quoted_only_where_the_settings_say_so() -> None:
    reading = replace(READING, evidence={"example": "secret text", "copies": 4})
    for texts, evidence in ((False, {"copies": 4}), (True, {"example": "secret text", "copies": 4})):
        (message,) = notifications([replace(FIRED, reading=reading)], replace(material(FINDING), texts=texts))
        assert message.evidence == evidence


def test_thousands_of_changes_read_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of a run that flaps: the lines are the same for all, and reading one takes milliseconds."""
    read: list[str] = []
    recent = Series.recent
    monkeypatch.setattr(Series, "recent", lambda self, name, points: (read.append(name), recent(self, name, points))[1])
    messages = notifications([replace(FIRED, id=str(number)) for number in range(1_000)], material(FINDING))
    assert len(messages) == 1_000
    assert sorted(read) == ["kl_reference", "reward_mean"]


def test_the_runbook_is_an_address_where_one_is_configured_else_the_command() -> None:
    (command,) = notifications([FIRED], material(FINDING))
    (address,) = notifications([FIRED], replace(material(FINDING), runbook="https://wiki.example.org/grpo/{rule}#top"))
    assert command.runbook == "grpo-watch explain kl-stuck-at-zero"
    assert address.runbook == "https://wiki.example.org/grpo/kl-stuck-at-zero#top"


def test_what_another_finding_explains_is_not_reported_but_its_end_is_made() -> None:
    """A receiver that never got the alert drops its end."""
    explained = replace(FINDING, caused_by="learning-rate-zero", severity=Severity.WARNING)
    assert notifications([FIRED], material(explained)) == []
    over = replace(FIRED, id="end", from_state=AlertState.FIRING, to_state=AlertState.RESOLVED)
    assert [message.status for message in notifications([over], material(explained))] == ["resolved"]


def test_the_end_says_how_long_it_lasted_and_what_the_values_are_now() -> None:
    """From step 2 to 40; the KL that proved it is no longer 0. A restart from before step 2 is its own reason."""
    over = replace(FIRED, id="end", from_state=AlertState.FIRING, to_state=AlertState.RESOLVED, step=40)
    context = material(FINDING)
    now = replace(context, snapshot=replace(context.snapshot, values={"kl_reference": 0.013}))
    (message,) = notifications([over], now)
    assert message.why == "It lasted 38 steps. Now: reference KL 0 → 0.013."
    (again,) = notifications([replace(over, step=1)], now)
    assert again.why == "The run was restarted from a step before it."
    (fired,) = notifications([FIRED], now)
    assert fired.why == ""


def test_in_chinese_headline_cause_and_labels_are() -> None:
    rule = next(rule for rule in load_rules(language="zh") if rule.name == "kl-stuck-at-zero")
    cause = "The optimizer does not hold the model's parameters: count those in optimizer.param_groups."
    context = material(replace(FINDING, headline=rule.headline, causes=(cause,)))
    (message,) = notifications([FIRED], replace(context, snapshot=replace(context.snapshot, language="zh")))
    assert message.headline.startswith("第 2 步起什么都没学到")
    assert "optimizer.param_groups" in message.cause
    assert "The" not in message.cause
    assert message.language == "zh"


def test_steps_on_the_way_are_not_reported() -> None:
    """Pending, and pending no more."""
    begins = replace(FIRED, from_state=AlertState.INACTIVE, to_state=AlertState.PENDING)
    drops = replace(FIRED, from_state=AlertState.PENDING, to_state=AlertState.RESOLVED)
    assert notifications([begins, drops], material(FINDING)) == []


def test_a_digest_says_how_many_of_what() -> None:
    """Its id follows from its parts, its severity is the worst; resolved only where all are."""
    parts = [
        a_notification(id="a", severity="warning"),
        a_notification(id="b", run="other"),
        a_notification(id="c", status="resolved"),
    ]
    made = digest(parts, 5.0)
    assert made.summary == "3 alerts of 2 runs: 2 firing, 1 resolved"
    assert (made.status, made.severity, made.run, made.at) == ("firing", "critical", "2 runs", 5.0)
    assert made.id == digest(parts, 6.0).id != digest(parts[:2], 5.0).id
    assert digest(parts[2:], 5.0).status == "resolved"
    assert digest([parts[0], parts[2]], 5.0).severity == "warning"  # what was critical is over
