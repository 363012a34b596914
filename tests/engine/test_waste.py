"""What a finding cost: steps, hours at the run's pace, GPU-hours; each step counted once."""

from __future__ import annotations

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.diagnosis import Finding, Waste, with_causes
from grpo_watch.engine.engine import Monitor, RunState
from grpo_watch.engine.records import RunConfig, Setting, Severity
from grpo_watch.engine.rule import ENGLISH
from grpo_watch.engine.waste import wasted, with_waste
from grpo_watch.report.words import cost_words
from tests.support.records import a_rule, row

INFO, WARNING, CRITICAL = Severity
DETECTORS = catalogue()


def a_run(newest: int = 100, seconds: float | None = 36.0, world: int | None = 8) -> RunState:
    """A run whose newest row is of step ``newest``, at ``seconds`` per step, on ``world`` processes."""
    run = RunState("run", tuple(Monitor(a_rule(name), DETECTORS) for name in DETECTORS))
    if world is not None:
        run.take_config(RunConfig(None, None, {"world_size": Setting(world, "args.json")}))
    for step in (newest - 1, newest):
        run.take_row(row(step, step_seconds=seconds))
    return run


def a_finding(**changes: object) -> Finding:
    """A critical finding of a frozen policy, open since step 20."""
    known: dict[str, object] = {"rule": "gradient-lost", "key": "", "severity": CRITICAL, "attempt": 1}
    rest: dict[str, object] = {
        "first_step": 20,
        "fired_step": 30,
        "resolved_step": None,
        "evidence": {},
        "summary": "",
        "hint": "",
    }
    return Finding(**{**known, **rest, **changes})  # type: ignore[arg-type]


def cost(run: RunState, *findings: Finding) -> list[Waste | None]:
    """What each of the findings wasted."""
    return [finding.wasted for finding in with_waste(findings, run)]


def test_an_open_finding_costs_until_the_newest_step() -> None:
    """80 steps of 36 s are 0.8 hours, on 8 processes 6.4 GPU-hours."""
    (waste,) = cost(a_run(), a_finding())
    assert waste is not None
    assert waste.steps == 80
    assert waste.hours == pytest.approx(0.8)
    assert waste.gpu_hours == pytest.approx(6.4)


def test_what_is_not_known_is_not_guessed() -> None:
    assert cost(a_run(seconds=None), a_finding()) == [Waste(80, None, None)]
    (waste,) = cost(a_run(world=None), a_finding())
    assert waste is not None
    assert (waste.hours is not None, waste.gpu_hours) == (True, None)


@pytest.mark.parametrize(("resolved", "steps"), [(60, 40), (40, 20), (39, None)])
def test_a_resolved_finding_counts_only_if_it_was_long(resolved: int, steps: int | None) -> None:
    (waste,) = cost(a_run(), a_finding(resolved_step=resolved))
    assert (waste.steps if waste else None) == steps


@pytest.mark.parametrize(
    "changes",
    [{"rule": "step-time-regression"}, {"severity": INFO}, {"caused_by": "non-finite-metric"}, {"first_step": 100}],
)
def test_findings_that_carry_no_cost(changes: dict[str, object]) -> None:
    """Learning goes on, nobody is alarmed, the cause counts it, or no step has passed."""
    assert cost(a_run(), a_finding(**changes)) == [None]


def test_the_cost_begins_with_the_first_consequence() -> None:
    """KL was 0 from step 2 on; the checkpoints of steps 20 and 40 explain it: 98 steps until 100, not 80."""
    top = a_finding(rule="parameters-unchanged", first_step=20)
    sign = a_finding(rule="kl-stuck-at-zero", severity=WARNING, first_step=2, caused_by="parameters-unchanged")
    assert [waste.steps if waste else None for waste in cost(a_run(), top, sign)] == [98, None]


def test_a_consequence_of_a_consequence_belongs_to_the_top_finding() -> None:
    """Learning rate, adapter, KL: from step 1 to 100."""
    top = a_finding(rule="learning-rate-zero", first_step=9)
    middle = a_finding(rule="adapter-never-trained", first_step=20, caused_by="learning-rate-zero")
    last = a_finding(rule="kl-stuck-at-zero", first_step=1, caused_by="adapter-never-trained")
    assert [waste.steps if waste else None for waste in cost(a_run(), top, middle, last)] == [99, None, None]


