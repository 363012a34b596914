"""Opens the state database: schema, journal mode for the file system, damaged files moved aside."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import deque
from contextlib import suppress
from pathlib import Path

from grpo_watch.errors import StateNotReadyError, UsageError
from grpo_watch.mounts import MOUNTS, network_type
from grpo_watch.store import deliveries
from grpo_watch.store.lock import FULL

FILE = "state.db"
OWNER_READS = 0o600
VERSION = 2
MARK = 0x67_77_00_00
"""The application's id in SQLite's header is this (``gw``) plus the format: the version a second time, so that a
damaged version is not taken for a newer program's, nor for an older one's, whose upgrade would drop tables."""
CHECKED_BYTES = 64 * 1024 * 1024
"""Larger databases are not checked page by page at the start (0.3 s at this size); damage shows when it is read …"""
SUSPECT = "state.suspect"
"""… and this file makes the next start run the check, however long it takes."""

SCHEMA = f"""
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, identity TEXT NOT NULL UNIQUE, first_seen REAL NOT NULL,
    ended REAL, noted REAL, verdict TEXT, archived INTEGER NOT NULL DEFAULT 0, snapshot BLOB, history BLOB,
    looked INTEGER NOT NULL DEFAULT 0);
CREATE TABLE items (
    run INTEGER NOT NULL, block INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (run, block)) WITHOUT ROWID;
CREATE TABLE cursors (run INTEGER NOT NULL, source TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, source));
CREATE TABLE transitions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run INTEGER NOT NULL, at REAL NOT NULL,
    backlog INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX transitions_of_run ON transitions (run, number);
CREATE TABLE alerts (
    run INTEGER NOT NULL, rule TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, rule, key));
CREATE TABLE fingerprints (run INTEGER NOT NULL, rule TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run, rule));
{deliveries.SCHEMA}
"""
UPGRADES = {
    1: (
        "DROP TABLE deliveries",
        "ALTER TABLE runs ADD COLUMN looked INTEGER NOT NULL DEFAULT 0",
        "UPDATE runs SET looked = 1",
        deliveries.SCHEMA,
    )
}
"""Statements that turn a database of this version into the next one."""

OF_THE_MACHINE = (
    "disk is full",
    "disk I/O error",
    "readonly",
    "unable to open",
    "is locked",
    "access permission denied",
    "locking protocol",
)
"""SQLite's messages for errors that are not the file's fault; ``sqlite_errorcode`` only exists from Python 3.11 on."""
PASSING = ("disk is full", "disk I/O error", "is locked", "locking protocol")
"""Those that pass by themselves: somebody frees space, or unlocks the file."""
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors that a damaged file raises, among other causes; the second when a message quotes a damaged page."""
_READ_FIRST = (
    "SELECT id, name, identity, first_seen, ended, noted, verdict, archived, looked FROM runs",
    "SELECT snapshot, history FROM runs LIMIT 0",
    "SELECT run, block, count, data FROM items LIMIT 0",
    "SELECT run, source, data FROM cursors LIMIT 0",
    "SELECT number, id, run, at, backlog, data FROM transitions LIMIT 0",
    "SELECT run, rule, key, data FROM alerts LIMIT 0",
    "SELECT run, rule, value FROM fingerprints LIMIT 0",
    "SELECT sink, id, number, run, at, data, tries, bundle, together, outcome FROM deliveries",
    "SELECT sink, run, rule, key, state, data FROM told",
)
"""All data a daemon needs at the start, and every column of every table: run even on a database that is not checked."""

log = logging.getLogger("grpo_watch.store")


