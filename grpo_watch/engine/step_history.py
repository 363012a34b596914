"""One metric by step, for joins of rows with batches and checkpoints in whichever order they arrive."""

from __future__ import annotations

from bisect import bisect_right

BATCHES_AHEAD = 1024
"""Batches or checkpoints that may arrive before the rows of their steps …"""
ROWS_AHEAD = 4096
"""… and rows that may arrive before the batches or checkpoints: a join must not depend on which came first."""


class StepHistory:
    """One metric by step: what it was at a step, and its highest until then, in whichever order they arrived.

    Keeps ``size`` values (and an eighth more at times); of what is older only the highest is known. Steps may arrive
    out of order.
    """

    __slots__ = ("_older", "size", "steps", "values")

    def __init__(self, size: int) -> None:
        self.size = size
        self.steps: list[int] = []
        self.values: list[float] = []
        self._older = 0.0

    def push(self, step: int, value: float) -> None:
        """Add the value of a step. What is too old goes in pieces: moving a long list on every row is dear."""
        if not self.steps or step >= self.steps[-1]:
            self.steps.append(step)
            self.values.append(value)
        else:
            place = bisect_right(self.steps, step)
            self.steps.insert(place, step)
            self.values.insert(place, value)
        self._let_go()

    def _let_go(self) -> None:
        """Forget what is too old, once that is enough to be worth it."""
        old = len(self.steps) - self.size
        if old > self.size // 8:
            self._older = max(self._older, *self.values[:old])
            del self.steps[:old], self.values[:old]

    def at(self, step: int) -> float | None:
        """The newest value at or before ``step``; None where there is none."""
        place = bisect_right(self.steps, step)
        return self.values[place - 1] if place else None

    def highest(self, step: int) -> float:
        """The highest value at or before ``step``, at least 0."""
        return max(self._older, *self.values[: bisect_right(self.steps, step)], 0.0)
