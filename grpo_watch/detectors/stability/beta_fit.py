"""Finds beta, the KL coefficient, where no setting names it: by the loss, which it is a part of."""

from __future__ import annotations

from math import inf

LEAST = 3
"""Rows that have to agree."""
HALF_UNIT = 0.5e-4
"""What rounding may hide of a loss: the Trainer prints four decimals (transformers)."""
SHARP = 1.5
"""Ratio of the bounds below which they name one beta."""


class BetaFit:
    """Bounds of beta by rows on which the loss is nothing but beta times KL.

    That is so where each batch is used once: the advantages of a group cancel, and the policy's part of the loss is 0
    (TRL, ms-swift and Unsloth; huggingface/trl#2703, huggingface/open-r1#239). Where it is not, rows contradict each
    other, and beta stays unknown.
    """

    __slots__ = ("_high", "_low", "_rows")

    def __init__(self) -> None:
        self._low, self._high, self._rows = 0.0, inf, 0

    def push(self, loss: float | None, kl: float) -> None:
        """Take the loss and the absolute KL (nats per token, above 0) of a row."""
        if loss is not None:
            self._rows += 1
            self._low = max(self._low, (loss - HALF_UNIT) / kl)
            self._high = min(self._high, (loss + HALF_UNIT) / kl)

    def at_most(self, bound: float, known: float | None) -> bool:
        """Whether beta is ``bound`` or less: by the settings (``known``), else by all rows if they name one beta."""
        if known is not None:
            return known <= bound
        named = self._rows >= LEAST and 0.0 < self._low <= self._high <= SHARP * self._low
        return named and self._low <= bound
