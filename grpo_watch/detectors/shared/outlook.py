"""What the rows of a block can bring about, from the means over a few rows that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from math import inf

from grpo_watch.engine.block import Block, spreads_of_completions
from grpo_watch.engine.evidence import spread_of_completions
from grpo_watch.engine.long_mean import SPREADS, LongMean
from grpo_watch.engine.metric_trend import MetricTrend, RewardTrend
from grpo_watch.engine.trend import CUT_OFF, ENTROPY_LOW, LENGTH_LOW, MOST, REPEATED, Trend

TRIED = 64
"""Rows that are tried one by one where the means alone exclude nothing."""
MARGIN = 1e-9
"""Share of a bound that is given away to rounding."""


def until(track: MetricTrend, metric: str, block: Block, low: float, high: float) -> int:
    """How many rows, from the first one on, leave the track's mean between two bounds, these excluded."""
    known = [] if track.mean is None else [track.mean]
    if metric not in block.values:
        return len(block) if all(low < mean < high for mean in known) else 0
    means = block.means(metric, track.means)
    if not means or (low < min(means) and max(means) < high):
        return len(block)
    without = len(block) - len(means)
    return without + next(index for index, mean in enumerate(means) if not low < mean < high)


def until_others_agree(trend: Trend, block: Block) -> int:
    """How many rows, from the first one on, show none of the signs that the run collapses (``trend.TrendSign``).

    Those are a fallen reward, completions cut off or shrunk, repeated texts and a fallen entropy.
    """
    length, entropy = trend.length, trend.entropy
    begins = entropy.start is None and "entropy" in block.values
    if begins or (length.mean is None and "completion_length_mean" in block.values):
        return 0
    shortest = LENGTH_LOW * length.highest if length.mean is not None else -inf
    if "completion_length_mean" in block.values:
        shortest = LENGTH_LOW * max(length.highest, *block.means("completion_length_mean", length.means))
    low = ENTROPY_LOW * entropy.start if entropy.start is not None and entropy.start > 0.0 else -inf
    return min(
        until_reward_falls(trend, MOST, block),
        until(trend.truncated, "completion_truncated_ratio", block, -inf, CUT_OFF),
        until(trend.repeated, "completion_duplicate_ratio", block, -inf, REPEATED),
        until(entropy, "entropy", block, low + MARGIN * abs(low) if low > -inf else low, inf),
        until(length, "completion_length_mean", block, shortest + MARGIN * abs(shortest), inf),
    )


def until_reward_falls(trend: Trend, share: float, block: Block) -> int:
    """How many rows, from the first one on, lose less than ``share`` of the reward, in means of few rows or of many.

    A mean of many rows lies among those of few, and so does the best of them.
    """
    reward, long, given = trend.reward, trend.long_reward, "reward_mean" in block.values
    if reward.mean is None or reward.start is None:
        return 0 if given else len(block)
    if given and (long.mean is None or long.start is None):
        return 0
    means = block.means("reward_mean", reward.means) if given else [reward.mean]
    best = max(reward.highest, *means)
    pairs = [(reward.highest, reward.start)]
    if long.mean is not None and long.start is not None:
        pairs.append((long.highest, long.start))
    spread = max(reward.spread.highest, 0.0) if spreads_of_completions(block.values) else reward.spread.highest
    least = min(_least_loss(low, best, low - start, share, spread) for low, start in pairs)
    least -= MARGIN * abs(best)
    return len(block) if best - min(means) < least else _first_fall(means, reward.highest, least, len(block))


def until_stuck(reward: RewardTrend, block: Block, rows: int) -> int:
    """How many rows, from the first one on, come before so many with one and the same reward."""
    same, before = reward.same, reward.newest[-1] if reward.newest else None
    for index, value in enumerate(block.values["reward_mean"]):
        same, before = same + 1 if value == before else 1, value
        if same >= rows:
            return index
    return len(block)


def until_fall(trend: Trend, block: Block, falls: Callable[[RewardTrend, LongMean], bool]) -> int:
    """How many rows of the first few leave ``falls`` false, tried on copies of the tracks that it needs."""
    reward, long = deepcopy((trend.reward, trend.long_reward))
    rewards, tried = block.values["reward_mean"], min(TRIED, len(block))
    for index, row in enumerate(block.rows(0, tried)):
        reward.push(rewards[index])
        long.push(rewards[index])
        if (spread := spread_of_completions(row)) is not None:
            reward.spread.push(spread)
        if falls(reward, long):
            return index
    return tried


def _first_fall(means: Iterable[float], best: float, least: float, rows: int) -> int:
    for index, mean in enumerate(means):
        if mean > best:
            best = mean
        elif best - mean >= least:
            return index
    return rows


def _least_loss(low: float, best: float, gain: float, share: float, spread: float) -> float:
    """No more than what must be lost (``long_mean.lost``) while the best lies between two values.

    ``gain`` is that of the lower one; the spread, if it is not negative, may become larger.
    """
    from_zero = share * max(low, gain) if low > 0.0 else max(-best, share * gain)
    return from_zero if spread < 0.0 else min(from_zero, max(SPREADS * spread, share * gain))
