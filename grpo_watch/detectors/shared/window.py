"""Small windows over the run's own past: the last values, their median, a running sum."""

from __future__ import annotations

import statistics
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator


class Window:
    """The last ``size`` finite numbers; ``full`` once so many are in."""

    __slots__ = ("full", "total", "values")

    def __init__(self, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)
        self.total = 0.0
        self.full = False

    def __len__(self) -> int:
        return len(self.values)

    def push(self, value: float) -> None:
        """Add a number; the oldest goes when the window is full."""
        if self.full:
            self.total -= self.values[0]
        self.total += value
        self.values.append(value)
        self.full = len(self.values) == self.values.maxlen

    def mean(self) -> float | None:
        """Arithmetic mean; None while empty."""
        return round(self.total / len(self.values), 12) if self.values else None

    def median(self) -> float | None:
        """Median; None while empty."""
        return statistics.median(self.values) if self.values else None


class SortedWindow:
    """The last ``size`` numbers with their median at hand: for medians that every row asks for."""

    __slots__ = ("_ordered", "_values", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: deque[float] = deque()
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[float]:
        """The numbers in ascending order."""
        return iter(self._ordered)

    def push(self, value: float) -> None:
        """Add a number; the oldest goes when the window is full."""
        self._values.append(value)
        insort(self._ordered, value)
        if len(self._ordered) > self.size:
            del self._ordered[bisect_left(self._ordered, self._values.popleft())]

    def median(self) -> float | None:
        """Median; None while empty."""
        ordered, count = self._ordered, len(self._ordered)
        if not count:
            return None
        return ordered[count // 2] if count % 2 else (ordered[count // 2 - 1] + ordered[count // 2]) / 2
