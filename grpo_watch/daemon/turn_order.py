"""Which of many runs need a turn, and in what order, without asking each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from grpo_watch.daemon.schedule import Intervals
from grpo_watch.daemon.watched_run import WatchedRun


class TurnOrder:
    """The runs that need a turn: they have more to do, may have been written to, or their rest is over."""

    def __init__(self) -> None:
        self._hurried: dict[WatchedRun, None] = {}
        """Runs that need a turn at once, or wait for another process."""
        self._due_at: dict[WatchedRun, float] = {}
        """When each of the other runs needs its next turn (Unix seconds)."""
        self.places: dict[Path, dict[WatchedRun, None]] = {}
        """The runs concerned by a write in each file, or in or below each folder."""
        self._listed: dict[WatchedRun, frozenset[Path]] = {}
        self._watched: Collection[Path] = frozenset()

    @property
    def watches(self) -> Collection[WatchedRun]:
        """The runs that are being read."""
        return self._listed.keys()

    def add(self, watch: WatchedRun) -> None:
        """Add a run that begins or restarts reading."""
        if watch in self._listed:
            self.remove(watch)
        self._hurried[watch], self._listed[watch] = None, frozenset()

    def remove(self, watch: WatchedRun) -> None:
        """Remove a run that is no longer read."""
        self._list(watch, frozenset())
        self._due_at.pop(watch, None)
        self._hurried.pop(watch, None)
        del self._listed[watch]

    def hurry(self, watch: WatchedRun, now: float) -> None:
        """Make the run's next turn due now (Unix seconds)."""
        self._due_at[watch] = now

    def read_since(self, moment: float) -> bool:
        """Whether every run written to since ``moment`` (Unix seconds) was read once."""
        return all(watch.ready or watch.written < moment for watch in self._hurried)

    def due(self, now: float, changed: Collection[Path], watched: Collection[Path], *, every: bool) -> list[WatchedRun]:
        """The runs that need a turn, in order.

        Args:
            now: Unix seconds.
            changed: files and folders that were written to.
            watched: folders in which a write is noticed.
            every: all runs need a turn.
        """
        due = dict.fromkeys(self._listed if every else (watch for watch in self._hurried if watch.is_due))
        before, self._watched = self._watched, watched
        unheard = frozenset(watched) ^ frozenset(before) if watched is not before else ()
        for path in (*changed, *unheard):  # writes before a folder was watched went unnoticed
            for watch in self._near(path):
                watch.reader.note_changed(path)
                due[watch] = None
        for watch in [watch for watch, at in self._due_at.items() if at <= now]:
            del self._due_at[watch]
            due[watch] = None
        return sorted(due, key=lambda watch: watch.number)

    def rest(self, watch: WatchedRun, now: float, apart: Intervals) -> None:
        """Note when a run needs its next turn, after it had one."""
        self._list(watch, watch.reader.places)
        if watch.is_due or watch.reader.waiting:
            self._hurried[watch] = None
        else:
            self._hurried.pop(watch, None)
        if watch.ready:
            self._due_at[watch] = watch.due_at(now, self._watched, apart)

    def next(self) -> float | None:
        """The next time a run needs a turn (Unix seconds); None if none is scheduled."""
        return min(self._due_at.values(), default=None)

    def _near(self, path: Path) -> Iterable[WatchedRun]:
        """The runs concerned by a change of this path: those of the nearest listed file or folder."""
        return next((found for one in (path, *path.parents) if (found := self.places.get(one))), ())

    def _list(self, watch: WatchedRun, places: frozenset[Path]) -> None:
        """Record the places in which writes concern the run."""
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


def first_in_line(watches: Sequence[WatchedRun]) -> Sequence[WatchedRun]:
    """Runs due now: all that are ready, then one urgent unread run, or if none all unread ones, latest write first.

    So a daemon that soon dies again has sent some runs' news instead of beginning to read every run, and a growing run
    does not wait for an archive beside it.
    """
    unread = [watch for watch in watches if not watch.ready]
    urgent = [watch for watch in unread if watch.urgent][:1]
    latest = urgent or sorted(unread, key=lambda watch: watch.written, reverse=True)
    return [*(watch for watch in watches if watch.ready), *latest]
