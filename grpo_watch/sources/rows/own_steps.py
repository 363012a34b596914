"""Assigns steps to the rows of own training loops; they rise within an attempt."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from grpo_watch.frameworks.line_reader import MetricLine

MOST_UPDATES = 8
"""Most updates of one rollout (PPO's epochs times its mini-batches); a training of so few steps ends there."""


class OwnSteps(Struct):
    """The steps of a log's rows.

    Rows without a step take the newest counter above them, if it rises from row to row (``Iteration 12``, then the
    numbers); else they are numbered from 1. A step that restarts with each epoch continues from the last one, as does
    ``[Update 1/4]`` after ``[Update 4/4]``, the updates of one rollout. A step repeated with other values is coarser
    than the rows, which are then numbered.

    ``counted``: the rows are numbered.
    """

    counted: bool = False
    _rows: int = 0
    _offset: int = 0
    _total: int = 0
    _before: tuple[int, int] | None = None
    """Step and epoch of the row before."""
    _coarse: bool = False
    _leads: bool = False

    def first(self, rows: Sequence[MetricLine], counters: Sequence[int | None]) -> list[MetricLine]:
        """Return the first rows of a log with their steps; ``counters``: the newest counter above each row."""
        known = [counter for counter in counters if counter is not None]
        self._leads = len(known) == len(rows) and rows[0].step is None and known == sorted(set(known))
        if self._leads:
            rows = [replace(row, step=counter) for row, counter in zip(rows, known, strict=True)]
        self._coarse = len({row.step for row in rows}) == 1
        return [self._placed(row) for row in rows]

    def later(self, row: MetricLine, counter: int | None) -> Sequence[MetricLine]:
        """Return a later row with its step; empty for a part of a step: an attempt at it, a single group."""
        if self._leads and row.step is None and (counter or 0) > (self._before or (-1, 0))[0]:
            row = replace(row, step=counter)
        return () if row.step is None and self._before is not None else (self._placed(row),)

    def _placed(self, row: MetricLine) -> MetricLine:
        self._rows += 1
        if self._coarse or row.step is None:
            self.counted = True
            return replace(row, step=self._rows, max_steps=None)
        step, total, epoch, before = row.step, row.max_steps, int(row.values.get("epoch") or 0), self._before
        if before is not None and step + self._offset <= before[0] and epoch > before[1]:
            self._offset = before[0] + (1 if step == 0 else 0)
        elif before is not None and epoch < before[1]:
            self._offset = 0
        if total is not None and 1 < total <= MOST_UPDATES:
            if before is not None and step <= 1 and before[0] - self._offset == total == self._total:
                self._offset = before[0] + 1 - step
            self._total, row = total, replace(row, max_steps=None) if self._offset else row
        self._before = (step + self._offset, epoch)
        return replace(row, step=step + self._offset)
