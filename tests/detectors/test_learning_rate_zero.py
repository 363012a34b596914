"""Zeros of a schedule, and zeros that are none."""

from __future__ import annotations

from collections.abc import Iterable
from math import cos, pi

from tests.support.detecting import Watched
from tests.support.records import row


def fed(rates: Iterable[float], resolution: float | None = None, **settings: float) -> Watched:
    run = Watched("learning-rate-zero", **settings)
    return run.feed_all(row(s, learning_rate=r)._replace(resolution=resolution) for s, r in enumerate(rates, 1))


def test_the_third_zero_after_the_first_step_fires() -> None:
    """Step 1 may be a warm-up's; 2, 3 and 4 count."""
    assert fed([0.0] * 10).changes == [("firing", 4, "critical")]


def test_it_ends_when_a_rate_is_applied() -> None:
    """The shipped rule clears at the first positive rate."""
    assert fed([0.0] * 6 + [1e-6]).changes == [("firing", 4, "critical"), ("resolved", 7, "critical")]


def test_warm_up_and_tail_are_expected() -> None:
    """Zero at step 1 of 100 and from 95 on."""
    assert fed([0.0] + [1e-6] * 93 + [0.0] * 6, max_steps=100).changes == []
    assert fed([0.0] + [1e-6] * 90 + [0.0] * 9, max_steps=100).changes == [("firing", 94, "critical")]


def test_a_configured_warm_up_is_believed() -> None:
    """Six of its steps print 0.00000000; the seventh zero would be a fault."""
    assert fed([0.0] * 6 + [1e-6] * 5, resolution=1e-8, warmup_steps=6).changes == []
    assert fed([0.0] * 9 + [1e-6] * 5, resolution=1e-8, warmup_steps=6).changes[0] == ("firing", 9, "critical")
    assert fed([0.0] * 10 + [1e-6] * 5, warmup_ratio=0.1, max_steps=100, resolution=1e-8).changes == []


def test_a_log_that_rounds_the_rate_away_proves_nothing() -> None:
    """Three decimals print 1e-6 as 0.000, unless 0 (or 0.5) is what was asked for."""
    run = fed([0.0] * 30, resolution=1e-3)
    assert run.changes == []
    assert "rounds" in run.blind_reason
    assert fed([0.0] * 30, resolution=1e-3, learning_rate=0.0).changes == [("firing", 4, "critical")]
    assert fed([0.0] * 30, resolution=1e-3, learning_rate=0.5).changes == [("firing", 4, "critical")]


def test_a_log_that_rounds_a_decayed_rate_away_proves_nothing() -> None:
    """Three decimals print the peak of 1e-3, but not the 3e-4 that a cosine has left at two thirds of the run."""
    assert fed([0.001] * 60 + [0.0] * 34, resolution=1e-3, learning_rate=1e-3, max_steps=100).changes == []


def test_steps_that_the_loss_scaler_skips_apply_no_rate() -> None:
    """Six overflows at the start are no fault; a gradient that is finite, or a rate that was there, makes them one."""
    skipped = [row(s, learning_rate=0.0, grad_norm=float("inf")) for s in range(1, 7)]
    run = Watched("learning-rate-zero").feed(*skipped, row(7, learning_rate=1e-6, grad_norm=0.5))
    assert run.changes == []
    late = [r._replace(step=r.step + 10) for r in skipped]
    assert run.feed(*late).changes == [("firing", 13, "critical")]
    real = [row(s, learning_rate=0.0, grad_norm=0.5) for s in range(1, 7)]
    assert Watched("learning-rate-zero").feed(*real).changes == [("firing", 4, "critical")]


def test_rows_without_a_rate_say_nothing() -> None:
    """A missing key is no zero, and neither are NaN and null."""
    rows = [row(1, loss=0.0), row(2, learning_rate=float("nan")), row(3, learning_rate=None), row(4, loss=0.0)]
    run = Watched("learning-rate-zero").feed_all(rows)
    assert run.said == []
    assert not run.monitor.evaluated


def test_rounded_numbers_hide_the_rate_too_unless_it_was_printed() -> None:
    """All numbers have three decimals, so that 1e-6 prints as 0; a rate of 2e-5 among them was not rounded."""
    shown = {"grad_norm": 1.235, "reward_mean": 2.346, "entropy": 0.457, "completion_length_mean": 12.345}
    hidden = [row(step, learning_rate=0.0, **shown) for step in range(1, 20)]
    run = Watched("learning-rate-zero").feed_all(hidden)
    assert (run.changes, run.blind_reason) == ([], "this log rounds the learning rate to 0")
    printed = [row(step, learning_rate=2e-5 if step < 10 else 0.0, **shown) for step in range(1, 20)]
    assert Watched("learning-rate-zero").feed_all(printed).changes == [("firing", 12, "critical")]


