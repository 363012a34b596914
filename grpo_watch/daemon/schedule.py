"""When runs get their turns, and the clock that they are given."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

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


FEW_RUNS = 100
"""So many growing runs are read whenever there may be something new, and their rows stored in one commit a second."""
READ_SECONDS, TICK_SECONDS, LIST_SECONDS, STORE_SECONDS = 0.0005, 0.002, 0.004, 0.004
"""Added for each run beyond these; ``python benchmarks/fleet.py`` shows what 1,000 runs cost."""
GROWING_SECONDS = 60.0
"""A run grows that gave something within the last minute: jobs write about a row a minute."""
SECOND = 1.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two reads of a run's logs, two ticks, two listings of its folders, and two times rows are stored.

    A write in a watched folder is read at once, and a transition is stored at once.
    """

    read: float = 0.0
    tick: float = SECOND
    listing: float = SECOND
    store: float = 0.0


def intervals(runs: int) -> Intervals:
    """The shortest intervals while so many runs grow."""
    many = max(0, runs - FEW_RUNS)
    return Intervals(
        READ_SECONDS * many, SECOND + TICK_SECONDS * many, SECOND + LIST_SECONDS * many, SECOND + STORE_SECONDS * many
    )


LONGEST_SECONDS, LONGEST_WATCHED_SECONDS = 10.0, 30.0
"""Longest rest of a run, and of one all of whose logs lie in folders that inotify watches: there a write ends it."""
SHARE = 15.0
"""A run rests for this part of the time that it has given nothing: one step a minute is seen within 4 seconds."""


class Rest:
    """When a run is to be read again that has nothing more to give at present.

    Args:
        now: Unix seconds.
    """

    def __init__(self, now: float) -> None:
        self.gave_at = self._read_at = now

    def until(self, least: float = 0.0, *, watched: bool = False) -> float:
        """When that is (Unix seconds); ``least`` are seconds to rest in any case, ``watched``: a write would end it."""
        quiet = (self._read_at - self.gave_at) / SHARE
        return self._read_at + (LONGEST_WATCHED_SECONDS if watched else max(least, min(LONGEST_SECONDS, quiet)))

    def read(self, now: float, *, gave: bool) -> None:
        """The run was read, and gave something or nothing."""
        if gave or now < self.gave_at:
            self.gave_at = now
        self._read_at = now
