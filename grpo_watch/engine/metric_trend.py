"""Tracks of one metric: newest values against the first and extreme means, over few and over many rows; its noise."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import comb, sqrt
from statistics import median

from grpo_watch.engine.evidence import FLOAT_NOISE
from grpo_watch.engine.window import plain_sum

NOISE_FACTOR = 6.0
"""A fall of the reward must exceed this many standard errors of the difference of two means: the extremes of 100,000
noisy rows lie about 8 standard errors of one mean apart."""
ROWS = 25
"""Rows averaged. One group of a few completions per row (the usual single-GPU run) has noise the size of the reward
itself: 0.76 at a best of 2.4, 0.23 at 0.78 in two public runs. A mean of 5 rows can't show that it is lost."""
BEGINNING = 5
"""Rows that give the run's start: over ``ROWS`` of them half of the gain may have passed."""
SPREADS = 1.5
"""Multiple of the standard deviation of completions' rewards from which a fall counts as large. Collapses of three
public runs: 2.9 to 4.4; healthy real runs: 1.5 once (a resume that kept half of its gain), else 0.8. Rewards of 0 and 1
with a deviation of 0.5 must fall by 0.75."""


class LongMean:
    """The ``mean`` of the newest ``ROWS`` values (None until they are in); ``highest`` is the best so far.

    ``start`` is the mean of the first ``BEGINNING`` values.
    """

    __slots__ = ("_total", "_values", "highest", "mean", "start")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=ROWS)
        self._total = 0.0
        self.start: float | None = None
        self.mean: float | None = None
        self.highest = float("-inf")

    def push(self, value: float) -> None:
        """Take the value of a row."""
        if len(self._values) == ROWS:
            self._total -= self._values[0]
        self._values.append(value)
        self._total += value
        if len(self._values) == BEGINNING:
            self.start = self._total / BEGINNING
        elif len(self._values) == ROWS:
            self.mean = mean = self._total / ROWS
            self.highest = max(self.highest, mean)

    def fell(self, share: float, noise: float, newest: float, spread: float) -> bool:
        """Whether ``share`` of the best mean (or of the gain) is lost, beyond what a row's ``noise`` explains.

        ``newest`` is the mean of the last few rows, which may have recovered. ``spread`` as in ``lost``.
        """
        if self.mean is None or self.start is None:
            return False
        fell = self.highest - max(self.mean, newest)
        if fell < NOISE_FACTOR * noise * sqrt(2.0 / ROWS):
            return False
        return 0.0 < lost(self.highest, self.highest - self.start, share, spread) <= fell


def lost(best: float, gain: float, share: float, spread: float) -> float:
    """How far a reward must fall to have lost ``share`` of its best (or of its gain since the start).

    A best at or below zero has no natural scale: it must at least double, or lose ``share`` of the gain. If a constant
    is added to every reward, zero means nothing. So a fall also counts that is ``SPREADS`` times the largest ``spread``
    of single completions (negative: unknown) and takes ``share`` of the gain.
    """
    from_zero = share * max(best, gain) if best > 0.0 else max(-best, share * gain)
    scale = from_zero if spread < 0.0 else min(from_zero, max(SPREADS * spread, share * gain))
    return scale if scale > FLOAT_NOISE else 0.0  # rewards centred over the batch: a mean of 1e-9 is rounding


WIDTH = 5
"""Values (rows that carry the metric) over which the newest, first and extreme means are taken."""
LEAST_STEPS = 7
"""Steps between rows needed to know the noise of the reward."""
LAST = 3
"""Rows at the end of a log that suffice to show a fall."""
CHANCE = 0.01
"""Chance from which so many rows without spread are no sign: a demo on two completions a step has 4 of 5 such rows in a
row while it learns (its usual share is 0.4)."""
WHOLE = frozenset({0.0, 1.0})
EDGE = 0.05
"""Share of the run's own range of rewards that counts as its top or bottom."""
NEARLY_ALL = 0.02
"""Distance from 1 within which a mean of 0/1 rewards means solved prompts: one completion in fifty is wrong."""


