"""Which runs get their turns and when, the clock that they are given, and when memory is collected."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpo_watch.daemon.watched_run import WatchedRun

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


class TurnOrder:
    """Which runs need a turn: those that have more to do, that may have been written to, and whose rest is over."""

    def __init__(self) -> None:
        self._hurried: dict[WatchedRun, None] = {}
        """Those that need a turn at once, or wait for another process."""
        self._due_at: dict[WatchedRun, float] = {}
        """When each of the others needs its next turn (Unix seconds)."""
        self.places: dict[Path, dict[WatchedRun, None]] = {}
        """The runs that something written in a file, in a folder or below it may concern."""
        self._listed: dict[WatchedRun, frozenset[Path]] = {}
        self._watched: Collection[Path] = frozenset()

    @property
    def watches(self) -> Collection[WatchedRun]:
        """The runs that are being read."""
        return self._listed.keys()

    def add(self, watch: WatchedRun) -> None:
        """A run begins to be read, or begins again."""
        if watch in self._listed:
            self.remove(watch)
        self._hurried[watch], self._listed[watch] = None, frozenset()

    def remove(self, watch: WatchedRun) -> None:
        """It is read no more."""
        self._list(watch, frozenset())
        self._due_at.pop(watch, None)
        self._hurried.pop(watch, None)
        del self._listed[watch]

    def hurry(self, watch: WatchedRun, now: float) -> None:
        """Its next turn is due now (Unix seconds)."""
        self._due_at[watch] = now

    def read_since(self, moment: float) -> bool:
        """Whether every run that was written since then (Unix seconds) was read once."""
        return all(watch.ready or watch.written < moment for watch in self._hurried)

    def due(self, now: float, changed: Collection[Path], watched: Collection[Path], *, every: bool) -> list[WatchedRun]:
        """The runs that need a turn, in order.

        Args:
            now: Unix seconds.
            changed: files, or folders, in which something was written.
            watched: folders in which a write is noticed.
            every: all of them do.
        """
        due = dict.fromkeys(self._listed if every else (watch for watch in self._hurried if watch.is_due))
        before, self._watched = self._watched, watched
        unheard = frozenset(watched) ^ frozenset(before) if watched is not before else ()
        for path in (*changed, *unheard):  # what was written before a folder was watched did not ring
            for watch in self._near(path):
                watch.reader.note_changed(path)
                due[watch] = None
        for watch in [watch for watch, at in self._due_at.items() if at <= now]:
            del self._due_at[watch]
            due[watch] = None
        return sorted(due, key=lambda watch: watch.number)

    def rest(self, watch: WatchedRun, now: float, apart: Intervals) -> None:
        """A run had its turn: note when it needs the next one."""
        self._list(watch, watch.reader.places)
        if watch.is_due or watch.reader.waiting:
            self._hurried[watch] = None
        else:
            self._hurried.pop(watch, None)
        if watch.ready:
            self._due_at[watch] = watch.due_at(now, self._watched, apart)

    def next(self) -> float | None:
        """When a run needs a turn by the clock (Unix seconds)."""
        return min(self._due_at.values(), default=None)

    def _near(self, path: Path) -> Iterable[WatchedRun]:
        """The runs that the file concerns, or the nearest folder."""
        return next((found for one in (path, *path.parents) if (found := self.places.get(one))), ())

    def _list(self, watch: WatchedRun, places: frozenset[Path]) -> None:
        """From now on what is written there concerns the run."""
        before = self._listed[watch]
        if places is before:
            return
        for place in before - places:
            del self.places[place][watch]
            if not self.places[place]:
                del self.places[place]
        for place in places:
            self.places.setdefault(place, {})[watch] = None
        self._listed[watch] = places


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