def test_episodes_that_explain_each_other_by_turns() -> None:
    """Reward, length and again reward from step 20 to 100, each of which explains the next."""
    first = a_finding(rule="reward-collapse", resolved_step=40)
    second = a_finding(rule="length-collapse", first_step=30, severity=WARNING, caused_by="reward-collapse")
    third = a_finding(rule="reward-collapse", first_step=60, severity=WARNING, caused_by="length-collapse")
    assert [waste.steps if waste else None for waste in cost(a_run(), first, second, third)] == [80, None, None]


def test_a_consequence_belongs_to_the_episode_that_it_overlaps() -> None:
    """The first loss of gradients ended at step 20; KL 0 since 70 goes with the second, from 75 on."""
    first, second = a_finding(first_step=0, resolved_step=20), a_finding(first_step=75)
    sign = a_finding(rule="kl-stuck-at-zero", first_step=70, severity=WARNING, caused_by="gradient-lost")
    assert [waste.steps if waste else None for waste in cost(a_run(), first, second, sign)] == [20, 30, None]


def test_a_cause_that_lets_learning_go_on_carries_the_cost_of_what_it_explains() -> None:
    """Truncation is no lost step; groups without spread since step 30, which it explains, are 70 of them."""
    top = a_finding(rule="completions-truncated", severity=WARNING, first_step=5)
    dead = a_finding(
        rule="reward-variance-collapse",
        severity=WARNING,
        first_step=30,
        caused_by="completions-truncated",
        evidence={"kind": "cut off"},
    )
    assert [waste.steps if waste else None for waste in cost(a_run(), top, dead)] == [70, None]


@pytest.mark.parametrize(
    "changes",
    [
        {"rule": "step-time-regression", "severity": WARNING},
        {"severity": INFO},
        {"attempt": 2},
        {"caused_by": None, "resolved_step": 15},
    ],
)
def test_other_findings_do_not_lengthen_the_cost(changes: dict[str, object]) -> None:
    """One that costs no learning, an info, one of another attempt, one that is explained by nothing and was short."""
    sign = a_finding(**{"first_step": 2, "caused_by": "gradient-lost", "rule": "kl-stuck-at-zero", **changes})
    found = cost(a_run(), a_finding(), sign)
    assert [waste.steps if waste else None for waste in found] == [80, None]


def test_no_step_is_counted_twice() -> None:
    """Steps 20 to 100 go to the top finding; a second one has 10 to 20 left, a third nothing."""
    others = (a_finding(key="loss", first_step=10), a_finding(key="grad_norm", first_step=50))
    found = cost(a_run(), a_finding(), *others)
    assert [waste.steps if waste else None for waste in found] == [80, 10, None]


def test_a_gap_between_counted_spans_is_counted() -> None:
    """Of 10 to 100 the spans 20 to 40 and 60 to 90 are counted: 10 + 20 + 10 are left."""
    first, second = a_finding(resolved_step=40), a_finding(first_step=60, resolved_step=90)
    found = cost(a_run(), first, second, a_finding(first_step=10))
    assert [waste.steps for waste in found if waste] == [20, 30, 40]


def test_of_an_attempt_that_is_over_only_the_sure_part_counts() -> None:
    """Open since step 20 of attempt 1, fired at 30: the later attempt's steps are not its own."""
    run = a_run()
    run.begin_attempt(2, 50)
    (waste,) = cost(run, a_finding())
    assert waste is not None
    assert waste.steps == 10


def test_a_rule_of_the_users_own_costs_what_its_detector_says_and_a_condition_nothing() -> None:
    """80 steps of lost gradients, whatever the rule is called."""
    rules = (a_rule("mine", detector="gradient-lost"), a_rule("gradient-lost", when="grad_norm < 1e-9"))
    run = RunState("run", tuple(Monitor(rule, DETECTORS) for rule in rules))
    run.take_row(row(100))
    assert cost(run, a_finding(rule="mine")) == [Waste(80)]
    assert cost(run, a_finding()) == [None]