VARIED = 3
"""Different mean rewards among the newest ``WIDTH``: one text per prompt gives one number, or a few."""


def at_maximum(rewards: Sequence[float], lowest: float, highest: float) -> bool:
    """Whether these rewards are a maximum: above 0, at the top of the run's range, and of 0…1 or without a dip.

    False for a reward that never left its first value, and for one that still rises.
    """
    if not rewards or highest <= FLOAT_NOISE or highest - lowest <= FLOAT_NOISE:
        return False
    top = highest - EDGE * (highest - lowest)
    known = lowest >= 0.0 and abs(highest - 1.0) <= NEARLY_ALL
    return median(rewards) >= min(top, 1.0 - NEARLY_ALL) if known else min(rewards) >= top


class MetricTrend:
    """One metric's newest ``WIDTH`` values against the run's first and extreme means.

    ``mean`` is that of the newest values (None until ``WIDTH`` are in), ``start`` the first such mean, ``highest`` and
    ``lowest`` the extremes so far, ``first`` the very first value.
    """

    __slots__ = ("first", "highest", "lowest", "mean", "newest", "start")

    def __init__(self) -> None:
        self.newest: deque[float] = deque(maxlen=WIDTH)
        self.first: float | None = None
        self.mean: float | None = None
        self.start: float | None = None
        self.highest = float("-inf")
        self.lowest = float("inf")

    def push(self, value: float) -> None:
        """Take the value of a row."""
        newest = self.newest
        newest.append(value)
        if len(newest) == WIDTH:
            a, b, c, d, e = newest  # as ``plain_sum`` adds them, in a third of the time
            self.mean = mean = (0.0 + a + b + c + d + e) / WIDTH
            if mean > self.highest:  # noqa: PLR1730 - max() takes three times as long, on every row
                self.highest = mean
            if mean < self.lowest:  # noqa: PLR1730
                self.lowest = mean
            if self.start is None:
                self.start = mean
        if self.first is None:
            self.first = value

    def ratio(self, reference: float | None) -> float:
        """The newest mean as a multiple of ``reference``; 1 while unknown or if the reference is not positive."""
        return 1.0 if self.mean is None or reference is None or reference <= 0.0 else self.mean / reference

    def moved(self, times: float) -> bool:
        """Whether mean and median of the newest values are both ``times`` the first mean, or beyond."""
        if self.mean is None or self.start is None or self.start <= 0.0:
            return False
        bar = times * self.start
        if times > 1.0:
            return self.mean >= bar and median(self.newest) >= bar
        return self.mean <= bar and median(self.newest) <= bar

    def rewind(self) -> None:
        """Begin a new attempt: start and extremes stay, the newest values go."""
        self.newest.clear()
        self.mean = None


class CountedTrend(MetricTrend):
    """A track of shares that also keeps the ``total`` of all ``rows``; ``whole``: each was 0 or 1."""

    __slots__ = ("rows", "total", "whole")

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.total, self.whole = 0, 0.0, True

    def push(self, value: float) -> None:
        """Take the value of a row."""
        super().push(value)
        self.rows += 1
        self.total += value
        self.whole = self.whole and value in WHOLE

    def by_chance(self) -> bool:
        """Whether chance may give rows of one group each (shares of 0 or 1) a mean this high, by their usual share.

        False for rows of several groups, or for fewer than ``WIDTH`` values.
        """
        if not self.whole or len(self.newest) < WIDTH:
            return False
        ones = round(plain_sum(self.newest))
        usual = (self.total - ones + 1) / (self.rows - WIDTH + 2)
        chances = [comb(WIDTH, n) * usual**n * (1 - usual) ** (WIDTH - n) for n in range(ones, WIDTH + 1)]
        return plain_sum(chances) > CHANCE


