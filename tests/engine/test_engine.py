"""The engine: which rules read a record, and what its transitions carry."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from grpo_watch.engine.detector import QUIET, Detector
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import (
    AlertState,
    CheckpointDigest,
    CompletionSummary,
    MetricRow,
    Progress,
    Reading,
    Record,
    RunConfig,
    Setting,
    Severity,
    Stream,
    Tick,
    Transition,
    Verdict,
)
from grpo_watch.engine.rule import Rule
from tests.support.records import Scripted, a_batch, a_checkpoint, a_rule, evaluation, row

PENDING, FIRING, RESOLVED = AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED


class ReadsEval(Scripted):
    """The same for evaluation rows."""

    stream = Stream.EVAL


class ReadsCheckpoints(Detector):
    """Breaches at every checkpoint."""

    reads = (CheckpointDigest,)

    def observe(self, record: CheckpointDigest, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """A breach, whatever the checkpoint holds."""
        return (Reading(Verdict.BREACH),)


class ReadsTicks(Detector):
    """Breaches at every tick."""

    reads = (Tick,)

    def observe(self, record: Tick, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """A breach, whatever the time."""
        return (Reading(Verdict.BREACH),)


class ReadsBatches(Detector):
    """Breaches at every batch, under its step."""

    reads = (CompletionSummary,)

    def observe(self, record: CompletionSummary, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """A breach, whatever the batch holds."""
        return (Reading(Verdict.BREACH, str(record.step)),)


class Joins(Detector):
    """Judges steps 3, 4 and 5 at one row."""

    def observe(self, record: MetricRow, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """Breach, clear, breach."""
        return (
            Reading(Verdict.BREACH, step=3),
            Reading(Verdict.OK, step=4),
            Reading(Verdict.BREACH, step=5),
        )


class QuietAfterOne(Detector):
    """One breach at step 1, the shared quiet answer afterwards."""

    def observe(self, record: MetricRow, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """Breach once."""
        return (Reading(Verdict.BREACH),) if record.step == 1 else QUIET


class Window(Detector):
    """Keeps the newest three rows of any kind, as the detectors of windows do; needs a metric that few rows carry."""

    needs = (("kl_reference",),)

    def setup(self) -> None:
        """No row yet."""
        self.shown: list[MetricRow] = []

    def observe(self, record: MetricRow, run: Any) -> Iterable[Reading]:  # noqa: ARG002
        """Keep the row."""
        self.shown.append(record)
        return QUIET


DETECTORS = {
    "batches": ReadsBatches,
    "window": Window,
    "quiet": QuietAfterOne,
    "joins": Joins,
    "scripted": Scripted,
    "eval": ReadsEval,
    "checkpoints": ReadsCheckpoints,
    "ticks": ReadsTicks,
}


def engine(*rules: Rule) -> Engine:
    """An engine under these rules (by default one scripted rule that fires at once)."""
    return Engine("run", rules or [a_rule("scripted")], DETECTORS)


def feed(target: Engine, *records: Record) -> list[Transition]:
    """All transitions of these records."""
    return [transition for record in records for transition in target.feed(record)]


def short(transitions: Iterable[Transition]) -> list[tuple[str, AlertState, int]]:
    """Rule, new state and step of each."""
    return [(each.rule, each.to_state, each.step) for each in transitions]


def test_a_transition_names_run_rule_step_and_reading() -> None:
    watched = engine(a_rule("scripted", for_steps=2, severity=Severity.WARNING))
    _, fired = feed(watched, row(4, breach=None), row(6, breach=None))
    assert (fired.run, fired.rule, fired.key, fired.episode, fired.attempt) == ("run", "scripted", "", 1, 1)
    assert (fired.from_state, fired.to_state) == (PENDING, FIRING)
    assert (fired.first_step, fired.step, fired.severity, fired.reading.message) == (4, 6, Severity.WARNING, "row 2")


def test_a_transition_carries_the_producers_time_only() -> None:
    timed = MetricRow("run", Stream.TRAIN, 1, 5, {"breach": None}, time=1700.0, seen=9999.0)
    assert feed(engine(), timed)[0].time == 1700.0
    assert feed(engine(), row(5, breach=None))[0].time is None


def test_several_changes_of_one_alert_at_one_record_are_distinguished() -> None:
    """A join that catches up judges several steps at once: each change carries its own episode, id and first step."""
    caught_up = feed(engine(a_rule("joins")), row(9))
    assert [(t.to_state, t.step, t.episode, t.first_step) for t in caught_up] == [
        (FIRING, 3, 1, 3),
        (RESOLVED, 4, 1, 3),
        (FIRING, 5, 2, 5),
    ]
    assert len({t.id for t in caught_up}) == 3


def test_a_rule_reads_its_own_stream_and_record_types() -> None:
    watched = engine(a_rule("scripted"), a_rule("eval"), a_rule("checkpoints"), a_rule("ticks"))
    evaluation = MetricRow("run", Stream.EVAL, 1, 2, {"breach": None})
    assert short(feed(watched, row(1, breach=None))) == [("scripted", FIRING, 1)]
    assert short(feed(watched, evaluation)) == [("eval", FIRING, 2)]
    assert short(feed(watched, a_checkpoint(40, {"w": "a"}))) == [("checkpoints", FIRING, 40)]
    assert short(feed(watched, Tick(5.0))) == [("ticks", FIRING, 1)]
    assert feed(watched, a_batch(3, (0, 1))) == []


def test_a_condition_on_held_out_scores_is_judged_at_evaluations() -> None:
    """One beside a metric of training is judged at rows of training, by the newest score."""
    alone = a_rule("alone", when='eval_score["acc"] < 0.5')
    beside = a_rule("beside", when='eval_score["acc"] < reward_mean')
    engine = Engine("run", [alone, beside], {})
    assert engine.feed(row(1, reward_mean=0.4)) == []
    assert [(change.rule, change.step) for change in engine.feed(evaluation(1, acc=0.45))] == [("alone", 1)]
    assert engine.feed(row(2, reward_mean=0.4)) == []
    assert [(change.rule, change.step) for change in engine.feed(row(3, reward_mean=0.6))] == [("beside", 3)]


def test_a_batch_that_is_dumped_again_reaches_no_rule() -> None:
    """Under another step too, as TRL does when training ends; nor does an evaluation's."""
    watched, batch = engine(a_rule("batches")), a_batch(3, (0, 1))
    again, evaluation = replace(batch, step=4), replace(a_batch(5, (0, 0)), stream=Stream.EVAL)
    assert [t.key for t in feed(watched, batch, batch, evaluation, again, a_batch(6, (0, 0)))] == ["3", "6"]


