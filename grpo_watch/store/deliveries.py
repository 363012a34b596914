"""Stores the message queue of each receiver, the alerts it was notified of, and the ids it must not get again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from grpo_watch.store.codec import encode
from grpo_watch.store.messages import FIRING, Episode, Message, MessageState, unpack

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

Place: TypeAlias = tuple[str, str]
"""A receiver and a message id."""
_WAITING_KINDS = (str, str, bytes, int, int, int, int, (int, float))
_OPEN_STATES = frozenset(state.value for state in (MessageState.NOTIFIED, MessageState.MUTED, MessageState.PASSED))
_CLOSE = "DELETE FROM told WHERE sink = ? AND run = ? AND rule = ? AND key = ?"


@dataclass(slots=True)
class DeliveryChanges:
    """The changes of one transaction, applied in the order of the fields.

    ``changed`` holds attempts and bundle of waiting messages by sink and id; ``finished`` the final state of one, and
    when (Unix seconds); ``episodes`` the open episodes by sink and episode, None for one that is over.
    """

    queued: list[Message] = field(default_factory=list)
    changed: dict[Place, tuple[int, int]] = field(default_factory=dict)
    finished: dict[Place, tuple[MessageState, float]] = field(default_factory=dict)
    episodes: dict[tuple[str, Episode], Message | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.queued or self.changed or self.finished or self.episodes)

    def add(self, later: DeliveryChanges) -> None:
        """Add later changes to these."""
        self.queued += later.queued
        self.changed |= later.changed
        self.finished |= later.finished
        self.episodes |= later.episodes

    def behind(self, queued: Iterable[Message]) -> DeliveryChanges:
        """These changes with message and bundle numbers moved behind those of the messages already waiting."""
        last = max((one.number for one in queued), default=0)
        return replace(
            self,
            queued=[replace(one, number=one.number + last) for one in self.queued],
            changed={place: (tries, bundle and bundle + last) for place, (tries, bundle) in self.changed.items()},
        )


@dataclass(frozen=True, slots=True)
class StoredDeliveries:
    """The stored deliveries: waiting messages, in order; open episodes; (sink, id) of all final messages.

    ``damaged`` are the waiting messages that can't be decoded.
    """

    queued: tuple[Message, ...] = ()
    episodes: tuple[Message, ...] = ()
    finished: tuple[Place, ...] = ()
    damaged: tuple[Place, ...] = ()

    def after(self, changes: DeliveryChanges) -> StoredDeliveries:
        """What is kept once these are stored too."""
        if not changes:
            return self
        queued = {(one.sink, one.id): one.kept(one.tries, one.bundle) for one in self.queued}
        queued = {(one.sink, one.id): one.kept(0, 0) for one in changes.queued} | queued
        for place, change in changes.changed.items():
            if place in queued:
                queued[place] = queued[place].kept(*change)
        finished = dict.fromkeys((*self.finished, *changes.finished))
        waiting = [one for place, one in queued.items() if place not in finished]
        episodes = {(one.sink, one.notification.episode): one for one in self.episodes} | changes.episodes
        return StoredDeliveries(
            tuple(sorted(waiting, key=lambda one: (one.sink, one.number))),
            tuple(one for one in episodes.values() if one is not None),
            tuple(finished),
            self.damaged,
        )


def write(database: sqlite3.Connection, changes: DeliveryChanges) -> None:
    """Apply the changes inside the current transaction; raises ``sqlite3.Error``."""
    put = database.executemany
    put(
        "INSERT OR IGNORE INTO deliveries (sink, id, number, run, outcome, tries, bundle, together, at, data) "
        "VALUES (?, ?, ?, ?, 'waiting', 0, 0, ?, ?, ?)",
        [
            (one.sink, one.id, one.number, one.notification.run, one.together, one.at, encode(one.notification))
            for one in changes.queued
        ],
    )
    put(
        "UPDATE deliveries SET tries = ?, bundle = ? WHERE sink = ? AND id = ?",
        [(*change, *place) for place, change in changes.changed.items()],
    )
    put(
        "INSERT INTO deliveries (sink, id, number, run, outcome, tries, bundle, together, at) "
        "VALUES (?, ?, 0, '', ?, 0, 0, 0, ?) "
        "ON CONFLICT (sink, id) DO UPDATE SET outcome = excluded.outcome, at = excluded.at, data = NULL",
        [(*place, state.value, at) for place, (state, at) in changes.finished.items()],
    )
    put(_CLOSE, [(sink, *episode) for (sink, episode), opened in changes.episodes.items() if opened is None])
    put(
        "INSERT OR REPLACE INTO told VALUES (?, ?, ?, ?, ?, ?)",
        [
            (sink, *episode, opened.state.value, encode(opened.notification))
            for (sink, episode), opened in changes.episodes.items()
            if opened is not None
        ],
    )


def read(database: sqlite3.Connection) -> StoredDeliveries:
    """Read everything except damaged episodes, which are sent again if they fire; raises ``sqlite3.Error``."""
    queued = list(_queued(database))
    return StoredDeliveries(
        tuple(one for one in queued if isinstance(one, Message)),
        tuple(_episodes(database)),
        tuple(_finished(database)),
        tuple(one for one in queued if not isinstance(one, Message)),
    )


def prune(database: sqlite3.Connection, before: float) -> None:
    """Delete the ids of messages that became final before ``before`` (Unix seconds)."""
    database.execute("DELETE FROM deliveries WHERE outcome <> 'waiting' AND at < ?", (before,))


def abandon(database: sqlite3.Connection, names: Iterable[str], before: float) -> dict[str, int]:
    """Delete messages from before ``before`` (Unix seconds) for receivers not in ``names``; returns counts by receiver.

    If a dropped message was the first of an episode, the receiver is notified again if it is configured again in time.
    """
    query = "SELECT sink, id, data FROM deliveries WHERE outcome = 'waiting' AND at < ?"
    known = frozenset(names)
    found = [row for row in database.execute(query, (before,)).fetchall() if row[0] not in known]
    read = [(sink, unpack(data)) for sink, _, data in found]
    begun = [(sink, *one.episode) for sink, one in read if one is not None and one.status == FIRING and not one.was]
    database.executemany("DELETE FROM deliveries WHERE sink = ? AND id = ?", [row[:2] for row in found])
    database.executemany(_CLOSE, begun)
    return Counter(sink for sink, _, _ in found)


def forget(database: sqlite3.Connection, run: str) -> None:
    """Delete the open episodes of an archived run."""
    database.execute("DELETE FROM told WHERE run = ?", (run,))


def salvage(path: Path, now: float) -> DeliveryChanges:
    """The readable rows of a damaged database, possibly none. ``now`` is Unix seconds."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as damaged:
        return taken_from(damaged, now)
    return DeliveryChanges()


