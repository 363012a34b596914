"""Exact zeros that mean something, and the many that do not."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import MetricRow, RunConfig, Setting, Stream
from tests.support.detecting import Watched
from tests.support.records import row


def a_row(
    step: int, kl: float | None = 0.0, rate: float = 1e-6, silent: float = 0.2, entropy: float | None = 0.5
) -> MetricRow:
    values = {"kl_reference": kl, "learning_rate": rate, "reward_zero_std_ratio": silent}
    return row(step, **values, **({} if entropy is None else {"entropy": entropy}))


def watched(**settings: float | bool) -> Watched:
    return Watched("kl-stuck-at-zero", **{"beta": 0.04, "adapter": False, **settings})


def test_fires_eight_steps_after_the_first_zero_that_proves_something() -> None:
    """Row 2 is the first after an update: 2 + 8 = 10."""
    run = watched().feed_all(a_row(step) for step in range(1, 31))
    assert run.changes == [("firing", 10, "critical")]
    assert run.said[-1].first_step == 2
    assert run.said[-1].reading.evidence["summed_learning_rate"] == pytest.approx(9 * 0.8e-6)


def test_a_logging_interval_counts_in_steps_and_in_rows() -> None:
    """Row 10 has no row before it to sum from; 20 breaches first, and the third breach is row 40."""
    run = watched().feed_all(a_row(step) for step in range(10, 60, 10))
    assert run.changes == [("firing", 40, "critical")]
    assert run.said[-1].first_step == 20


@pytest.mark.parametrize(
    ("resolution", "fired"),
    [(None, 10), (1e-8, 17), (1e-5, None)],
    ids=["true zeros", "eight decimals", "five decimals"],
)
def test_the_channels_resolution_decides_when_a_zero_counts(resolution: float | None, fired: int | None) -> None:
    """250 x (0.8e-6 x n)^2 reaches 1e-8 with n = 8 updates, that is in row 9; 1e-5 would take 250."""
    run = watched().feed_all(a_row(step)._replace(resolution=resolution) for step in range(1, 101))
    assert [step for _, step, _ in run.changes] == ([] if fired is None else [fired])


@pytest.mark.parametrize("entropy", [None, 3.7], ids=["no entropy", "no likely token"])
def test_without_likely_tokens_float32_hides_a_small_kl(entropy: float | None) -> None:
    """250 x (0.8e-6 x n)^2 reaches 6e-8 with n = 20 updates (1.6e-5), that is in row 21."""
    run = watched().feed_all(a_row(step, entropy=entropy) for step in range(1, 40))
    assert [step for _, step, _ in run.changes] == [29]


def test_an_adapter_needs_far_more_learning() -> None:
    """0.25 times the square of 2.5e-5 is 1.56e-10: reached by row 4 at 1e-5 (3e-5), by row 26 at 1e-6."""
    run = watched(adapter=True).feed_all(a_row(step, rate=1e-5, silent=0.0) for step in range(1, 31))
    assert run.changes == [("firing", 12, "critical")]
    small = watched(adapter=True).feed_all(a_row(step, rate=1e-6, silent=0.0) for step in range(1, 34))
    assert small.changes == []
    slow = watched(adapter=True).feed_all(a_row(step, rate=1e-8, silent=0.0) for step in range(1, 100))
    assert slow.changes == []


def test_any_movement_starts_over() -> None:
    """Row 5 shows 1e-9, so the episode begins at row 6 and fires at row 14."""
    run = watched().feed_all(a_row(step, 1e-9 if step == 5 else 0.0) for step in range(1, 31))
    assert run.changes == [("firing", 14, "critical")]


def test_evaluation_rows_are_not_read() -> None:
    """Evaluation of the untouched model shows KL 0 all the time."""
    rows = [a_row(step)._replace(stream=Stream.EVAL) for step in range(1, 31)]
    assert watched().feed_all(rows).changes == []


def test_another_channels_extra_keys_are_no_rows() -> None:
    """A supplement without KL neither counts as a row nor sums its learning rate: 9 updates of 0.8e-6 by row 10."""
    run = watched()
    for step in range(1, 11):
        run.feed(a_row(step), row(step, supplement=True, entropy=1.0, learning_rate=1.0))
    assert run.changes == [("firing", 10, "critical")]
    assert run.said[-1].reading.evidence["summed_learning_rate"] == pytest.approx(7.2e-6)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"beta": 0.0}, "beta is 0"), ({"sync_ref_model": True}, "on purpose")],
    ids=["no reference", "synced reference"],
)
def test_blindness_has_a_reason(settings: dict[str, float | bool], reason: str) -> None:
    """Blindness is never health."""
    run = watched(**settings).feed_all(a_row(step) for step in range(1, 31))
    assert run.changes == []
    assert reason in run.blind_reason


def test_no_learning_rate_and_no_spread_are_no_evidence() -> None:
    """Each missing piece is named."""
    without_rate = watched().feed_all(row(s, kl_reference=0.0, reward_zero_std_ratio=0.0) for s in range(1, 31))
    without_spread = watched().feed_all(row(s, kl_reference=0.0, learning_rate=1e-5) for s in range(1, 31))
    assert (without_rate.changes, without_spread.changes) == ([], [])
    assert "no learning rate" in without_rate.blind_reason
    assert "not known yet" in without_spread.blind_reason


def test_the_batchs_spread_says_nothing_of_the_groups() -> None:
    """TRL >= 0.27 logs a reward_std above 0 while every group may be dead."""
    rows = (row(s, kl_reference=0.0, learning_rate=1e-5, reward_batch_std=0.4) for s in range(1, 31))
    assert watched().feed_all(rows).changes == []


def test_a_policy_update_alone_names_what_is_missing() -> None:
    """verl 0.7 without a reference logs the update's KL only, which on-policy is 0 by design."""
    rows = [row(step, kl_policy_update=0.0, learning_rate=1e-5, reward_zero_std_ratio=0.0) for step in range(1, 31)]
    run = Watched("kl-stuck-at-zero").feed_all(rows)
    assert run.changes == []
    why_not = run.monitor.detector.blind_because(run.state)
    assert (why_not or "").startswith("kl_reference is not logged; without it this needs several optimizer steps")
    reported = Watched("kl-stuck-at-zero", num_iterations=2).feed_all(rows)
    assert reported.changes == [("firing", 10, "critical")]
    assert reported.monitor.detector.blind_because(reported.state) is None


