"""Keeps the watch's time sane where the machine's clock is set back or forward while it runs, or the machine sleeps."""

from __future__ import annotations

import logging
from collections.abc import Callable

CATCHING_UP = 0.5
"""Speed of the clock while it is ahead of one that was set back."""
JUMP_SECONDS = 60.0
"""A clock that advances this much more than time was set, or the machine slept; silences that count are longer."""

log = logging.getLogger("grpo_watch.clock")


class SteadyClock:
    """The wall clock, but it never goes back: it runs at half speed until one that was set back has caught up.

    Args:
        wall: Unix seconds.
        timer: monotonic seconds.
    """

    def __init__(self, wall: Callable[[], float], timer: Callable[[], float]) -> None:
        self._wall, self._timer = wall, timer
        self._now, self._then = wall(), timer()

    def __call__(self) -> float:
        """Unix seconds."""
        timer = self._timer()
        self._now = max(self._wall(), self._now + CATCHING_UP * (timer - self._then))
        self._then = timer
        return self._now


class Jumps:
    """Notices where the clock went on by much more than time did: a run's silence can't be measured across it."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def seen(self, now: float, timer: float) -> bool:
        """Whether it did so since the last call; ``now`` is in Unix seconds, ``timer`` in monotonic ones."""
        before, self._last = self._last, (now, timer)
        jump = 0.0 if before is None else now - before[0] - (timer - before[1])
        if jump < JUMP_SECONDS:
            return False
        log.warning("the clock jumped; silence is counted from here on", extra={"fields": {"seconds": f"{jump:.0f}"}})
        return True
