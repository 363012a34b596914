"""Keeps the queue of messages per receiver, the alerts each receiver got, and the ids it must not get again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeAlias

SCHEMA = """
CREATE TABLE deliveries (
    sink TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, run TEXT NOT NULL, outcome TEXT NOT NULL,
    tries INTEGER NOT NULL, bundle INTEGER NOT NULL, together INTEGER NOT NULL, at REAL NOT NULL, data BLOB,
    PRIMARY KEY (sink, id));
CREATE INDEX deliveries_waiting ON deliveries (sink, number) WHERE outcome = 'waiting';
CREATE TABLE told (
    sink TEXT NOT NULL, run TEXT NOT NULL, rule TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (sink, run, rule, key));
"""

Episode = tuple[str, str, str]
"""Run, rule and key of an alert; at most one episode of it is open at a time."""
Begins: TypeAlias = Callable[[bytes], Episode | None]
"""The episode that a packed notification is the first news of; None where it is none."""
_CLOSE = "DELETE FROM told WHERE sink = ? AND run = ? AND rule = ? AND key = ?"


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits (its stored outcome is ``waiting``; any other is final).

    ``number`` orders a receiver's queue; messages of one ``bundle`` (0: none) go as one. ``together`` asks for a
    digest; ``at`` is when it was queued (Unix seconds), ``data`` the packed notification.
    """

    sink: str
    id: str
    number: int
    run: str
    at: float
    data: bytes
    tries: int = 0
    bundle: int = 0
    together: bool = False


@dataclass(frozen=True, slots=True)
class DeliveredAlert:
    """An open episode as a receiver knows it: ``state`` says whether it got it; ``data`` is the notification."""

    sink: str
    run: str
    rule: str
    key: str
    state: str
    data: bytes


@dataclass(slots=True)
class DeliveryChanges:
    """What one transaction changes, applied in the order of the fields.

    ``changed`` holds sink, id, tries and bundle of waiting messages; ``finished`` sink, id, outcome and time;
    ``delivered`` the open episodes by sink and episode, None for one that is over.
    """

    queued: list[QueuedMessage] = field(default_factory=list)
    changed: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    finished: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    delivered: dict[tuple[str, Episode], DeliveredAlert | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.queued or self.changed or self.finished or self.delivered)

    def add(self, later: DeliveryChanges) -> None:
        """Take over what changed after this."""
        self.queued += later.queued
        self.changed |= later.changed
        self.finished |= later.finished
        self.delivered |= later.delivered


@dataclass(frozen=True, slots=True)
class StoredDeliveries:
    """What is stored: the messages that wait, in order; the open episodes; (sink, id) of all that is final."""

    queued: tuple[QueuedMessage, ...] = ()
    delivered: tuple[DeliveredAlert, ...] = ()
    finished: tuple[tuple[str, str], ...] = ()

    def after(self, changes: DeliveryChanges) -> StoredDeliveries:
        """What is kept once these are stored too."""
        if not changes:
            return self
        queued = {(q.sink, q.id): q for q in (*changes.queued, *self.queued)}
        queued |= {
            place: replace(queued[place], tries=tries, bundle=bundle)
            for place, (tries, bundle) in changes.changed.items()
            if place in queued
        }
        finished = dict.fromkeys((*self.finished, *changes.finished))
        waiting = [one for place, one in queued.items() if place not in finished]
        delivered = {(t.sink, (t.run, t.rule, t.key)): t for t in self.delivered} | changes.delivered
        return StoredDeliveries(
            tuple(sorted(waiting, key=lambda one: (one.sink, one.number))),
            tuple(one for one in delivered.values() if one is not None),
            tuple(finished),
        )


