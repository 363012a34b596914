"""Stores the items the daemon was fed, its cursors and its conclusions, so that a restart loses nothing.

Items, cursors, transitions and alerts of a batch are committed in one transaction: they can't disagree after a crash.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.records import Cursor, Item, Transition
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import GrpoWatchError, StateNotReadyError
from grpo_watch.store import codec, deliveries
from grpo_watch.store.database import FILE, SUSPECT, could_open, in_memory, open_database, put_aside
from grpo_watch.store.lock import StateLock

BLOCK_ITEMS = 512
BLOCK_BYTES = 8 * 1024
"""A block is sealed at this many items or encoded bytes; until then each commit of a row compresses it again. Blocks
four times as large took a fifth of the cost of a live row and are a sixth smaller on disk."""
LEDGER_SECONDS = 30 * 86_400.0
"""Seconds for which ids of final messages are kept."""


class StoreError(GrpoWatchError):
    """The state can't be written or read now; monitoring continues without it."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A stored run; times are Unix seconds. ``noted`` is when its end was noticed.

    ``archived`` runs no longer have items and cursors: their files are read again if they continue.
    """

    name: str
    ended: float | None = None
    noted: float | None = None
    verdict: str | None = None
    archived: bool | int = False


@dataclass(slots=True)
class StoredBatch:
    """A run's changes in one transaction. ``items`` are encoded by ``codec.encode_item``; ``at`` is Unix seconds.

    ``alerts`` and ``fingerprints`` replace those stored under the same keys; ``backlog`` marks transitions from before
    the run was first seen; ``looked``: everything it held when first seen has been read.
    """

    run: str
    at: float
    items: list[bytes] = field(default_factory=list)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    alerts: dict[tuple[str, str], Alert] = field(default_factory=dict)
    fingerprints: Mapping[str, str] | None = None
    snapshot: RunSnapshot | None = None
    history: bytes | None = None
    ended: float | None = None
    backlog: bool = False
    looked: bool = False


@dataclass(slots=True)
class _Tail:
    """A run's newest block, not sealed yet."""

    block: int = 0
    items: list[bytes] = field(default_factory=list)
    size: int = 0