def test_a_detector_sees_every_row_in_order_whatever_it_answered() -> None:
    """Long healthy stretches, rows without its metric, supplements and a restart: a window never misses a row."""
    watched = engine(a_rule("window"))
    rows = [row(step, kl_reference=0.1) for step in range(1, 100)]
    rows += [row(step, reward_mean=0.5) for step in range(100, 200)]
    rows += [row(200, supplement=True, kl_reference=0.1), row(201, kl_reference=math.nan), row(202)]
    feed(watched, *rows)
    detector = watched.state.monitors[0].detector
    assert isinstance(detector, Window)
    assert detector.shown == rows


def test_only_these_members_decide_what_a_detector_sees() -> None:
    """A member that keeps records from ``observe``, or shows it others, is a trap for anyone who copies a neighbour."""
    decide = {"reads", "stream", "survives_attempts", "setup", "observe"}
    say = {"needs", "params", "blind_because", "silent_too_long_at", "early_sign", "stem", "name"}
    assert {name for name in vars(Detector) if not name.startswith("_")} == decide | say


def test_a_tick_mentions_the_newest_train_row() -> None:
    """Neither an evaluation row nor a supplement nor a checkpoint moves the run's step."""
    watched = engine(a_rule("ticks"))
    evaluation = MetricRow("run", Stream.EVAL, 1, 99, {"x": 1.0})
    feed(watched, row(7), row(30, supplement=True), evaluation, a_checkpoint(40, {"w": "a"}))
    assert short(feed(watched, Tick(5.0))) == [("ticks", FIRING, 7)]
    assert watched.state.rows == 1