@pytest.mark.parametrize(
    ("framework", "why"),
    [
        ("trl", "trl logs it even when beta is 0"),
        ("grpo-watch", "this file does not show whether beta is 0"),
        (None, "this file does not show whether beta is 0"),
    ],
)
def test_what_leaves_beta_open_is_reported(framework: str | None, why: str) -> None:
    run = Watched("kl-stuck-at-zero").feed(RunConfig(framework, None, {}))
    run.feed_all(a_row(step) for step in range(1, 13))
    assert run.said[-1].reading.message == f"KL is exactly 0; {why}: set it with --set beta=… to have this judged"


def test_beta_settles_the_severity() -> None:
    """Unknown: an info that asks. Said later: the page. Implied by the framework: the page at once."""
    run = Watched("kl-stuck-at-zero", adapter=False).feed_all(a_row(step) for step in range(1, 13))
    assert run.changes == [("firing", 10, "info")]
    assert "--set beta" in run.said[-1].reading.message
    run.feed(RunConfig("trl", None, {"beta": Setting(0.04, "--set")}), a_row(13))
    assert run.changes[-1] == ("firing", 13, "critical")
    implied = Watched("kl-stuck-at-zero", adapter=False, kl_implies_beta=True)
    implied.feed_all(a_row(step) for step in range(1, 13))
    assert implied.changes == [("firing", 10, "critical")]