def taken_from(database: sqlite3.Connection, now: float) -> DeliveryChanges:
    """All readable rows, as changes for another database; ``now`` is Unix seconds."""
    taken = DeliveryChanges()
    unreadable = (sqlite3.Error, UnicodeDecodeError)
    with suppress(*unreadable):
        taken.episodes.update(((one.sink, one.notification.episode), one) for one in _episodes(database))
    with suppress(*unreadable):
        for one in _queued(database):
            if isinstance(one, Message):
                taken.queued.append(one)
                taken.changed[one.sink, one.id] = (one.tries, one.bundle)
    with suppress(*unreadable):
        taken.finished.update((place, (MessageState.DELIVERED, now)) for place in _finished(database))
    return taken


def _queued(database: sqlite3.Connection) -> Iterator[Message | Place]:
    """The waiting messages, in order; the place of one that can't be decoded."""
    query = (
        "SELECT sink, id, data, number, tries, bundle, together, at FROM deliveries "
        "WHERE outcome = 'waiting' ORDER BY sink, number"
    )
    for sink, name, data, number, tries, bundle, together, at in _rows(database, query, *_WAITING_KINDS):
        notification = unpack(data)
        if notification is None:
            yield sink, name
            continue
        state = MessageState.GATHERING if together else MessageState.WAITING
        yield Message(sink, notification, state, number, at).kept(tries, bundle)


def _episodes(database: sqlite3.Connection) -> Iterator[Message]:
    for sink, state, data in _rows(database, "SELECT sink, state, data FROM told ORDER BY rowid", str, str, bytes):
        notification = unpack(data)
        if notification is not None and state in _OPEN_STATES:
            yield Message(sink, notification, MessageState(state))


def _finished(database: sqlite3.Connection) -> Iterator[Place]:
    yield from _rows(database, "SELECT sink, id FROM deliveries WHERE outcome <> 'waiting' ORDER BY at", str, str)


def _rows(database: sqlite3.Connection, query: str, *kinds: type | tuple[type, ...]) -> Iterator[Any]:
    """The rows whose values have these types: a damaged page may hold any."""
    for row in database.execute(query):
        if all(map(isinstance, row, kinds)):
            yield row
