"""Finds out that a key called ``step`` counts something coarser than the rows of a log."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_watch.frameworks.guessing import guess

PLAIN = "step"
"""The key that people log beside their metrics; those with a prefix are a trainer's own and are believed."""
AGAIN = 2
"""This many metrics that come again with other values under one step make it another row."""


class OwnCounter:
    """Watches rows with a plain ``step``: an own loop may log several of them at each (one for each micro-batch).

    ``coarse`` turns true at the first row that repeats the metrics of the row before under the same step.
    """

    def __init__(self, *, coarse: bool = False) -> None:
        self.coarse = coarse
        self._step: object = None
        self._values: dict[str, float | None] = {}

    def take(self, row: Mapping[str, object], values: Mapping[str, float | None]) -> bool:
        """Take one row; whether its step counts something coarser."""
        step = row.get(PLAIN)
        if self.coarse or step is None:
            return self.coarse
        if step != self._step:
            self._step, self._values = step, dict(values)
            return False
        again = (key for key, value in values.items() if key in self._values and value != self._values[key])
        self.coarse = sum(guess(key) is not None for key in again) >= AGAIN
        self._values.update(values)
        return self.coarse
