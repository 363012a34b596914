"""Bounds what reading takes: so many bytes per second of checkpoints, and of a run's files so much in one turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Event

BUDGET, RECORDS = 4 << 20, 8_000
"""Bytes and records (lines, logged values) of one file that one turn of a live run reads: some tenths of a second, in
which other runs wait. Of short lines the bytes alone would be a million."""


class Throttle:
    """Waits whenever more was read than the time since the start allows.

    Args:
        limit: bytes per second, above 0.
        clock: seconds.
        wait: waits so many seconds.
    """

    def __init__(
        self, limit: float, clock: Callable[[], float] = time.monotonic, wait: Callable[[float], object] | None = None
    ) -> None:
        self._limit, self._clock = limit, clock
        self._wait = wait or Event().wait
        self._start: float | None = None
        self._taken = 0

    def take(self, count: int) -> None:
        """Account for bytes that were just read, and wait until they are due."""
        now = self._clock()
        if self._start is None:
            self._start = now
        self._taken += count
        early = self._taken / self._limit - (now - self._start)
        if early > 0:
            self._wait(early)


class TurnBudget:
    """What one turn may read of a file, so that no run waits long for another; ``spent``: there is more to read."""

    def __init__(self) -> None:
        self.spent = False
        self.begin(0, live=False)

    def begin(self, position: int, *, live: bool) -> None:
        """A turn begins at a position; without ``live`` it has no bounds."""
        self.spent = False
        self._last = position + BUDGET if live else math.inf
        self._records = RECORDS if live else math.inf

    def ends(self, position: int, records: int = 1) -> bool:
        """Whether the turn is over at this position, so many records further than when asked last."""
        self._records -= records
        self.spent = position >= self._last or self._records <= 0
        return self.spent
