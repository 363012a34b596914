"""Tells rows that begin a generation batch from rows that use the batch before them again."""

from __future__ import annotations

from grpo_watch.engine.records import MetricRow

MOST = 64
"""Rows without a reward after which the reward is gone, not a batch in use (real runs: 1 to 8 steps per batch)."""


class GenerationRows:
    """Counts rows since the newest one with a reward.

    Rows of one batch share its texts, so that what is odd about them shows on all of them and is one piece of evidence.
    """

    __slots__ = ("_known", "_since")

    def __init__(self) -> None:
        self._known = False
        self._since = 0

    def begins(self, row: MetricRow) -> bool:
        """Whether a batch begins here; True for every row where no row carries the reward (or none does any more)."""
        if "reward_mean" in row.values:
            self._known, self._since = True, 0
            return True
        self._since += 1
        return not self._known or self._since > MOST
