"""Small windows over the run's own past: the last values, their median, a running sum."""

from __future__ import annotations

import statistics
from collections import deque


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