class Store:
    """The state of one daemon, in one directory, held by a lock until ``close``.

    If the state can't be opened at present (full, locked), it is kept in memory, and ``missing`` says why.

    Args:
        folder: the directory.
        now: Unix seconds.
        mounts: where the mounted file systems are listed.
        began: when a daemon that kept its state in memory began, whose place this one takes (Unix seconds).

    Raises:
        StateInUseError: another daemon holds the directory.
        UsageError: it can't be written.
    """

    def __init__(
        self, folder: Path, now: float, mounts: Path = Path("/proc/self/mounts"), *, began: float | None = None
    ) -> None:
        self.folder = folder
        self.missing = ""
        self._lock = StateLock(folder)
        try:
            self._database = open_database(folder, now, mounts)
        except StateNotReadyError as error:
            self.missing, self._database = str(error), in_memory()
        except BaseException:
            self._lock.release()
            raise
        self._numbers: dict[str, int] = dict(self._database.execute("SELECT name, id FROM runs").fetchall())
        self._tails: dict[str, _Tail] = {}
        self.started = _started(self._database, now if began is None else began)
        """When the first daemon with this state began (Unix seconds)."""
        self._node = None if self.missing else _node(folder)
        damaged = put_aside(folder, now)
        if damaged.exists():
            self.commit((), deliveries.salvage(damaged, now))

    def could_be_kept(self) -> bool:
        """Whether a state in memory could be opened on disk now."""
        return could_open(self.folder)

    def handover(self, now: float) -> deliveries.DeliveryChanges:
        """The messages, open episodes and ids of what is done (at ``now``, Unix seconds), for another store."""
        return deliveries.taken_from(self._database, now)

    def close(self) -> None:
        """Close the database and release the directory."""
        self._database.close()
        self._lock.release()

    def size(self) -> int:
        """Bytes of state on disk."""
        paths = (self.folder / f"{FILE}{suffix}" for suffix in ("", "-wal"))
        return sum(path.stat().st_size for path in paths if path.exists())

    # reading

    def runs(self) -> list[StoredRun]:
        """All runs, in order of first sight."""
        query = "SELECT name, ended, noted, verdict, archived FROM runs ORDER BY id"
        with _reading():
            rows = self._database.execute(query).fetchall()
        return [StoredRun(*row) for row in rows]

    def read_files(self) -> frozenset[str]:
        """Absolute paths of the files that any source has read."""
        query = "SELECT identity, source FROM cursors JOIN runs ON cursors.run = runs.id"
        with _reading():
            rows = self._database.execute(query).fetchall()
        return frozenset(str(Path(identity, source)) for identity, source in rows) | {row[0] for row in rows}

    def snapshot(self, run: str) -> RunSnapshot | None:
        """The newest stored snapshot of a run; None if there is none."""
        with _reading():
            found = self._one("SELECT snapshot FROM runs WHERE id = ?", run)
            return None if found is None else codec.decode(RunSnapshot, found)

    def history(self, run: str) -> bytes | None:
        """The packed detail of an ended run; None if there is none."""
        with _reading():
            return self._one("SELECT history FROM runs WHERE id = ?", run)

    def items(self, run: str) -> Iterator[Item]:
        """The items that the pipeline was fed for a run, in order. Raises ``StoreError`` if a block is damaged."""
        with _reading():
            query = "SELECT block FROM items WHERE run = ? ORDER BY block"
            blocks = [block for (block,) in self._all(query, run)]
        for block in blocks:
            with _reading():
                query = "SELECT data FROM items WHERE run = ? AND block = ?"
                (data,) = self._database.execute(query, (self._numbers[run], block)).fetchone()
                items = codec.decode_block(data)
            yield from items

    def cursors(self, run: str) -> dict[str, Cursor]:
        """The cursor of each source of a run."""
        with _reading():
            rows = self._all("SELECT source, data FROM cursors WHERE run = ?", run)
            return {source: codec.decode(Cursor, data) for source, data in rows}

    def alerts(self, run: str) -> dict[tuple[str, str], Alert]:
        """The state of each alert of a run, by rule and key."""
        with _reading():
            rows = self._all("SELECT rule, key, data FROM alerts WHERE run = ?", run)
            return {(rule, key): codec.decode(Alert, data) for rule, key, data in rows}

    def fingerprints(self, run: str) -> dict[str, str]:
        """The fingerprint of each rule on which the run's alerts rest."""
        with _reading():
            return dict(self._all("SELECT rule, value FROM fingerprints WHERE run = ?", run))

    def looked(self, run: str) -> bool:
        """Whether everything the run held when first seen has been read."""
        with _reading():
            return bool(self._all("SELECT looked FROM runs WHERE id = ?", run)[0][0])

    def messages(self) -> deliveries.StoredDeliveries:
        """The waiting messages, the open episodes and the ids of final messages."""
        with _reading():
            return deliveries.read(self._database)

    def name_of(self, identity: str) -> str | None:
        """The name of the run with this identity; None if unknown."""
        with _reading():
            found = self._database.execute("SELECT name FROM runs WHERE identity = ?", (identity,)).fetchone()
        return str(found[0]) if found is not None else None

    # writing

    def register(self, identity: str, wanted: str, now: float) -> str:
        """The name of the run with this identity (its path): the stored one, else ``wanted``, made unique.

        A name that another run holds is prefixed with parents of the identity until it is free.
        """
        known = self.name_of(identity)
        if known is not None:
            return known
        with _reading():
            name = _free(wanted, identity, self._numbers)
            insert = "INSERT INTO runs (name, identity, first_seen) VALUES (?, ?, ?)"
            number = self._database.execute(insert, (name, identity, now)).lastrowid
        self._numbers[name] = number or 0
        return name

    def commit(self, batches: Sequence[StoredBatch], sent: deliveries.DeliveryChanges | None = None) -> None:
        """Store all batches and the changes of message queues in one transaction.

        Raises:
            StoreError: nothing was stored (disk full, read-only, …).
        """
        tails: dict[str, _Tail] = {}
        with self._transaction():
            for batch in batches:
                if batch.items:
                    tails[batch.run] = self._append(batch.run, batch.items, tails.get(batch.run))
                self._write(batch)
            if sent:
                deliveries.write(self._database, sent)
        self._tails.update(tails)

    def forget(self, run: str) -> None:
        """Delete a run's items and cursors, so that it is read again; its alerts stay."""
        with self._transaction():
            self._drop_items(run, archived=False)

    def reopen(self, run: str) -> None:
        """Mark an ended run as continuing."""
        with self._transaction():
            self._run("UPDATE runs SET ended = NULL, noted = NULL WHERE id = ?", run)

    def prune(self, now: float, days: float, max_bytes: float) -> list[str]:
        """Archive runs that ended more than ``days`` ago, then the oldest ended ones while the state is too large.

        Returns their names. A run that still continues is never touched.
        """
        with _reading():
            deliveries.prune(self._database, now - LEDGER_SECONDS)
        ended = sorted((run.ended, run.name) for run in self.runs() if run.ended is not None and not run.archived)
        archived: list[str] = []
        for moment, name in ended:
            if moment > now - days * 86_400 and self.size() <= max_bytes:
                break
            with self._transaction():
                self._drop_items(name, archived=True)
                deliveries.forget(self._database, name)
            with _reading():
                self._database.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")
            archived.append(name)
        return archived

    def abandon(self, names: Iterable[str], before: float) -> dict[str, int]:
        """Drop messages waiting since before ``before`` for receivers not in ``names``; returns counts by receiver."""
        with self._transaction():
            return deliveries.abandon(self._database, names, before)

    def _drop_items(self, run: str, *, archived: bool) -> None:
        self._run("DELETE FROM items WHERE run = ?", run)
        self._run("DELETE FROM cursors WHERE run = ?", run)
        self._database.execute("UPDATE runs SET archived = ? WHERE id = ?", (archived, self._numbers[run]))
        self._tails.pop(run, None)

    def _append(self, run: str, items: Iterable[bytes], tail: _Tail | None) -> _Tail:
        """Write items after the newest block; returns the block that is then open."""
        old = tail or self._tails.get(run) or self._stored_tail(run)
        tail = _Tail(old.block, list(old.items), old.size)
        for item in items:
            if len(tail.items) >= BLOCK_ITEMS or tail.size >= BLOCK_BYTES:
                self._put(run, tail)
                tail = _Tail(tail.block + 1)
            tail.items.append(item)
            tail.size += len(item)
        self._put(run, tail)
        return tail

    def _put(self, run: str, tail: _Tail) -> None:
        row = (self._numbers[run], tail.block, len(tail.items), codec.encode_block(tail.items))
        self._database.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)", row)

    def _stored_tail(self, run: str) -> _Tail:
        rows = self._all("SELECT block, data FROM items WHERE run = ? ORDER BY block DESC LIMIT 1", run)
        if not rows:
            return _Tail()
        items = codec.split_block(rows[0][1])
        return _Tail(rows[0][0], items, sum(map(len, items)))

    def _write(self, batch: StoredBatch) -> None:
        number = self._numbers[batch.run]
        put = self._database.executemany
        cursors = [(number, source, codec.encode(cursor)) for source, cursor in batch.cursors.items()]
        put("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)", cursors)
        reached = [(t.id, number, batch.at, batch.backlog, codec.encode(t)) for t in batch.transitions]
        put("INSERT OR IGNORE INTO transitions (id, run, at, backlog, data) VALUES (?, ?, ?, ?, ?)", reached)
        alerts = [(number, rule, key, codec.encode(alert)) for (rule, key), alert in batch.alerts.items()]
        put("INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?)", alerts)
        if batch.fingerprints is not None:
            self._run("DELETE FROM fingerprints WHERE run = ?", batch.run)
            prints = [(number, rule, value) for rule, value in batch.fingerprints.items()]
            put("INSERT INTO fingerprints VALUES (?, ?, ?)", prints)
        if batch.snapshot is not None:
            values = (codec.encode(batch.snapshot), batch.snapshot.verdict.value, number)
            self._database.execute("UPDATE runs SET snapshot = ?, verdict = ? WHERE id = ?", values)
        if batch.looked:
            self._run("UPDATE runs SET looked = 1 WHERE id = ?", batch.run)
        if batch.ended is not None:
            ended = (batch.ended, batch.at, batch.history, number)
            self._database.execute("UPDATE runs SET ended = ?, noted = ?, history = ? WHERE id = ?", ended)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _reading():
            # SQLite would continue writing to an unlinked file
            if not self.missing and self._node != _node(self.folder):
                raise StoreError(f"state: {self.folder / FILE} was removed or replaced; restart grpo-watch")
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException as error:
                # damage; errors of the machine or the statement are of a subclass
                if type(error) is sqlite3.DatabaseError:
                    with suppress(OSError):
                        (self.folder / SUSPECT).touch()
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _run(self, statement: str, run: str) -> None:
        self._database.execute(statement, (self._numbers[run],))

    def _all(self, query: str, run: str) -> list[Any]:
        return self._database.execute(query, (self._numbers[run],)).fetchall()

    def _one(self, query: str, run: str) -> bytes | None:
        found: bytes | None = self._all(query, run)[0][0]
        return found