@pytest.mark.parametrize(
    ("before", "severity"),
    [(0.004, "critical"), (1e-9, "info")],
    ids=["measured", "arithmetic"],
)
def test_a_kl_measured_before_shows_that_it_is_computed(before: float, severity: str) -> None:
    """A framework that prints 0 without a reference prints nothing else; 6e-8 is what arithmetic alone can show."""
    run = Watched("kl-stuck-at-zero")
    run.feed_all(row(step, kl_reference=before, learning_rate=1e-6, reward_zero_std_ratio=0.2) for step in range(1, 11))
    run.feed_all(a_row(step) for step in range(11, 40))
    assert {change[2] for change in run.changes} == {severity}


@pytest.mark.parametrize(
    ("also", "rewards", "severity"),
    [
        ({"reward_zero_std_ratio": 0.2}, (0.4, 0.4, 0.4), {"critical"}),
        ({}, (0.3, 0.4, 0.5), {"warning"}),
        ({}, (0.4, 0.4, 0.4), set()),
    ],
    ids=["groups differ", "rewards vary", "nothing known"],
)
def test_a_kl_that_was_measured_needs_no_learning_rate(
    also: dict[str, float], rewards: tuple[float, ...], severity: set[str]
) -> None:
    """A warm-up can't explain a KL that was 0.004 and is 0 for thirty rows; twenty count where groups are not known."""
    run = Watched("kl-stuck-at-zero")
    for step in range(1, 41):
        run.feed(row(step, kl_reference=0.004 if step <= 10 else 0.0, reward_mean=rewards[step % 3], **also))
    assert {change[2] for change in run.changes} == severity


def test_a_kl_that_comes_and_goes_was_not_lost() -> None:
    """Printed with four decimals it shows late; skipped batches have none; a new reference starts at 0."""

    def fed(kls: list[float], **also: float) -> Watched:
        run = Watched("kl-stuck-at-zero")
        for step, kl in enumerate(kls, start=1):
            run.feed(row(step, kl_reference=kl, reward_mean=(0.3, 0.4, 0.5)[step % 3], entropy=0.5123, **also))
        return run

    known = {"reward_zero_std_ratio": 0.2}
    assert fed([0.0, 0.0, 0.0001, *[0.0] * 27, *[0.0001, 0.0002] * 5], **known).changes == []
    assert fed([*[0.0] * 9, *[0.01] * 20, *[0.0] * 26, *[0.01] * 9], **known).changes == []
    assert fed([*[0.01] * 9, *[0.0] * 40], loss=0.0).changes == []


def test_a_resume_sums_again() -> None:
    """The second attempt's first row proves nothing again: pending at 22, firing at 30."""
    run = watched().feed_all(a_row(step, 1e-6) for step in range(1, 21))
    run.feed_all(a_row(step)._replace(attempt=2) for step in range(21, 40))
    assert run.changes == [("firing", 30, "critical")]


def test_a_slow_healthy_run_of_a_policy_that_is_sure_begins_with_exact_zeros() -> None:
    """TRL 0.15.2, full fine-tuning at 1e-7: KL by row. A likely token shows nothing of a change below 2e-5."""
    recorded = [0.0] * 9 + [1.4e-9, 0.0, 0.0, 1.7e-10, 0.0, 3.1e-9, 1.1e-9, 5e-10, 4.1e-9, 1.6e-8, 9.1e-9]
    run = watched().feed_all(a_row(step, kl, rate=1e-7, silent=0.0) for step, kl in enumerate(recorded, 1))
    assert run.changes == []
    half = watched().feed_all(a_row(step, 0.0, rate=5e-8, silent=0.0) for step in range(1, 16))
    assert half.said == []


def test_what_is_trained_settles_the_severity() -> None:
    """From a console alone a zero after 8e-6 proves something of full training only: 0.25 x (8e-6)^2 is 1.6e-11."""
    run = Watched("kl-stuck-at-zero", beta=0.04).feed_all(a_row(step) for step in range(1, 13))
    assert run.changes == [("firing", 10, "warning")]
    assert "--set adapter=true" in run.said[-1].reading.message
    run.feed(RunConfig("trl", None, {"adapter": Setting(False, "--set")}), a_row(13))
    assert run.changes[-1] == ("firing", 13, "critical")


