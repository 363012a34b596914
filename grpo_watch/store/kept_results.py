"""Stores results of finished pieces of work in a SQLite file, so that interrupted work can resume."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from grpo_watch.errors import UsageError

SCHEMA = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID"
APPLICATION = 0x67_77_72_31
"""The application id in SQLite's header: another program's file is refused, not written to."""


class KeptResults:
    """The results in a file, by a key that changes with everything the result depends on.

    Raises:
        UsageError: the file is another program's, or can't be written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            with closing(sqlite3.connect(file)) as database:
                (mark,) = database.execute("PRAGMA application_id").fetchone()
                (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if mark != APPLICATION and tables:
                    raise UsageError(f"{file}: not a file of results; name another one")
                database.execute(f"PRAGMA application_id = {APPLICATION}")
                database.execute(SCHEMA)
                database.commit()
        except sqlite3.Error as error:
            raise UsageError(f"{file}: can't be used for results: {error}") from None

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The stored results among these keys."""
        with closing(sqlite3.connect(self._file)) as database:
            found = (database.execute("SELECT key, data FROM results WHERE key = ?", (key,)).fetchone() for key in keys)
            return dict(row for row in found if row is not None)

    def put(self, key: str, data: bytes) -> None:
        """Store a result; it is on disk when this returns."""
        with closing(sqlite3.connect(self._file)) as database:
            database.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, data))
            database.commit()