@contextmanager
def _reading() -> Iterator[None]:
    """Turn errors of the database or its content into a one-line ``StoreError``."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"state: {error}") from error
    except codec.DECODE_ERRORS as error:
        raise StoreError(f"state: a damaged record: {error}") from error


def _started(database: sqlite3.Connection, now: float) -> float:
    database.execute("CREATE TABLE IF NOT EXISTS started (at REAL NOT NULL)")
    database.execute("INSERT INTO started SELECT ? WHERE NOT EXISTS (SELECT at FROM started)", (now,))
    (at,) = database.execute("SELECT at FROM started").fetchone()
    return float(at)


def _node(folder: Path) -> int | None:
    """The inode of the database; None if it is missing."""
    try:
        return (folder / FILE).stat().st_ino
    except OSError:
        return None


def slug(run: str) -> str:
    """A run's name as one path segment of the API; a name that has to be changed gets a mark of the original."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", run)
    if plain == run and run not in {".", ".."}:
        return run
    return f"{plain.strip('-.')}-{hashlib.blake2b(run.encode('utf-8', 'replace'), digest_size=3).hexdigest()}"


def _free(wanted: str, identity: str, taken: Mapping[str, int]) -> str:
    parts = Path(identity).parts
    names = [wanted, *("/".join(parts[-length:]).lstrip("/") for length in range(2, len(parts) + 1))]
    numbered = (f"{wanted} ({number})" for number in range(2, len(taken) + 3))
    return next(name for name in (*names, *numbered) if name not in taken)