def test_an_unknown_adapter_is_no_excuse_for_ever() -> None:
    """0.25 x (0.8e-5 x n)^2 reaches 1.5e-10 with n = 4 updates, in row 5: by row 10 it is sure either way."""
    run = Watched("kl-stuck-at-zero", beta=0.04).feed_all(a_row(step, rate=1e-5) for step in range(1, 13))
    assert run.changes == [("firing", 10, "critical")]


def test_rounded_numbers_say_so_themselves() -> None:
    """A logger that rounds to four decimals: 250 x (0.8e-5 x n)^2 reaches 1e-4 with n = 80 updates, in row 81."""
    more = {"completion_length_mean": 31.2345, "grad_norm": 0.4321, "reward_mean": 1.2346}
    rows = [a_row(step, rate=1e-5)._replace(values={**a_row(step, rate=1e-5).values, **more}) for step in range(1, 101)]
    assert [step for _, step, _ in watched().feed_all(rows).changes] == [89]
    full = [each._replace(values={**each.values, "grad_norm": 0.4321098765}) for each in rows]
    assert [step for _, step, _ in watched().feed_all(full).changes] == [10]


@pytest.mark.parametrize(
    ("kl", "adapter", "fired"),
    [
        (1e-6, False, 16),  # 250 x (n x 1e-4)^2 / 100 is above 1e-6 from n = 7 updates on, that is in row 8
        (1e-6, True, None),  # 0.25 x (40 x 1e-4)^2 / 100 is 4e-8
        (1e-4, False, None),  # a policy that has moved is at 0.01, whatever the rates sum to
    ],
)
def test_a_kl_far_below_what_the_learning_rates_give(kl: float, adapter: object, fired: int | None) -> None:
    """A clip below Adam's epsilon leaves a KL of 1e-6 after 60 steps (TRL 1.16.0); a healthy one is at 0.1."""
    run = watched(adapter=bool(adapter)).feed_all(a_row(step, kl=kl, rate=1e-4, silent=0.0) for step in range(1, 41))
    assert run.changes == ([("firing", fired, "warning")] if fired else [])


def test_a_reward_that_rises_shows_that_the_policy_moves() -> None:
    """Then it is the reference that moves with it: a warning, and another fix."""
    rows = [row(step, **{**a_row(step).values, "reward_mean": 0.02 * step}) for step in range(1, 31)]
    run = watched().feed_all(rows)
    assert run.changes == [("firing", 10, "warning")]
    reading = run.said[-1].reading
    assert reading.message.endswith("so the policy moves: the reference is the policy itself, or follows it")
    assert "its own copy" in reading.hint


def test_one_kl_on_ten_rows_is_a_placeholder_or_a_policy_that_stands_still() -> None:
    """Rows ten to twelve breach; with a loss of exactly 0 beside it nothing is trained."""
    rows = [row(step, kl_reference=0.018731, loss=0.0, entropy=1.0) for step in range(1, 22)]
    assert Watched("kl-stuck-at-zero").feed_all(rows).changes == [("firing", 12, "critical")]
    lively = [each._replace(values={**each.values, "loss": 0.01 * each.step}) for each in rows]
    assert Watched("kl-stuck-at-zero").feed_all(lively).changes == [("firing", 12, "warning")]


@pytest.mark.parametrize(("kl", "resolution"), [(10.0, None), (0.02, None), (0.0187, 1e-4), (9.8765, None)])
def test_one_kl_may_be_rounded_or_clamped(kl: float, resolution: float | None) -> None:
    rows = [row(step, kl_reference=kl, loss=0.0)._replace(resolution=resolution) for step in range(1, 31)]
    assert Watched("kl-stuck-at-zero").feed_all(rows).changes == []
