"""Full garbage collections at a fixed pace: with a thousand runs each stops the daemon for two seconds."""

from __future__ import annotations

import gc
from collections.abc import Callable

YOUNG, MIDDLE, NEVER = 10_000, 50, 1_000_000
"""Thresholds of Python's collector. By default (700, 10, 10) collections took 11 % of the processor time of a daemon
with 1,000 runs that grow, and full ones up to 2.1 s each, in which no row was read."""
FULL_SECONDS = 600.0
"""Between two full collections; they free little, because only cycles wait for them."""


class PacedCollections:
    """Leaves full collections to ``turn``; young objects are collected as before, a little later.

    Args:
        timer: monotonic seconds.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._timer = timer
        self._collected_at = timer()

    def turn(self) -> None:
        """Collect everything if that is due."""
        if self._timer() - self._collected_at >= FULL_SECONDS:
            gc.collect()
            self._collected_at = self._timer()
