"""Which of many runs need a turn, and in what order; the others are not asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from grpo_watch.daemon.schedule import Intervals
from grpo_watch.daemon.watched_run import WatchedRun


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


def first_in_line(watches: Sequence[WatchedRun]) -> Sequence[WatchedRun]:
    """Runs due now: all that are ready, then an urgent unread run, or if none is urgent all unread, latest write first.

    So a daemon that soon dies again has sent the news of some runs, where it would have begun to read all of them, and
    a run that grows does not wait for an archive beside it.
    """
    unread = [watch for watch in watches if not watch.ready]
    urgent = [watch for watch in unread if watch.urgent][:1]
    latest = urgent or sorted(unread, key=lambda watch: watch.written, reverse=True)
    return [*(watch for watch in watches if watch.ready), *latest]
