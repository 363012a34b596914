"""How weights saved in 16 bits move between two checkpoints: what one update can't move, and what several would."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType

from grpo_watch.engine.window import plain_sum

FRACTION = MappingProxyType({"BF16": 7, "F16": 10})
"""Bits of the fraction of the types whose resolution is near the size of an update."""


@dataclass(frozen=True, slots=True)
class Movement:
    """How weights moved since the checkpoint before, on a sample of tensors that changed at all.

    ``counts``: binary exponent of the earlier value, weights that have it, and how many of them changed.
    """

    dtype: str
    tensors: int
    counts: tuple[tuple[int, int, int], ...]

    def step(self, exponent: int) -> float:
        """Distance between neighbouring values of that size."""
        return float(2.0 ** (exponent - FRACTION[self.dtype]))

    @property
    def typical(self) -> float:
        """Root mean square of the earlier values, each taken from the middle of its binary order."""
        held = sum(count for _, count, _ in self.counts)
        return sqrt(plain_sum(count * (1.5 * 2.0**exponent) ** 2 for exponent, count, _ in self.counts) / max(1, held))

    def beyond(self, update: float) -> Movement:
        """The part whose values an update of that size rounds back to where they were."""
        held = tuple(one for one in self.counts if self.step(one[0]) / 2 > update)
        return Movement(self.dtype, self.tensors, held)

    def expected(self, distance: float) -> float:
        """How many would have changed had each moved by so much, all updates being collected before rounding."""
        return plain_sum(count * min(1.0, distance / self.step(exponent)) for exponent, count, _ in self.counts)

    @property
    def elements(self) -> int:
        """Weights in all."""
        return sum(count for _, count, _ in self.counts)

    @property
    def changed(self) -> int:
        """Weights that are not what they were."""
        return sum(moved for _, _, moved in self.counts)
