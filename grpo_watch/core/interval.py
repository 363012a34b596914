"""How many optimizer steps one row stands for: a mean over five generations says as much as five rows."""

from __future__ import annotations


class Interval:
    """Follows the steps of the rows: the least distance between two of them is what one stands for.

    The least, because rows may be missing, and because a detector that sleeps does not see them all.
    """

    __slots__ = ("_last", "_least")

    def __init__(self) -> None:
        self._last: int | None = None
        self._least: int | None = None

    def take(self, step: int) -> None:
        """A row of this step was logged."""
        if self._last is not None and step > self._last:
            apart = step - self._last
            self._least = apart if self._least is None else min(self._least, apart)
        self._last = step

    @property
    def steps(self) -> int:
        """Optimizer steps that a row covers; 1 until two rows have told."""
        return self._least or 1
