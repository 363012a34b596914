"""A row's share of groups without spread, also where rows have only the batch's spread."""

from __future__ import annotations

from grpo_watch.core.detector import RunView
from grpo_watch.core.evidence import FLOAT_NOISE, no_signal_ratio, number
from grpo_watch.core.records import MetricRow


class SilentRows:
    """Reads rows; ``spread`` says that some had a spread of the batch, and nothing of their groups."""

    __slots__ = ("spread",)

    def __init__(self) -> None:
        self.spread = False

    def take(self, row: MetricRow, run: RunView) -> float | None:
        """Share (0…1) of the row's groups whose rewards are all equal; None where the row can't tell.

        Where rows have only the batch's spread, those without any count as dead. Then those with some count as alive,
        though some of their groups may be dead: else luck among few prompts would look like a collapse (TRL 1.16.0,
        a sparse reward, 34 of 100 batches without spread).
        """
        ratio = no_signal_ratio(row)
        if ratio is not None or (number(row, "reward_batch_std") or 0.0) < FLOAT_NOISE:
            return ratio
        self.spread = True
        return None if run.course.silent.first is None else 0.0