def test_a_rounded_rate_is_no_early_sign() -> None:
    """0.000 in verl's console, as any usual rate is printed."""
    for resolution, shown in ((1e-3, False), (None, True)):
        run = fed([0.0] * 3, resolution=resolution)
        assert (run.monitor.detector.early_sign(run.state) is not None) is shown


def test_a_rate_that_decays_to_next_to_nothing_is_as_good_as_zero() -> None:
    """Halved at each step it is below a 10,000th of its peak after 14: 2^-13 is 1.2e-4, 2^-14 is 6e-5."""
    assert fed([1e-5 * 0.5**n for n in range(30)], max_steps=100).changes == [("firing", 17, "critical")]


def test_the_end_of_a_cosine_is_no_decay_to_nothing() -> None:
    rates = [0.5e-5 * (1 + cos(pi * step / 200)) for step in range(200)]
    assert fed(rates, max_steps=200).changes == []


def test_a_rate_that_still_rises_may_warm_up_until_half_of_the_run() -> None:
    """1e-11 more at each step, to a peak of 1e-5 that lies 10,000 runs away."""
    rates = [1e-11 * step for step in range(1, 101)]
    assert fed(rates[:49], max_steps=100, learning_rate=1e-5).changes == []
    assert fed(rates, max_steps=100, learning_rate=1e-5).changes[0][::2] == ("firing", "warning")


def test_a_warm_up_that_ends_beyond_the_run_is_no_warm_up() -> None:
    """Ten runs long, of which a tenth of the peak is reached; one of half the run is as planned."""
    run = fed([1e-6 * n / 1000 for n in range(1, 101)], max_steps=100, learning_rate=1e-6)
    assert run.changes == [("firing", 52, "warning")]  # the tail may be 0: no evidence that it trains
    assert run.headline == "The warm-up does not end within the run"
    planned = [1e-6 * min(1.0, n / 60) for n in range(1, 101)]
    assert fed(planned, max_steps=100, learning_rate=1e-6, warmup_steps=60).changes == []


def test_a_rate_that_has_risen_on_every_row_until_the_end_never_left_its_warm_up() -> None:
    """The peak is not known: from 90 of 100 steps on it would have been reached in any warm-up that was meant."""
    run = fed([1e-8 * n for n in range(101)], max_steps=100)
    assert run.changes[:1] == [("firing", 92, "warning")]  # the third from step 90 on
    assert run.headline == "The warm-up does not end within the run"
    assert fed([1e-8 * min(n, 80) for n in range(101)], max_steps=100).changes == []
    assert fed([1e-8 * n for n in range(101)]).changes == []  # it may go on for long


def test_a_rise_that_may_be_meant_is_no_endless_warm_up() -> None:
    """A cycle that begins above 0, a search by factors, and the warm-up of a resume, the only rows of the log."""
    assert fed([1e-7 + 5e-9 * n for n in range(101)], max_steps=100).changes == []
    assert fed([1e-8 * 1.05**n for n in range(101)], max_steps=100).changes == []
    resumed = [row(900 + 10 * n, learning_rate=1e-7 * (n + 1)) for n in range(8)]
    assert Watched("learning-rate-zero", max_steps=970).feed_all(resumed).changes == []
    tiny = [row(900 + n, learning_rate=1e-9 * (n + 1)) for n in range(70)]
    assert Watched("learning-rate-zero", max_steps=970).feed_all(tiny).changes == []


def test_the_end_of_a_schedule_of_known_peak_is_no_endless_warm_up() -> None:
    """A log that begins at 96 of 100 steps, where the schedule may be at any rate."""
    rows = [row(n, learning_rate=1e-8 * (n - 95)) for n in range(96, 101)]
    assert Watched("learning-rate-zero", max_steps=100, learning_rate=1e-6).feed_all(rows).changes == []


def test_a_small_rate_that_is_the_plan_is_no_fault() -> None:
    """A constant 5e-8, and a cosine to a tenth of its peak."""
    assert fed([5e-8] * 60, max_steps=60, learning_rate=5e-8).changes == []
