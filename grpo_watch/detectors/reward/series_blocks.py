"""Cuts a series into blocks of rows: the median of each, how sure it is, and the floor of the series until then."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import NamedTuple

from grpo_watch.engine.window import spread

LEAST_NOISE = 1e-3


class SeriesBlock(NamedTuple):
    """``error`` is the standard error of ``middle``; ``floor`` the lowest value so far, at most 0."""

    middle: float
    error: float
    floor: float

    def above(self, other: SeriesBlock, errors: float) -> bool:
        """Whether this block is higher than the other by so many standard errors."""
        return self.middle - other.middle > errors * max(self.error, other.error)


class SeriesBlocks:
    """The newest ``keep`` blocks of one series, and the values of the one that is being filled."""

    __slots__ = ("floor", "kept", "values")

    def __init__(self, keep: int) -> None:
        self.kept: deque[SeriesBlock] = deque(maxlen=keep)
        self.values: list[float] = []
        self.floor = 0.0

    def close(self) -> None:
        """Make a block of the values so far; nothing where there are none."""
        if not self.values:
            return
        ordered = sorted(self.values)
        self.floor = min(self.floor, ordered[0])
        # 1.25 / sqrt(n): the standard error of a median of normal values
        error = 1.25 * max(spread(ordered), LEAST_NOISE) / len(ordered) ** 0.5
        self.kept.append(SeriesBlock(median(ordered), error, self.floor))
        self.values = []

    def middles(self, back: int) -> list[float]:
        """The medians of the newest block and the ``back`` ones before it."""
        return [block.middle for block in list(self.kept)[-1 - back :]]
