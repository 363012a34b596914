"""Takes a backlog of rows in blocks for the rule about KLs of zero."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from grpo_watch.detectors.policy.kl_floor import NoiseFloor
from grpo_watch.detectors.shared.printed_zero import is_zero, not_zero
from grpo_watch.engine.block import Block, first_outside
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.engine.expected_movement import ARITHMETIC_FLOOR_UNSURE
from grpo_watch.engine.records import MetricRow, Reading


class ZeroKlInBlocks(Detector, ABC):
    """The part of the detector that knows blocks; the rest judges what a single row proves."""

    floor: NoiseFloor
    min_signal: float

    @abstractmethod
    def not_evidence(self, row: MetricRow, run: RunView, floor: float | None = None) -> str | None:
        """Why a zero in this row proves nothing; None: it counts."""

    def could_speak(self, block: Block, run: RunView) -> int:  # noqa: ARG002
        """Rows without any KL, or with one above zero when there is no floor any more."""
        kls = block.values.get("kl_reference")
        if kls is None or "kl_policy_update" in block.values:
            return 0 if "kl_policy_update" in block.values else len(block)
        return first_outside(kls, *not_zero(block.resolution)) if self.floor.settled else 0

    def absorb(self, block: Block, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Nothing counts any more of what they say."""
        return QUIET if "kl_reference" in block.values else SILENT

    def still_fires(self, block: Block, run: RunView) -> int:
        """Rows of zeros that count, as the first one does: the learning rate sums up."""
        kls = block.values.get("kl_reference", (1.0,))
        zeros = "kl_policy_update" not in block.values and all(is_zero(kl, block.resolution) for kl in kls)
        if not zeros or not self.floor.settled or self.blind_because(run):
            return 0
        grows = min(block.values.get("learning_rate", (0.0,))) >= 0.0
        signals = [1.0 - silent for silent in block.silent if silent is not None]
        first = next(block.rows(0, 1))
        counts = grows and min(signals, default=1.0) >= self.min_signal
        return len(block) if counts and not self.not_evidence(first, run, ARITHMETIC_FLOOR_UNSURE) else 0
