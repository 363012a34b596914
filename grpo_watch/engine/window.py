"""Windows over a run's own past, and statistics of them that are robust to single outliers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from functools import reduce
from math import sqrt
from operator import add
from statistics import median


def plain_sum(values: Iterable[float]) -> float:
    """The sum from left to right, each addition rounded. ``sum()`` compensates for rounding from Python 3.12 on."""
    return reduce(add, values, 0)


BATCHES_AHEAD = 1024
"""Batches or checkpoints that may arrive before the rows of their steps …"""
ROWS_AHEAD = 4096
"""… and rows that may arrive before the batches or checkpoints: a join must not depend on which came first."""


class StepHistory:
    """One metric by step: its value at a step, and its highest value until then, in any order of arrival.

    Keeps ``size`` values (and an eighth more at times); of older ones only the highest is known. Steps may arrive out
    of order.
    """

    __slots__ = ("_older", "size", "steps", "values")

    def __init__(self, size: int) -> None:
        self.size = size
        self.steps: list[int] = []
        self.values: list[float] = []
        self._older = 0.0

    def push(self, step: int, value: float) -> None:
        """Add the value of a step; old values are dropped in batches, since moving a long list on every row is slow."""
        if not self.steps or step >= self.steps[-1]:
            self.steps.append(step)
            self.values.append(value)
        else:
            place = bisect_right(self.steps, step)
            self.steps.insert(place, step)
            self.values.insert(place, value)
        old = len(self.steps) - self.size
        if old > self.size // 8:
            self._older = max(self._older, *self.values[:old])
            del self.steps[:old], self.values[:old]

    def at(self, step: int) -> float | None:
        """The newest value at or before ``step``, or None."""
        place = bisect_right(self.steps, step)
        return self.values[place - 1] if place else None

    def highest(self, step: int) -> float:
        """The highest value at or before ``step``, at least 0."""
        return max(self._older, *self.values[: bisect_right(self.steps, step)], 0.0)


class Window:
    """The last ``size`` finite numbers; ``full`` once so many are in, ``first`` the median of the first ones."""

    __slots__ = ("_ordered", "first", "full", "total", "values")

    def __init__(self, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)
        self._ordered: list[float] | None = None  # kept sorted once a median was asked for
        self.total = 0.0
        self.full = False
        self.first: float | None = None

    def __len__(self) -> int:
        return len(self.values)

    def push(self, value: float) -> None:
        """Add a number; the oldest goes when the window is full."""
        if self.full:
            self.total -= self.values[0]
        if self._ordered is not None:
            if self.full:
                del self._ordered[bisect_left(self._ordered, self.values[0])]
            insort(self._ordered, value)
        self.total += value
        self.values.append(value)
        if not self.full and len(self.values) == self.values.maxlen:
            self.full, self.first = True, median(self.values)

    def mean(self) -> float | None:
        """Arithmetic mean; None while empty."""
        return round(self.total / len(self.values), 12) if self.values else None

    def median(self) -> float | None:
        """Median; None while empty."""
        if not self.values:
            return None
        if self._ordered is None:
            self._ordered = sorted(self.values)
        middle, odd = divmod(len(self._ordered), 2)
        return self._ordered[middle] if odd else (self._ordered[middle - 1] + self._ordered[middle]) / 2


TINY = 1e-30
"""Product of two sums of squares below which a series counts as constant (rounding of equal floats)."""


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """Median slope over all pairs of points with different abscissae (0.0 without a pair)."""
    slopes = [
        (points[j][1] - points[i][1]) / (points[j][0] - points[i][0])
        for i in range(len(points))
        for j in range(i + 1, len(points))
        if points[j][0] != points[i][0]
    ]
    return median(slopes) if slopes else 0.0


def correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's correlation of two series of equal length (0.0 if one of them is constant)."""
    mean_left, mean_right = plain_sum(left) / len(left), plain_sum(right) / len(right)
    off_left, off_right = [value - mean_left for value in left], [value - mean_right for value in right]
    squares = plain_sum([value * value for value in off_left]) * plain_sum([value * value for value in off_right])
    if squares <= TINY:
        return 0.0
    return plain_sum([a * b for a, b in zip(off_left, off_right, strict=True)]) / sqrt(squares)


def deviation(values: Sequence[float]) -> float:
    """Standard deviation estimated from the median absolute deviation (1.4826 MAD)."""
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values])


def spread(ordered: Sequence[float]) -> float:
    """Standard deviation estimated from the quartiles of sorted values: a quarter of the work of ``deviation``."""
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / 1.349


def explained(points: Sequence[tuple[float, float]]) -> float:
    """Share of the variance that a straight line explains (r squared)."""
    return correlation([x for x, _ in points], [y for _, y in points]) ** 2


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 0 up; equal ones share the mean of their ranks."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
