"""Since when a reward function gives one and the same score."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_watch.engine.evidence import FLOAT_NOISE

LEAST_ROWS = 4
"""Fewest rows, if together they average as many generations as are asked for."""


def enough_rows(rows: int, batches: float, least: int) -> bool:
    """Whether so many rows without change, of ``batches`` generations each, are enough."""
    return rows >= min(least, LEAST_ROWS) and rows * batches >= least


@dataclass(slots=True)
class Still:
    """Since when a function has been constant, at which value, and its range so far.

    ``cut`` says whether nearly all completions of these rows were cut off.
    """

    value: float
    first_step: int
    rows: int = 1
    lowest: float = float("inf")
    highest: float = float("-inf")
    fired: bool = False
    cut: bool = True

    def restart(self, value: float, step: int) -> None:
        """The value changed."""
        self.value, self.first_step, self.rows = value, step, 1

    def moves(self, value: float, std: float | None, tolerance: float) -> bool:
        """Whether this row has another value, or completions that score apart."""
        return self.rows == 0 or abs(value - self.value) > tolerance or (std is not None and std > FLOAT_NOISE)

    def move(self, value: float, std: float | None, step: int) -> None:
        """Take such a row."""
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.restart(value, step)
        self.rows = int(std is None or std <= FLOAT_NOISE)
