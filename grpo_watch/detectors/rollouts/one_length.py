"""Every completion has one and the same length: the limit ends them all, though no row says how many are cut off."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import QUIET, SILENT, RunView
from grpo_watch.engine.records import Reading, Verdict

ROWS = 20
"""Rows in a row with the very same mean length. Texts that end by themselves differ by some tokens in each batch:
among 420 labelled runs those with 20 such rows had all of them cut off, where the share is logged. TRL before 0.17
logs the length alone; a public run of it had 256.0 on all of 865 rows."""
SHORTEST = 16.0
"""Tokens from which a length is that of answers: one or two words of a fixed form may have the same everywhere."""


class OneLength:
    """Counts the rows since which the mean length is one whole number."""

    def __init__(self) -> None:
        self._length, self._rows, self._since = 0.0, 0, 0
        self._breached = False

    def take(self, length: float, step: int, run: RunView) -> Iterable[Reading]:
        """Judge a row: a breach once there are enough, unless the known limit is another. Other rows show nothing."""
        if length != self._length:
            self._length, self._rows, self._since = length, 0, step
        self._rows += 1
        limit = run.number("max_completion_length")
        if self._rows < ROWS or length < SHORTEST or not length.is_integer() or (limit or length) != length:
            return QUIET if self._breached else SILENT
        self._breached = True
        return (
            Reading(
                Verdict.BREACH,
                value=1.0,
                threshold=1.0,
                message=f"every completion has {length:.0f} tokens, so the length limit cuts off all of them",
                evidence={"completion_length_mean": length, "rows": self._rows},
                first_step=self._since,
            ),
        )
