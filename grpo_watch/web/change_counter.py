"""Tracks which runs changed, so that open pages know what to fetch again."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable

from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview

REMEMBERED = 64
"""Changes kept for pages that reconnect; a page that missed more fetches everything."""


class ChangeCounter:
    """Counts changes of the snapshot; called from one thread, as often as needed.

    ``snapshot`` gives the newest one. What only moves with the clock (when a file was last read) is no change.
    """

    def __init__(self, snapshot: Callable[[], DaemonSnapshot]) -> None:
        self._look = snapshot
        self._life = secrets.token_hex(4)  # numbers of an earlier daemon mean nothing
        self._seen: DaemonSnapshot | None = None
        self._looks: dict[str, tuple[object, ...]] = {}
        self._problems: tuple[str, ...] = ()
        self._number = 0
        self._changes: deque[tuple[int, frozenset[str]]] = deque(maxlen=REMEMBERED)

    def mark(self) -> str:
        """Names the current snapshot: the id of the next event."""
        snapshot = self._look()
        if snapshot is not self._seen:
            self._take(snapshot)
        return f"{self._life}-{self._number}"

    def since(self, mark: str) -> frozenset[str] | None:
        """The slugs of runs that changed after that mark; None where that is not known: any may have."""
        self.mark()
        life, _, number = mark.partition("-")
        if life != self._life or not number.isdecimal():
            return None
        missed = [slugs for at, slugs in self._changes if at > int(number)]
        return frozenset().union(*missed) if len(missed) == self._number - int(number) else None

    def _take(self, snapshot: DaemonSnapshot) -> None:
        looks = {run.slug: _look(run) for run in snapshot.shown}
        changed = {slug for slug, look in looks.items() if not _same(self._looks.get(slug), look)}
        changed |= self._looks.keys() - looks.keys()
        if changed or snapshot.problems != self._problems:
            self._number += 1
            self._changes.append((self._number, frozenset(changed)))
        self._seen, self._looks, self._problems = snapshot, looks, snapshot.problems


def _look(run: RunOverview) -> tuple[object, ...]:
    return run.snapshot, run.active, tuple((channel.source, channel.problem) for channel in run.channels)


def _same(before: tuple[object, ...] | None, now: tuple[object, ...]) -> bool:
    """Snapshots are compared as objects: the daemon keeps one until something changes."""
    return before is not None and before[0] is now[0] and before[1:] == now[1:]
