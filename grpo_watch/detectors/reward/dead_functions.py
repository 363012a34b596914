"""Takes a backlog of rows in blocks for the rule about reward functions that never change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from grpo_watch.detectors.reward.constant_reward import Still, StillLimits
from grpo_watch.detectors.shared.interval import BatchesPerRow
from grpo_watch.engine.block import Block
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.engine.records import Reading


class DeadFunctionsInBlocks(Detector, ABC):
    """The part of the detector that knows blocks. Rows of those that it does not take are shown to it one by one."""

    still: dict[str, Still]
    per_row: BatchesPerRow
    batches: float
    rows: int
    tolerance: float

    @abstractmethod
    def observe(self, record: Any, run: RunView) -> Iterable[Reading]:
        """Judge one record."""

    def limits(self) -> StillLimits:
        """What makes a function a dead one."""
        return StillLimits(self.rows, self.batches, self.tolerance)

    def could_speak(self, block: Block, run: RunView) -> int:
        """Rows on which no function has been constant for long enough, and none that was gives another value."""
        keys, values = run.functions.of(next(block.rows(0, 1))), block.values
        if not keys:
            return len(block)
        if not self.per_row.stays(block.steps) or any(key.name not in self.still for key in keys):
            return 0
        self.batches = self.per_row.count(run)
        limits = self.limits()
        return min(self.still[key.name].until_still(values[key.mean], values.get(key.std), limits) for key in keys)

    def absorb(self, block: Block, run: RunView) -> Iterable[Reading]:
        """Follow the functions."""
        keys, values = run.functions.of(next(block.rows(0, 1))), block.values
        self.per_row.take_all(block.steps, tell=bool(keys))
        for key in keys:
            self.still[key.name].take_all(values[key.mean], values.get(key.std), block.steps, self.tolerance)
        return QUIET if keys else SILENT
