"""Takes a backlog in blocks, for the rule about rows without any spread of rewards: with spread, or while it fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from grpo_watch.detectors.reward.silent_rows import CountedRows, SilentRows, SpreadOfBatches
from grpo_watch.detectors.shared.interval import BatchesPerRow
from grpo_watch.detectors.shared.outlook import until_others_agree
from grpo_watch.detectors.shared.window import Window
from grpo_watch.engine.block import Block
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.engine.records import Reading

SPREAD_OF_ALL = "reward_batch_std"
"""Where it is above 0, some group of the row has spread, and the row counts as alive (``SilentRows``)."""


class DeadRowsInBlocks(Detector, ABC):
    """The part of the detector that knows blocks; the windows are those of single rows."""

    share: float
    silent: CountedRows
    silent_rows: SilentRows
    batches: SpreadOfBatches
    rewards: Window
    per_row: BatchesPerRow
    lowest: float
    highest: float

    @abstractmethod
    def observe(self, record: Any, run: RunView) -> Iterable[Reading]:
        """Judge one record."""

    def could_speak(self, block: Block, run: RunView) -> int:
        """Rows most of whose groups have spread, after nothing but such rows; or rows without any of these metrics."""
        shares = self._shares(block, run)
        if shares is None:
            return 0 if self.batches.any_waits and run.trend.silent.first is None else len(block)
        few = self.share - 1e-6
        if not self.silent.enough or max(self.silent.shares.values) > few:
            return 0
        return next((index for index, share in enumerate(shares) if not 0.0 <= share <= few), len(shares))

    def still_fires(self, block: Block, run: RunView) -> int:
        """Rows without any spread, while nothing else gets worse."""
        judged = self.silent.all_dead and self.silent.enough
        dead = judged and all(share == 1.0 for share in block.silent)
        return until_others_agree(run.trend, block) if dead else 0

    def absorb(self, block: Block, run: RunView) -> Iterable[Reading]:
        """Count the rows. They are enough already, however many batches each of them stands for."""
        shares = self._shares(block, run)
        self.silent_rows.spread |= block.silent[0] is None and SPREAD_OF_ALL in block.values
        self.per_row.take_all(block.steps, tell=shares is not None)
        if shares is None:
            return SILENT
        if shares[0] == 1.0:
            batches = self.per_row.count(run)
            for step in block.steps:
                self.silent.take(1.0, step, batches)
        else:
            self.silent.take_alive(shares)
        if (rewards := block.values.get("reward_mean")) is not None:
            self.rewards.push_all(rewards)
            self.lowest, self.highest = min(self.lowest, *rewards), max(self.highest, *rewards)
        return SILENT if shares[0] == 1.0 else QUIET

    def _shares(self, block: Block, run: RunView) -> Sequence[float] | None:
        """The share of each row as ``SilentRows`` gives it, -1 where it gives none; None where it gives none at all."""
        known = block.silent
        some = run.trend.silent.first is not None and SPREAD_OF_ALL in block.values
        if not some and set(known) == {None}:
            return None
        return [(0.0 if some else -1.0) if share is None else share for share in known]
