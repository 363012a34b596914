"""Schedules the turns of runs, and provides the clock they use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

CATCHING_UP = 0.5
"""Speed of the clock while it is ahead of a wall clock that was set back."""
JUMP_SECONDS = 60.0
"""Least jump of the clock ahead of the timer (it was set, or the machine slept); silence thresholds are longer."""

log = logging.getLogger("grpo_watch.clock")


class SteadyClock:
    """A wall clock that never goes back: where the wall clock is set back, it runs at half speed until that catches up.

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
    """Detects forward jumps of the clock, across which a run's silence can't be measured."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def seen(self, now: float, timer: float) -> bool:
        """Whether the clock jumped since the last call; ``now`` is Unix, ``timer`` monotonic seconds."""
        before, self._last = self._last, (now, timer)
        jump = 0.0 if before is None else now - before[0] - (timer - before[1])
        if jump < JUMP_SECONDS:
            return False
        log.warning("the clock jumped; silence is counted from here on", extra={"fields": {"seconds": f"{jump:.0f}"}})
        return True


FEW_RUNS = 100
"""Up to this many growing runs are read as soon as there may be something new, with one commit of rows a second."""
READ_SECONDS, TICK_SECONDS, LIST_SECONDS, STORE_SECONDS = 0.0005, 0.002, 0.004, 0.004
"""Seconds added for each further run; ``python benchmarks/fleet.py`` shows the cost of 1,000 runs."""
GROWING_SECONDS = 60.0
"""A run is growing if it gave an item within so many seconds: jobs write about a row a minute."""
SECOND = 1.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two reads of a run's logs, two ticks, two listings of its folders, and two stores of rows.

    A write in a watched folder is read at once, and a transition is stored at once.
    """

    read: float = 0.0
    tick: float = SECOND
    listing: float = SECOND
    store: float = 0.0


def intervals(runs: int) -> Intervals:
    """The shortest intervals while ``runs`` runs are growing."""
    many = max(0, runs - FEW_RUNS)
    return Intervals(
        READ_SECONDS * many, SECOND + TICK_SECONDS * many, SECOND + LIST_SECONDS * many, SECOND + STORE_SECONDS * many
    )


LONGEST_SECONDS, LONGEST_WATCHED_SECONDS = 10.0, 30.0
"""Longest rest of a run, and of a run whose logs all lie in folders watched by inotify: there a write ends it."""
SHARE = 15.0
"""A run rests for its silence divided by this: at one step a minute, a step is seen within 4 seconds."""


class Rest:
    """When a run that had nothing more to give is read again.

    Args:
        now: Unix seconds.
    """

    def __init__(self, now: float) -> None:
        self.gave_at = self._read_at = now

    def until(self, least: float = 0.0, *, watched: bool = False) -> float:
        """The end of the rest (Unix seconds); ``least`` is its least length, ``watched``: a write would end it."""
        quiet = (self._read_at - self.gave_at) / SHARE
        return self._read_at + (LONGEST_WATCHED_SECONDS if watched else max(least, min(LONGEST_SECONDS, quiet)))

    def read(self, now: float, *, gave: bool) -> None:
        """Note that the run was read, and whether it gave an item."""
        if gave or now < self.gave_at:
            self.gave_at = now
        self._read_at = now
