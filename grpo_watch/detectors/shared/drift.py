"""Signs of a slow degradation: each too small to alarm on its own, judged together against the run's own past."""

from __future__ import annotations

from enum import Enum
from math import sqrt
from statistics import median

from grpo_watch.engine.metric_trend import BEGINNING, NOISE_FACTOR, ROWS, WIDTH, MetricTrend
from grpo_watch.engine.trend import Trend

LOSS = 0.3
"""Share of the best reward (or of the gain) that is lost: half of what ``reward-collapse`` asks for."""
ERRORS = 4.0
"""Standard errors by which the reward fell below its best (six where the reward is judged alone)."""
START_ERRORS = 3.0
"""Standard errors below the first rows, which no search for extremes has chosen."""
BELOW = 0.1
"""Share of the first reward that is lost at least where it is called lower than at the start."""
CUT, CUT_RISE, CUT_FAR = 0.2, 0.2, 0.4
"""Share of completions at the length limit, its rise above the lowest mean, and the share that counts beside a reward
that is merely flat. A healthy public run went from 0 to 0.3 at twice the length, at its best reward; the runs that
degraded with a flat reward cut off 0.5 and more."""
GREW, GREW_FAR = 2.0, 3.0
"""Multiples of the first length. Healthy real runs without a gain: 2.1, with nothing cut off."""
GREW_CUT, CUT_HALF = 1.5, 0.5
"""The multiple that counts where the limit cuts off half of the completions: it hides further growth."""
SHRANK, SHRANK_FAR = 0.45, 0.3
"""The same for shrinking; healthy real runs go down to 0.43, with a rising reward."""
ENTROPY_LOW, ENTROPY_HIGH = 0.4, 2.0
"""Multiples of the first entropy. Solved runs go far below, with a reward that does not fall."""
LEAST_ENTROPY = 0.02
"""First entropy (nats per token) below which a fall says nothing (as ``entropy-collapse``)."""
KL_TIMES, KL_FLOOR = 5.0, 0.5
"""Multiple of the least mean KL, and nats per token below which a rise is normal."""


class DriftSign(str, Enum):
    """One harmful direction, in words that complete a message."""

    REWARD_FELL = "reward fell"
    REWARD_BELOW_START = "reward is below its start"
    CUT_OFF = "more completions are cut off"
    LENGTH_ROSE = "completions grew"
    LENGTH_FELL = "completions shrank"
    ENTROPY_FELL = "entropy fell"
    ENTROPY_ROSE = "entropy rose"
    KL_ROSE = "KL rose"


def drift(trend: Trend) -> frozenset[DriftSign]:
    """The signs that agree that a run degrades; empty where they don't.

    A fallen reward needs one other sign. Without one, and without a gain, these agree: growth with more completions cut
    off, unless the reward is above its start; completions far shorter at a reward below its start; two other signs
    at a reward below its start.
    """
    reward = trend.reward
    if reward.mean is None or reward.start is None:
        return frozenset()
    signs = frozenset(sign for sign, shows in _others(trend) if shows)
    if not signs:
        return signs
    if reward_lost(trend):
        return signs | {DriftSign.REWARD_FELL}
    if reward.gained():
        return frozenset()
    if signs >= {DriftSign.CUT_OFF, DriftSign.LENGTH_ROSE}:
        return signs if _far(trend) and not reward_above_start(trend) else frozenset()
    enough = len(signs) > 1 or trend.length.ratio(trend.length.start) <= SHRANK_FAR
    return signs | {DriftSign.REWARD_BELOW_START} if enough and reward_below_start(trend) else frozenset()


def _far(trend: Trend) -> bool:
    """Whether growth and cutting went far enough to count while nothing of the reward is lost."""
    return trend.length.ratio(trend.length.start) >= GREW_FAR or (trend.truncated.mean or 0.0) >= CUT_FAR


def reward_lost(trend: Trend) -> bool:
    """Whether ``LOSS`` of the best reward is lost, in means of few rows or of many."""
    reward, long = trend.reward, trend.long_reward
    if reward.mean is None:
        return False
    scale, lost = reward.scale(LOSS), reward.highest - max(reward.mean, median(reward.newest))
    if scale > 0.0 and lost >= max(scale, ERRORS * reward.noise * sqrt(2.0 / WIDTH)):
        return True
    noise = reward.noise * ERRORS / NOISE_FACTOR
    return long.mean is not None and long.fell(LOSS, noise, reward.mean, reward.spread.highest)


def reward_below_start(trend: Trend) -> bool:
    """Whether the reward is ``BELOW`` lower than in the first rows, in means of few rows or of many."""
    reward, long = trend.reward, trend.long_reward
    if reward.mean is None or reward.start is None:
        return False
    least = BELOW * abs(reward.start)
    if least == 0.0:
        return False
    error = START_ERRORS * reward.noise
    if reward.start - max(reward.mean, median(reward.newest)) >= max(least, error * sqrt(2.0 / WIDTH)):
        return True
    lasting = None if long.mean is None else reward.start - max(long.mean, reward.mean)
    return lasting is not None and lasting >= max(least, error * sqrt(1.0 / BEGINNING + 1.0 / ROWS))


def reward_above_start(trend: Trend) -> bool:
    """Whether the mean of many rows lies ``BELOW`` of the first reward above it: no flat reward, though no gain yet."""
    reward, long = trend.reward, trend.long_reward
    if reward.start is None or long.mean is None:
        return False
    error = START_ERRORS * reward.noise * sqrt(1.0 / BEGINNING + 1.0 / ROWS)
    return long.mean - reward.start >= max(BELOW * abs(reward.start), error)


def more_cut_off(trend: Trend) -> bool:
    """Whether the limit cuts off clearly more completions than it once did."""
    cut = trend.truncated
    return cut.mean is not None and cut.mean >= CUT and cut.mean >= cut.lowest + CUT_RISE


def described(signs: frozenset[DriftSign]) -> str:
    """The signs as people read them, in a fixed order."""
    return ", ".join(sign.value for sign in DriftSign if sign in signs)


def _others(trend: Trend) -> tuple[tuple[DriftSign, bool], ...]:
    length, entropy, kl = trend.length, trend.entropy, trend.kl
    hidden = more_cut_off(trend) and (trend.truncated.mean or 0.0) >= CUT_HALF
    judged = entropy.start is not None and entropy.start >= LEAST_ENTROPY
    return (
        (DriftSign.CUT_OFF, more_cut_off(trend)),
        (DriftSign.LENGTH_ROSE, moved(length, GREW_CUT if hidden else GREW)),
        (DriftSign.LENGTH_FELL, moved(length, SHRANK)),
        (DriftSign.ENTROPY_FELL, judged and moved(entropy, ENTROPY_LOW)),
        (DriftSign.ENTROPY_ROSE, judged and moved(entropy, ENTROPY_HIGH)),
        (DriftSign.KL_ROSE, kl.mean is not None and kl.mean >= max(KL_FLOOR, KL_TIMES * kl.lowest)),
    )


def moved(track: MetricTrend, times: float) -> bool:
    """Whether mean and median of the newest values are both ``times`` the first mean, or beyond."""
    if track.mean is None or track.start is None or track.start <= 0.0:
        return False
    bar = times * track.start
    if times > 1.0:
        return track.mean >= bar and median(track.newest) >= bar
    return track.mean <= bar and median(track.newest) <= bar
