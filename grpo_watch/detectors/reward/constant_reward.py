"""Since when a reward function gives one and the same score, followed row by row or over a block of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from grpo_watch.engine.evidence import FLOAT_NOISE

LEAST_ROWS = 4
"""Fewest rows, if together they average as many generations as are asked for."""


@dataclass(frozen=True, slots=True)
class StillLimits:
    """What makes a function a dead one: so many rows (``batches`` generations each) within a tolerance."""

    rows: int
    batches: float
    tolerance: float

    def reached(self, rows: int) -> bool:
        """Whether so many rows without change are enough."""
        return rows >= min(self.rows, LEAST_ROWS) and rows * self.batches >= self.rows


@dataclass(slots=True)
class Still:
    """Since when a function has been constant, at which value, and its range so far."""

    value: float
    first_step: int
    rows: int = 1
    lowest: float = float("inf")
    highest: float = float("-inf")
    fired: bool = False

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

    def until_still(self, values: Sequence[float], stds: Sequence[float] | None, limits: StillLimits) -> int:
        """How many of the next rows come before one on which the function counts as dead, or lives again."""
        if self.fired:
            return 0
        if stds is not None and min(stds) > FLOAT_NOISE:
            return len(values)
        at = Still(self.value, 0, self.rows)
        for index, (value, std) in enumerate(zip(values, stds or repeat(None), strict=False)):
            if at.moves(value, std, limits.tolerance):
                at.restart(value, 0)
                at.rows = int(std is None or std <= FLOAT_NOISE)
                continue
            at.rows += 1
            if limits.reached(at.rows):
                return index
        return len(values)

    def take_all(
        self, values: Sequence[float], stds: Sequence[float] | None, steps: Sequence[int], tolerance: float
    ) -> None:
        """Take rows none of which makes the function a dead one."""
        if stds is not None and min(stds) > FLOAT_NOISE:
            self.lowest, self.highest = min(self.lowest, *values), max(self.highest, *values)
            self.move(values[-1] or 0.0, stds[-1], steps[-1])
            return
        for value, std, step in zip(values, stds or repeat(None), steps, strict=False):
            if self.moves(value, std, tolerance):
                self.move(value or 0.0, std, step)
            else:
                self.rows += 1