class NoisyTrend(MetricTrend):
    """A track with its ``noise``: a row's standard deviation, from the differences between rows; 0 while unknown.

    Differences are used instead of distances from a mean, so that a trend hardly counts; squared, because sparse
    rewards come in rare large jumps. ``rows`` counts the differences so far.
    """

    __slots__ = ("_before", "_squares", "noise", "rows")

    def __init__(self) -> None:
        super().__init__()
        self._before: float | None = None
        self.rows = 0
        self.noise = self._squares = 0.0

    def push(self, value: float) -> None:
        """Take the value of a row."""
        super().push(value)
        if self._before is not None:
            self.rows += 1
            self._squares += (value - self._before) * (value - self._before)  # a power would raise on overflow
            self.noise = sqrt(self._squares / self.rows / 2.0)  # a difference of two rows has twice a row's variance
        self._before = value

    def rewind(self) -> None:
        """Begin a new attempt; the noise stays known."""
        super().rewind()
        self._before = None


class RewardTrend(NoisyTrend):
    """The track of the reward; ``spread`` tracks the standard deviation of single completions' rewards.

    A constant added to all rewards does not change it. ``same`` counts the newest rows with an identical reward,
    ``same_before`` the most such rows before them.
    """

    __slots__ = ("same", "same_before", "spread")

    def __init__(self) -> None:
        super().__init__()
        self.spread = MetricTrend()
        self.same = self.same_before = 0

    def push(self, value: float) -> None:
        """Take the value of a row."""
        if value == self._before:
            self.same += 1
        else:
            self.same, self.same_before = 1, max(self.same, self.same_before)
        super().push(value)

    @property
    def varies(self) -> bool:
        """Whether the newest rewards have ``VARIED`` different values and are no maximum.

        Groups with a signal give such rewards; so do flat groups of changing prompts.
        """
        return len(set(self.newest)) >= VARIED and not self.solved

    @property
    def solved(self) -> bool:
        """Whether the newest rewards are a maximum, as of solved prompts."""
        return self.mean is not None and at_maximum(self.newest, self.lowest, self.highest)

    @property
    def beyond_noise(self) -> float:
        """The least difference between two means of ``WIDTH`` rows that noise does not explain."""
        return NOISE_FACTOR * self.noise * sqrt(2.0 / WIDTH)

    def fell(self, share: float) -> bool:
        """Whether the newest rows have lost ``share`` of the best, beyond a known noise."""
        return self.rows >= LEAST_STEPS and self.below_best(share, NOISE_FACTOR)

    def below_best(self, share: float, errors: float) -> bool:
        """Whether the newest mean and median both lie ``share`` of the best level (or of the gain) below the best.

        They must also lie ``errors`` standard errors below it.
        """
        if self.mean is None or self.start is None:
            return False
        noise = errors * self.noise * sqrt(2.0 / WIDTH)
        if self.highest - self.mean < noise:
            return False
        fell = self.highest - max(self.mean, median(self.newest))
        return fell >= noise and 0.0 < self.scale(share) <= fell

    def ends_low(self, share: float, errors: float = NOISE_FACTOR) -> bool:
        """Whether each of the newest ``LAST`` rows lies ``share`` and ``errors`` standard errors below the best."""
        if self.start is None or self.rows < LEAST_STEPS or len(self.newest) < LAST:
            return False
        scale, lost = self.scale(share), self.highest - max(list(self.newest)[-LAST:])
        return 0.0 < scale <= lost and lost >= errors * self.noise * sqrt(1.0 / LAST + 1.0 / WIDTH)

    def scale(self, share: float) -> float:
        """How far below the best a loss of ``share`` of it lies; 0 while there is no best."""
        if self.start is None:
            return 0.0
        return lost(self.highest, self.highest - self.start, share, self.spread.highest)

    def gained(self) -> bool:
        """Whether the newest mean is clearly above the start and has kept at least half of the best gain."""
        if self.mean is None or self.start is None:
            return False
        gain = self.highest - self.start
        return gain > self.beyond_noise and self.mean >= self.start + gain / 2

    def rewind(self) -> None:
        """Begin a new attempt; noise and spread stay known."""
        super().rewind()
        self.spread.rewind()