def open_database(folder: Path, now: float, mounts: Path = MOUNTS) -> sqlite3.Connection:
    """Open or create the state database of ``folder``. A damaged one is renamed and replaced by a new one.

    Args:
        folder: an existing directory, locked by the caller.
        now: Unix seconds, for the name of a damaged file.
        mounts: the file that lists mounted file systems.

    Raises:
        StateNotReadyError: it can't be opened or written now (full, locked).
        UsageError: it can't be opened or written (read-only, written by a newer version).
    """
    path = folder / FILE
    journal = _journal(folder, mounts)
    if journal == "DELETE":
        log.warning("state is on a network file system; a local --state-dir is faster", extra=_fields(path))
    try:
        try:
            return _connect(path, journal)
        except DAMAGE as error:
            if not _to_blame(error):
                raise
            aside = _put_aside(path, now)
            log.error(  # noqa: TRY400  the file is to blame, a traceback says nothing
                "the state database is damaged; moved it aside and created a new one",
                extra=_fields(path, kept=str(aside), error=str(error)),
            )
            return _connect(path, journal)
    except (sqlite3.Error, OSError) as error:
        passes = any(words in str(error) for words in PASSING) or getattr(error, "errno", 0) in FULL
        kind = StateNotReadyError if passes else UsageError
        raise kind(f"{path}: state can't be kept there: {error} (give another --state-dir)") from None


def could_open(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Whether ``open_database`` would succeed now; a damaged file is left in place and counts as replaceable."""
    try:
        _connect(folder / FILE, _journal(folder, mounts), wait=0.0).close()
    except DAMAGE as error:
        return _to_blame(error)
    except (sqlite3.Error, OSError, UsageError):
        return False
    return True


def in_memory() -> sqlite3.Connection:
    """A database that ends with the process, for a state that can't be opened."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.executescript(SCHEMA)
    return database


def _journal(folder: Path, mounts: Path) -> str:
    return "DELETE" if network_type(folder, mounts) else "WAL"


def _to_blame(error: Exception) -> bool:
    """Whether the file is damaged, rather than the machine at fault."""
    passes = isinstance(error, sqlite3.OperationalError) and any(words in str(error) for words in OF_THE_MACHINE)
    return not passes


def _connect(path: Path, journal: str, wait: float = 1.0) -> sqlite3.Connection:
    _keep_private(path)
    database = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA cache_size = -2000")
        _prepare(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _keep_private(path: Path) -> None:
    """Restrict the database to its owner; SQLite gives the files next to it the same mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_READS)
    with suppress(OSError):  # somebody else's file, or a file system without modes
        os.fchmod(descriptor, OWNER_READS)
    os.close(descriptor)


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    version = _format(database)
    if version > VERSION:
        raise UsageError(f"{path}: written by a newer grpo-watch (format {version}); upgrade, or give --state-dir")
    if version == 0:
        database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {_numbered(VERSION)}; COMMIT")
    elif path.stat().st_size <= CHECKED_BYTES or path.with_name(SUSPECT).exists():
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        path.with_name(SUSPECT).unlink(missing_ok=True)
    for older in range(version or VERSION, VERSION):
        script = "; ".join(UPGRADES[older])
        database.executescript(f"BEGIN IMMEDIATE; {script} {_numbered(older + 1)}; COMMIT")
    for query in _READ_FIRST:
        deque(database.execute(query), maxlen=0)
    database.executescript(f"BEGIN IMMEDIATE; {_numbered(VERSION)}; COMMIT")  # a read-only or full disk shows here


def _numbered(version: int) -> str:
    return f"PRAGMA user_version = {version}; PRAGMA application_id = {MARK + version}"


def _format(database: sqlite3.Connection) -> int:
    """The format version, 0 for an empty file.

    Raises:
        sqlite3.DatabaseError: the header is damaged.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (mark,) = database.execute("PRAGMA application_id").fetchone()
    unmarked = mark == 0 and 0 <= version <= VERSION  # it is new, or made before there was a mark
    if not unmarked and mark != MARK + version:
        raise sqlite3.DatabaseError(f"the header says format {version}, and {mark:#x}, which is not the same")
    return int(version)


def _put_aside(path: Path, now: float) -> Path:
    aside = put_aside(path.parent, now)
    path.rename(aside)
    path.with_name(SUSPECT).unlink(missing_ok=True)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    with suppress(FileNotFoundError):  # the newest deliveries may only be in the WAL
        path.with_name(f"{path.name}-wal").rename(f"{aside}-wal")
    return aside


def put_aside(folder: Path, now: float) -> Path:
    """The path to which a database of ``folder`` found damaged at ``now`` is renamed."""
    return folder / f"{FILE}.damaged-{int(now)}"


def _fields(path: Path, **more: str) -> dict[str, dict[str, str]]:
    return {"fields": {"path": str(path), **more}}