def write(database: sqlite3.Connection, changes: DeliveryChanges) -> None:
    """Apply the changes inside the transaction under way; raises ``sqlite3.Error``."""
    put = database.executemany
    put(
        "INSERT OR IGNORE INTO deliveries (sink, id, number, run, outcome, tries, bundle, together, at, data) "
        "VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?)",
        [(q.sink, q.id, q.number, q.run, q.tries, q.bundle, q.together, q.at, q.data) for q in changes.queued],
    )
    put(
        "UPDATE deliveries SET tries = ?, bundle = ? WHERE sink = ? AND id = ?",
        [(*change, *place) for place, change in changes.changed.items()],
    )
    put(
        "UPDATE deliveries SET outcome = ?, at = ?, data = NULL WHERE sink = ? AND id = ?",
        [(*end, *place) for place, end in changes.finished.items()],
    )
    put(_CLOSE, [(sink, *episode) for (sink, episode), delivered in changes.delivered.items() if delivered is None])
    put(
        "INSERT OR REPLACE INTO told VALUES (?, ?, ?, ?, ?, ?)",
        [(t.sink, t.run, t.rule, t.key, t.state, t.data) for t in changes.delivered.values() if t is not None],
    )


def read(database: sqlite3.Connection) -> StoredDeliveries:
    """All that is stored; raises ``sqlite3.Error``."""
    return StoredDeliveries(tuple(_queued(database)), tuple(_delivered(database)), tuple(_finished(database)))


def prune(database: sqlite3.Connection, before: float) -> None:
    """Forget the ids of messages that became final before that time (Unix seconds)."""
    database.execute("DELETE FROM deliveries WHERE outcome <> 'waiting' AND at < ?", (before,))


def abandon(database: sqlite3.Connection, names: Iterable[str], before: float, begins: Begins) -> dict[str, int]:
    """Forget what was queued before that time (Unix seconds) for none of these receivers; how much, by name.

    If a dropped message was the first of an episode, the receiver is notified again when it is back in time.
    """
    query = "SELECT sink, id, data FROM deliveries WHERE outcome = 'waiting' AND at < ?"
    known = frozenset(names)
    found = [row for row in database.execute(query, (before,)).fetchall() if row[0] not in known]
    begun = [(sink, *episode) for sink, _, data in found if (episode := begins(data)) is not None]
    database.executemany("DELETE FROM deliveries WHERE sink = ? AND id = ?", [row[:2] for row in found])
    database.executemany(_CLOSE, begun)
    return Counter(sink for sink, _, _ in found)


def forget(database: sqlite3.Connection, run: str) -> None:
    """Drop the open episodes of a run that is archived."""
    database.execute("DELETE FROM told WHERE run = ?", (run,))


def salvage(path: Path, now: float) -> DeliveryChanges:
    """What can still be read in a damaged database, row by row; nothing where nothing can. ``now`` is Unix seconds."""
    saved = DeliveryChanges()
    unreadable = (sqlite3.Error, UnicodeDecodeError)
    with suppress(*unreadable), closing(sqlite3.connect(path)) as damaged:
        with suppress(*unreadable):
            saved.delivered.update(((t.sink, (t.run, t.rule, t.key)), t) for t in _delivered(damaged) if _whole(t))
        with suppress(*unreadable):
            saved.queued.extend(queued for queued in _queued(damaged) if _whole(queued))
        with suppress(*unreadable):
            for sink, name in _finished(damaged):
                finished = QueuedMessage(sink, name, 0, "", now, b"")
                if _whole(finished):
                    saved.queued.append(finished)
                    saved.finished[sink, name] = ("delivered", now)
    return saved


def _whole(row: QueuedMessage | DeliveredAlert) -> bool:
    """Whether each value is of its kind: a damaged page may hold any."""
    text, numbers = (str,), (int, float)
    kinds = {"data": (bytes,), "at": numbers} | dict.fromkeys(("number", "tries", "bundle", "together"), (int,))
    return all(isinstance(getattr(row, one.name), kinds.get(one.name, text)) for one in fields(row))


def _queued(database: sqlite3.Connection) -> Iterator[QueuedMessage]:
    query = (
        "SELECT sink, id, number, run, at, data, tries, bundle, together FROM deliveries "
        "WHERE outcome = 'waiting' ORDER BY sink, number"
    )
    for sink, name, number, run, at, data, tries, bundle, together in database.execute(query):
        yield QueuedMessage(sink, name, number, run, at, data, tries, bundle, bool(together))


def _delivered(database: sqlite3.Connection) -> Iterator[DeliveredAlert]:
    for row in database.execute("SELECT sink, run, rule, key, state, data FROM told ORDER BY rowid"):
        yield DeliveredAlert(*row)


def _finished(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    yield from database.execute("SELECT sink, id FROM deliveries WHERE outcome <> 'waiting' ORDER BY at")
