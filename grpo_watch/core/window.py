"""Small windows over the run's own past: the last values, their median, a running sum."""

from __future__ import annotations

import statistics
from collections import deque


class History:
    """The last values of one metric by step, and its highest so far."""

    __slots__ = ("highest", "values")

    def __init__(self, size: int) -> None:
        self.values: deque[tuple[int, float]] = deque(maxlen=size)
        self.highest = 0.0

    def push(self, step: int, value: float) -> None:
        """Add the value of a step."""
        self.values.append((step, value))
        self.highest = max(self.highest, value)

    def at(self, step: int) -> float | None:
        """The newest value at or before ``step``; None where there is none."""
        return next((value for at, value in reversed(self.values) if at <= step), None)


class Window:
    """The last ``size`` numbers."""

    __slots__ = ("values",)

    def __init__(self, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self.values)

    def push(self, value: float) -> None:
        """Add a number; the oldest goes when the window is full."""
        self.values.append(value)

    @property
    def full(self) -> bool:
        """Whether ``size`` numbers are in."""
        return len(self.values) == self.values.maxlen

    def mean(self) -> float | None:
        """Arithmetic mean; None while empty."""
        return sum(self.values) / len(self.values) if self.values else None

    def median(self) -> float | None:
        """Median; None while empty."""
        return statistics.median(self.values) if self.values else None