def test_the_cost_in_words_and_as_json() -> None:
    """Half an hour on 8 processes; what is not known is left out of the words and null in JSON."""
    assert cost_words(ENGLISH, Waste(80, 0.5, 4.0)) == "80 steps, 30 minutes on 8 GPUs"
    assert cost_words(ENGLISH, Waste(1)) == "1 step"
    assert cost_words(ENGLISH, Waste(1, 1 / 3600)) == "1 step, 1 second"
    assert cost_words(ENGLISH, Waste(20, 0.01, 0.01)) == "20 steps, 36 seconds"
    (reported, unmeasured) = with_waste((a_finding(), a_finding(rule="step-time-regression")), a_run(seconds=None))
    assert (wasted(reported), wasted(unmeasured)) == ({"steps": 80, "hours": None, "gpu_hours": None}, None)


@pytest.mark.parametrize("rule", ["kl-explosion", "entropy-collapse", "length-explosion", "completions-truncated"])
def test_a_collapse_costs_once_a_second_sign_agrees(rule: str) -> None:
    """Since step 20 of 100; a warning says only that somebody should look."""
    assert [waste.steps for waste in cost(a_run(), a_finding(rule=rule)) if waste] == [80]
    assert cost(a_run(), a_finding(rule=rule, severity=WARNING)) == [None]


def crash(**changes: object) -> Finding:
    """A job that died at step 100."""
    known = {"rule": "run-crashed", "evidence": {"last_step": 100}, "first_step": 100, "fired_step": 100}
    return a_finding(**{**known, **changes})


def test_a_crash_costs_the_steps_since_the_newest_checkpoint() -> None:
    """Saved at 40 and 80, on 8 processes at 36 s: 20 steps are 0.2 hours and 1.6 GPU-hours."""
    run = a_run()
    for step in (80, 40):
        run.take_checkpoint(step)
    (waste,) = cost(run, crash())
    assert waste is not None
    assert (waste.steps, waste.hours, waste.gpu_hours) == (20, pytest.approx(0.2), pytest.approx(1.6))


def test_a_crash_that_a_resume_cleared_costs_what_was_done_twice() -> None:
    """The next attempt began with step 81, whatever was saved since."""
    run = a_run()
    run.take_checkpoint(100)
    assert [waste.steps for waste in cost(run, crash(resolved_step=81, severity=WARNING)) if waste] == [20]
    assert cost(run, crash(resolved_step=101, severity=WARNING)) == [None]


def test_a_crash_before_any_checkpoint() -> None:
    """Without a sign that the run saves at all nobody knows what is left of it; one that was to save has lost all."""
    run = a_run()
    assert cost(run, crash()) == [None]
    run.take_config(RunConfig(None, None, {"save_steps": Setting(500, "args.json")}))
    assert [waste.steps for waste in cost(run, crash()) if waste] == [100]


def test_an_attempt_that_crashes_again_lost_what_it_did_itself() -> None:
    run = a_run()
    run.begin_attempt(2, 91)
    assert [waste.steps for waste in cost(run, crash(attempt=2)) if waste] == [10]


def test_a_live_stall_costs_time_and_no_step() -> None:
    """Silent for 600 s when it fired and for 3,600 s by now, on 8 processes: one hour, 8 GPU-hours."""
    stalled = a_finding(rule="run-stalled", evidence={"silent_seconds": 600.0})
    run = a_run()
    run.latest_row_time, run.now = 1000.0, 4600.0
    assert cost(run, stalled) == [Waste(0, 1.0, 8.0)]
    assert cost_words(ENGLISH, Waste(0, 1.0, 8.0)) == "60 minutes on 8 GPUs"
    (over,) = cost(run, a_finding(rule="run-stalled", evidence={"silent_seconds": 600.0}, resolved_step=100))
    assert over is not None
    assert over.hours == pytest.approx(600 / 3600)


def test_a_recorded_stall_has_no_known_cost() -> None:
    """A folder that was last written weeks ago says nothing of how long the job was alive."""
    assert cost(a_run(), a_finding(rule="run-stalled", severity=WARNING, evidence={"silent_seconds": 3e6})) == [None]


@pytest.mark.parametrize("key", ["optimizer", "rounding"])
def test_what_stands_still_in_part_wastes_nothing(key: str) -> None:
    """And its own words name the cause."""
    finding = a_finding(rule="parameters-unchanged", key=key, severity=WARNING)
    assert cost(a_run(), finding) == [None]
    assert with_causes([finding], a_run()) == (finding,)
