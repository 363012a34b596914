"""Slows reading down to so many bytes per second, so that checkpoints don't take the disk away from the job."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Lock


class Throttle:
    """Waits whenever more was read than the time since the start allows; several threads share one.

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
        self._lock = Lock()
        self._start: float | None = None
        self._taken = 0

    def take(self, count: int) -> None:
        """Account for bytes that were just read, and wait until they are due."""
        with self._lock:
            now = self._clock()
            if self._start is None:
                self._start = now
            self._taken += count
            early = self._taken / self._limit - (now - self._start)
            if early > 0:
                self._wait(early)
