"""How a run goes against its own past, and the signs that several rules share."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.evidence import no_signal_ratio
from grpo_watch.engine.metric_trend import MetricTrend, NoisyTrend, RewardTrend
from grpo_watch.engine.records import CompletionSummary, MetricRow
from grpo_watch.engine.trend import Trend, TrendSign, grown, named, shown
from tests.support.records import a_batch, row

quick = settings(derandomize=True, deadline=None, max_examples=100)


def track(*values: float) -> MetricTrend:
    made = MetricTrend()
    for value in values:
        made.push(value)
    return made


def noisy(*values: float) -> NoisyTrend:
    made = NoisyTrend()
    for value in values:
        made.push(value)
    return made


def reward(*values: float) -> RewardTrend:
    made = RewardTrend()
    for value in values:
        made.push(value)
    return made


def _take(made: Trend, each: MetricRow) -> None:
    made.add_row(each, no_signal_ratio(each))


def trend(**series: list[float]) -> Trend:
    """A course fed with rows of these metrics, all of one length."""
    made = Trend()
    for index in range(len(next(iter(series.values())))):
        _take(made, row(index + 1, **{name: values[index] for name, values in series.items()}))
    return made


def test_nothing_is_known_before_five_values() -> None:
    four = track(1.0, 2.0, 3.0, 4.0)
    assert (four.mean, four.start, four.first, four.ratio(2.0)) == (None, None, 1.0, 1.0)


def test_values_too_large_to_square_are_noise_without_bound() -> None:
    assert math.isinf(noisy(0.0, 1e200, 0.0, 1e200, 0.0, 1.0, 2.0).noise)


def test_means_of_five() -> None:
    """Means 3, 4 and 1 (of 4 5 6 -10 0): start, highest and lowest."""
    seen = track(1, 2, 3, 4, 5, 6, -10, 0)
    assert (seen.start, seen.highest, seen.mean, seen.lowest) == (3.0, 4.0, 1.0, 1.0)
    assert (seen.ratio(4.0), seen.ratio(0.0), seen.ratio(None)) == (0.25, 1.0, 1.0)


def test_a_new_attempt_keeps_the_past_and_forgets_the_newest() -> None:
    seen = track(*[4.0] * 5)
    seen.rewind()
    seen.push(100.0)
    assert (seen.mean, seen.start, seen.highest) == (None, 4.0, 4.0)


@quick
@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=60))
def test_the_newest_mean_lies_between_the_extremes(values: list[float]) -> None:
    """And memory is bounded by the width."""
    seen = track(*values)
    assert seen.mean is not None
    assert seen.lowest <= seen.mean <= seen.highest
    assert len(seen.newest) == 5


def test_noise_is_that_of_a_row_not_of_the_trend() -> None:
    """Alternating 0 and 1 steps by 1: variance 1/2. A line that rises by 0.01 has noise 0.01 / sqrt(2)."""
    assert reward(*[0.0, 1.0] * 20).noise == pytest.approx(math.sqrt(0.5))
    assert reward(*[0.01 * n for n in range(100)]).noise == pytest.approx(0.01 * math.sqrt(0.5))
    assert reward(0.3).noise == 0.0


def test_a_fall_needs_the_share_of_the_best() -> None:
    """Best 0.9; three tenths of it lost is 0.27."""
    assert reward(*[0.9] * 30, *[0.6] * 5).fell(0.3)
    assert not reward(*[0.9] * 30, *[0.64] * 5).fell(0.3)


def test_mean_and_median_must_both_have_fallen() -> None:
    """Two bad rows of five move the mean to 0.54, the median stays; after the third both are low."""
    assert not reward(*[0.9] * 30, 0.0, 0.0).fell(0.3)
    assert reward(*[0.9] * 30, 0.0, 0.0, 0.0).fell(0.3)


def test_a_best_below_zero_must_double_or_lose_the_gain() -> None:
    """From -1 to -1.9 is no fall, to -2 is one; a gain of 17 (from -20 to -3) is lost to two thirds at -14.3."""
    assert not reward(*[-1.0] * 30, *[-1.9] * 5).fell(0.5)
    assert reward(*[-1.0] * 30, *[-2.0] * 5).fell(0.5)
    up = [-20.0] * 5 + [-20.0 + 0.17 * n for n in range(101)] + [-3.0] * 60
    assert reward(*up, *[-14.3] * 5).fell(0.66)
    assert not reward(*up, *[-13.0] * 5).fell(0.66)


def test_a_reward_of_zero_all_along_never_falls() -> None:
    assert not reward(*[0.0] * 30).fell(0.3)


def test_a_fall_must_exceed_the_noise() -> None:
    """Rows of 0 and 1 have noise 0.7: five zeros in a row are chance."""
    assert not reward(*[0.0, 1.0] * 20, *[0.0] * 5).fell(0.6)


def test_eight_rows_before_a_fall_is_believed() -> None:
    assert not reward(1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0).fell(0.5)


def test_a_collapse_cannot_lower_the_best() -> None:
    assert reward(*[0.9] * 30, *[0.0] * 1000).fell(0.66)


def test_gained_means_above_the_start_beyond_noise_and_kept() -> None:
    rise = [0.5 + 0.01 * n for n in range(50)]
    assert reward(*rise).gained()
    assert not reward(*rise, *[0.6] * 5).gained(), "less than half of the gain is left"
    assert not reward(*[0.0, 1.0] * 20, *[1.0] * 5).gained(), "within the noise"


def test_signs_of_a_collapse_into_the_limit() -> None:
    """230 to 512 tokens, reward and spread gone, entropy from 0.1 to 4, KL 2."""
    fed = trend(
        reward_mean=[0.9] * 20 + [0.0] * 5,
        entropy=[0.1] * 20 + [4.0] * 5,
        completion_length_mean=[230.0] * 20 + [512.0] * 5,
        completion_truncated_ratio=[0.0] * 20 + [1.0] * 5,
        reward_zero_std_ratio=[0.2] * 20 + [1.0] * 5,
        kl_reference=[0.1] * 20 + [-2.0] * 5,
    )
    expected = {"REWARD_FELL", "ENTROPY_ROSE", "LENGTH_ROSE", "CUT_OFF", "SPREAD_LOST", "KL_HIGH"}
    assert {sign.name for sign in fed.signs()} == expected


def test_signs_of_a_collapse_to_one_word() -> None:
    fed = trend(
        entropy=[2.0] * 10 + [0.0] * 5,
        completion_length_mean=[100.0] * 10 + [2.0] * 5,
        completion_duplicate_ratio=[0.0] * 10 + [0.9] * 5,
    )
    assert {sign.name for sign in fed.signs()} == {"ENTROPY_FELL", "LENGTH_FELL", "TEXTS_REPEAT"}


def test_a_share_that_was_always_high_is_no_sign() -> None:
    """Everything is cut off, hardly a group has a spread, from the first row on."""
    assert trend(completion_truncated_ratio=[1.0] * 20, reward_zero_std_ratio=[0.9] * 20).signs() == frozenset()


def test_growing_back_is_no_growth() -> None:
    assert TrendSign.LENGTH_ROSE not in trend(completion_length_mean=[200.0] * 9 + [5.0] * 9 + [150.0] * 9).signs()


def test_growth_is_longer_than_the_start_beyond_noise() -> None:
    """From 100 down to 20 and up to 200. The steps of 80 and 180 make a variance of (6,400 + 32,400) / 14 / 2 per row,
    a noise of 37.2; three standard errors of two means of five are 70.6.
    """
    back = [100.0] * 5 + [20.0] * 5
    assert grown(noisy(*back, *[200.0] * 5), 10.0)
    assert not grown(noisy(*back, *[200.0] * 5), 10.1)
    assert not grown(noisy(*back, *[150.0] * 5), 5.0)
    assert not grown(noisy(*back, *[100.0] * 5), 5.0)


def test_the_shortest_of_many_noisy_rows_is_no_measure() -> None:
    """Three times the shortest mean of five, and 10 % longer than the first: by chance, in rows of one completion."""
    usual, shortest = [200.0, 220.0, 180.0, 240.0, 160.0] * 20, [60.0, 90.0, 50.0, 80.0, 70.0]
    assert not grown(noisy(*usual, *shortest, 90.0, 350.0, 210.0, 280.0, 170.0), 3.0)


def test_missing_null_and_nan_are_not_values() -> None:
    fed = Trend()
    for step in range(1, 20):
        _take(fed, row(step, entropy=None, kl_reference=math.nan))
    assert (fed.entropy.mean, fed.kl.mean, fed.reward.mean) == (None, None, None)


def test_batches_count_repeated_texts() -> None:
    """Two of four texts repeat, over both groups three of eight."""
    fed = Trend()
    for step in range(1, 6):
        fed.add_batch(a_batch(step, (0, 0, 1, 1), (0, 1, 2, 2)))
    fed.add_batch(CompletionSummary("completions", 9, ()))
    assert fed.repeated.mean == pytest.approx(3 / 8)


def test_a_resume_keeps_the_past_a_new_start_does_not() -> None:
    """The start is known at step 5."""
    fed = trend(reward_mean=[0.9] * 20)
    assert fed.resumed(3).reward.start is None
    kept = trend(reward_mean=[0.9] * 20).resumed(15)
    assert (kept.reward.highest, kept.reward.mean) == (pytest.approx(0.9), None)


def test_signs_are_named_in_a_fixed_order() -> None:
    assert named(frozenset({TrendSign.KL_HIGH, TrendSign.REWARD_FELL})) == "reward fell, KL is high"
    assert (shown(0.123456), shown(None)) == (0.1235, None)


@pytest.mark.parametrize(
    ("shares", "lost"),
    [
        ([0.0, 1.0, 0.0, 1.0, 0.0] * 3 + [1.0, 0.0, 1.0, 1.0, 1.0], False),
        ([0.0] * 15 + [1.0, 0.0, 1.0, 1.0, 1.0], True),
        ([0.0, 0.5, 0.4, 0.6, 0.5] * 3 + [1.0, 0.5, 1.0, 1.0, 1.0], True),
    ],
    ids=["two of five before", "never before", "several groups a row"],
)
def test_rows_of_one_group_without_spread_are_a_sign_beyond_chance(shares: list[float], *, lost: bool) -> None:
    """Four of five rows: at a usual share of 7 in 17 the chance is 9 %, at 1 in 17 it is 0.006 %."""
    trend = Trend()
    for step, share in enumerate(shares, start=1):
        trend.add_row(row(step), share)
    assert (TrendSign.SPREAD_LOST in trend.signs()) is lost