def test_rules_answer_in_their_order_and_disabled_ones_never() -> None:
    watched = engine(a_rule("b", detector="scripted"), a_rule("off", detector="scripted", enabled=False))
    watched2 = engine(a_rule("b", detector="scripted"), a_rule("a", detector="scripted"))
    assert [t.rule for t in feed(watched, row(1, breach=None))] == ["b"]
    assert [t.rule for t in feed(watched2, row(1, breach=None))] == ["b", "a"]


def test_a_new_attempt_rewinds_every_rule() -> None:
    """Pending at step 50 of attempt 1 counts nothing in attempt 2; the id of its fire names the attempt."""
    watched = engine(a_rule("scripted", min_observations=2))
    feed(watched, row(50, breach=None))
    changes = feed(watched, row(41, 2, breach=None), row(42, 2, breach=None))
    assert short(changes) == [("scripted", PENDING, 41), ("scripted", FIRING, 42)]
    assert [t.attempt for t in changes] == [2, 2]
    assert watched.state.attempt == 2


def test_a_setting_of_lower_precedence_number_wins_whatever_the_order() -> None:
    reported = RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "args.json")}, precedence=1)
    guess = RunConfig("ms-swift", None, {"beta": Setting(0.0, "guess"), "seed": Setting(7, "guess")}, precedence=9)
    for order in ((reported, guess), (guess, reported)):
        watched = engine()
        feed(watched, *order)
        run = watched.state
        assert (run.framework, run.version, run.setting("beta"), run.setting("seed")) == ("trl", "1.16.0", 0.04, 7)


def test_of_equal_precedence_the_newer_configuration_wins() -> None:
    watched = engine()
    for beta in (0.04, 0.1):
        feed(watched, RunConfig("trl", None, {"beta": Setting(beta, "args.json")}))
    assert watched.state.number("beta") == 0.1


def test_settings_are_numbers_where_they_can_be() -> None:
    watched = engine()
    said = {"beta": "0.04", "model": "qwen", "max_steps": "80", "adapter": True}
    feed(watched, RunConfig("trl", None, {name: Setting(value, "here") for name, value in said.items()}))
    run = watched.state
    assert [run.number(name) for name in ("beta", "model", "max_steps", "adapter", "seed")] == [0.04, None, 80, 1, None]
    assert (run.known("model"), run.known("seed"), run.max_steps) == (True, False, 80)


def test_the_total_comes_from_the_bar_where_no_setting_says_it() -> None:
    watched = engine()
    feed(watched, RunConfig("trl", None, {"max_steps": Setting(-1, "args.json")}), Progress("log", 3, 120))
    assert watched.state.max_steps == 120


def test_the_newest_values_are_kept_and_every_metric_ever_logged_is_known() -> None:
    watched = engine(a_rule("eval"))
    feed(watched, row(1, reward_mean=0.5, kl_reference=0.0), row(2, reward_mean=0.6))
    run = watched.state
    assert run.values == {"reward_mean": 0.6, "kl_reference": 0.0}
    assert run.seen("kl_reference")
    assert not run.seen("entropy")


def test_the_quiet_answer_clears_a_pending_alert() -> None:
    """The engine's short cut for quiet rows must not pass over an alert that waits."""

    watched = engine(a_rule("quiet", min_observations=2))
    states = [(t.to_state, t.step) for t in feed(watched, row(1), row(2), row(3))]
    assert states == [(PENDING, 1), (AlertState.INACTIVE, 2)]
