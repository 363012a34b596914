"""One rule on one run: alerts by key, episodes, blindness, breakage, attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grpo_watch.engine.detector import QUIET, Detector
from grpo_watch.engine.diagnosis import diagnose
from grpo_watch.engine.engine import Engine, Monitor
from grpo_watch.engine.records import AlertState, MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.rule import Rule
from tests.support.detecting import Watched
from tests.support.records import Scripted, a_rule, an_alert, row

PENDING, FIRING, RESOLVED = AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED


class Survivor(Scripted):
    """Keeps its windows across attempts."""

    survives_attempts = True


class Dated(Detector):
    """Speaks of attempt 1 at row 41 of attempt 2: a crash that only the restart proves."""

    survives_attempts = True

    def observe(self, record: MetricRow, run: Any) -> tuple[Reading, ...]:  # noqa: ARG002
        """The death at step 50 of attempt 1, then all well; the same again in attempt 2."""
        death = Reading(Verdict.BREACH, step=50, attempt=record.attempt - 1, immediate=True)
        return (death, Reading(Verdict.OK)) if record.step == 41 else (Reading(Verdict.OK),)


class Quiet(Detector):
    """Always answers that all is well, by the shared answer that costs nothing."""

    def observe(self, record: MetricRow, run: Any) -> tuple[Reading, ...]:  # noqa: ARG002
        """Nothing to see."""
        return QUIET


DETECTORS = {"scripted": Scripted, "survivor": Survivor, "dated": Dated, "quiet": Quiet}


def watch(rule: Rule) -> tuple[Monitor, Engine]:
    """A monitor and the engine of its run."""
    engine = Engine("run", [rule], DETECTORS)
    return engine.state.monitors[0], engine


def feed(monitor: Monitor, engine: Engine, *rows: MetricRow) -> list[tuple[str, AlertState, int] | None]:
    """Key, new state and step of every change; None for a row that broke the detector."""
    found: list[tuple[str, AlertState, int] | None] = []
    for each in rows:
        worked = monitor.broken is None
        changes = [(one.key, one.to_state, one.step) for one in engine.feed(each)]
        found += [None] if worked and monitor.broken is not None else changes
    return found


def test_keys_have_alerts_of_their_own() -> None:
    monitor, run = watch(a_rule("scripted"))
    first = row(1, **{"breach[a]": None, "ok[b]": None})
    second = row(2, **{"ok[a]": None, "breach[b]": None})
    assert feed(monitor, run, first, second) == [("a", FIRING, 1), ("a", RESOLVED, 2), ("b", FIRING, 2)]
    assert [(e.key, e.fired_step, e.resolved_step) for e in monitor.episodes] == [("a", 1, 2), ("b", 2, None)]


def test_each_firing_is_an_episode_and_pending_is_none() -> None:
    monitor, run = watch(a_rule("scripted", min_observations=2))
    rows = [row(1, breach=None), row(2, ok=None)]
    rows += [row(step, breach=None) for step in (3, 4, 5)]
    rows += [row(6, ok=None), row(7, breach=None), row(8, breach=None)]
    feed(monitor, run, *rows)
    assert [(e.first_step, e.fired_step, e.resolved_step) for e in monitor.episodes] == [(3, 4, 6), (7, 8, None)]


def test_an_episode_follows_its_alert_until_it_resolves() -> None:
    """The evidence shown is that of the breach that fired, and the resolved episode keeps it."""
    monitor, run = watch(a_rule("scripted"))
    feed(monitor, run, row(1, breach=None), row(2, breach=None), row(3, ok=None), row(4, ok=None))
    assert [e.reading.message for e in monitor.episodes] == ["row 1"]


def test_a_pending_alert_after_a_resolved_one_leaves_the_old_episode_alone() -> None:
    monitor, run = watch(a_rule("scripted", for_steps=2))
    feed(monitor, run, row(1, breach=None), row(3, breach=None), row(4, ok=None))
    before = list(monitor.episodes)
    feed(monitor, run, row(5, breach=None), row(6, ok=None))
    assert monitor.episodes == before
    assert (before[0].fired_step, before[0].resolved_step) == (3, 4)


def test_active_while_something_is_pending_or_firing() -> None:
    monitor, run = watch(a_rule("scripted", min_observations=2))
    seen = []
    for each in (row(1, ok=None), row(2, breach=None), row(3, breach=None), row(4, ok=None)):
        feed(monitor, run, each)
        seen.append((monitor.active, monitor.firing))
    assert seen == [(False, False), (True, False), (True, True), (False, False)]


def test_no_data_is_a_reason_and_no_judgement() -> None:
    monitor, run = watch(a_rule("scripted"))
    feed(monitor, run, row(1, blind=None))
    assert (monitor.evaluated, monitor.reason) == (False, "row 1")
    feed(monitor, run, row(2, ok=None))
    assert monitor.evaluated


def test_a_detector_that_raises_is_broken_and_its_alerts_freeze() -> None:
    monitor, run = watch(a_rule("scripted"))
    feed(monitor, run, row(1, breach=None))
    assert feed(monitor, run, row(2, boom=None), row(3, ok=None)) == [None]
    assert monitor.broken == "RuntimeError: boom"
    assert monitor.firing


def test_a_generator_that_raises_half_way_changes_nothing() -> None:
    monitor, run = watch(a_rule("scripted"))
    assert feed(monitor, run, row(1, **{"breach[a]": None, "boom": None})) == [None]
    assert monitor.alerts == {}


def test_a_new_attempt_renews_the_windows_unless_the_detector_survives() -> None:
    for name, message in (("scripted", "row 1"), ("survivor", "row 3")):
        monitor, run = watch(a_rule(name))
        feed(monitor, run, row(1, ok=None), row(2, ok=None), row(1, 2, breach=None))
        assert monitor.episodes[0].reading.message == message


def test_a_new_attempt_drops_pending_silently_and_keeps_firing() -> None:
    monitor, run = watch(a_rule("scripted", min_observations=2))
    feed(monitor, run, row(7, **{"breach[fires]": None}), row(8, **{"breach[fires]": None, "breach[waits]": None}))
    assert feed(monitor, run, row(5, 2, blind=None)) == []
    assert {key: alert.state for key, alert in monitor.alerts.items()} == {
        "fires": FIRING,
        "waits": AlertState.INACTIVE,
    }
    assert monitor.active


def test_firing_across_an_attempt_resolves_once_as_the_old_attempts_episode() -> None:
    monitor, run = watch(a_rule("scripted"))
    feed(monitor, run, row(50, breach=None))
    assert feed(monitor, run, row(41, 2, blind=None), row(42, 2, ok=None)) == [("", RESOLVED, 42)]
    (episode,) = monitor.episodes
    assert (episode.attempt, episode.fired_step, episode.resolved_step) == (1, 50, 42)


def test_a_finding_of_an_attempt_that_is_over_can_resolve_in_the_new_one() -> None:
    """Two crashes at step 50, each followed by a resume from step 41: two episodes, none swallowed."""
    monitor, run = watch(a_rule("dated"))
    first = feed(monitor, run, row(50), row(41, 2), row(42, 2))
    assert first == [("", FIRING, 50), ("", RESOLVED, 41)]
    assert feed(monitor, run, row(50, 2), row(41, 3)) == [("", FIRING, 50), ("", RESOLVED, 41)]
    assert [(e.attempt, e.fired_step, e.resolved_step) for e in monitor.episodes] == [(1, 50, 41), (2, 50, 41)]


def test_a_rule_with_a_condition_needs_no_detector() -> None:
    monitor, run = watch(replace(a_rule("mine"), when="reward_mean < 0.1 and step > 2"))
    rows = [row(step, reward_mean=0.0) for step in (1, 2, 3)]
    assert feed(monitor, run, *rows) == [("", FIRING, 3)]
    assert monitor.episodes[0].reading.evidence == {"reward_mean": 0.0, "step": 3.0}


def test_a_condition_is_not_judged_by_rows_that_only_add_other_metrics() -> None:
    """A batch of completions at step 2 that arrives late must not clear what the rows of step 3 say."""
    monitor, run = watch(replace(a_rule("mine", min_observations=2), when="reward_mean < 0.1 and step > 2"))
    late = row(2, supplement=True, completion_duplicate_ratio=0.0)
    assert feed(monitor, run, row(3, reward_mean=0.0), late, row(4, reward_mean=0.0)) == [
        ("", PENDING, 3),
        ("", FIRING, 4),
    ]


def test_a_condition_over_an_added_metric_is_judged_by_the_row_that_adds_it() -> None:
    monitor, run = watch(replace(a_rule("mine"), when="completion_duplicate_ratio > 0.5"))
    added = row(2, supplement=True, completion_duplicate_ratio=0.75)
    assert feed(monitor, run, row(2, reward_mean=0.0), added) == [("", FIRING, 2)]


def test_the_severity_of_the_rule_stands_where_the_reading_names_none() -> None:
    monitor, run = watch(a_rule("scripted", severity=Severity.INFO))
    feed(monitor, run, row(1, breach=None))
    assert monitor.episodes[0].severity is Severity.INFO


def test_an_alert_loaded_into_a_quiet_monitor_resolves() -> None:
    """After an upgrade the rebuilt windows may be quiet where the stored alert still fires."""
    monitor, run = watch(a_rule("quiet"))
    assert feed(monitor, run, row(1), row(2)) == []
    monitor.load("", an_alert(FIRING))
    assert monitor.firing
    assert feed(monitor, run, row(11)) == [("", RESOLVED, 11)]


def test_a_finding_shows_the_worst_reading_of_its_episode() -> None:
    """It fires at 5.94, peaks and comes back: the number is the peak's, the severity and the first step its own."""
    rows = [row(step, kl_reference=0.02, reward_mean=0.5) for step in range(1, 21)]
    values = (5.94, 5.94, 5.94, 300.0, 3968.0, 3968.0, 3968.0, 200.0, 6.0, 6.0, 6.0, 6.0)
    watched = Watched("kl-explosion").feed(
        *rows, *(row(21 + n, kl_reference=kl, reward_mean=0.5) for n, kl in enumerate(values))
    )
    (finding,) = diagnose(watched.state.monitors)
    assert finding.evidence["kl_reference"] == 3968.0
    assert finding.summary.startswith("KL to the reference is 3.97e+03")
    assert (finding.severity, finding.evidence["at_step"]) == (Severity.CRITICAL, 27)
    assert finding.fired_step == 21


def test_a_reading_that_is_hardly_worse_changes_nothing() -> None:
    rows = [row(step, kl_reference=0.02, reward_mean=0.5) for step in range(1, 21)]
    watched = Watched("kl-explosion").feed(
        *rows, *(row(21 + n, kl_reference=6.0 + 0.1 * n, reward_mean=0.5) for n in range(9))
    )
    (finding,) = diagnose(watched.state.monitors)
    assert finding.evidence["kl_reference"] == 6.0
    assert "at_step" not in finding.evidence
