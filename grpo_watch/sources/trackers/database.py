"""Common parts of sources of trackers' SQLite databases: read-only queries, rows by rising number."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RunConfig, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import BUDGET, open_regular
from grpo_watch.sources.trackers.tracker_source import TrackerFile

MAGIC = b"SQLite format 3\0"
JOURNAL, OF_LOG = 18, 2
"""The byte of the journal mode, and its value for a write-ahead log."""
PLAIN = (
    "SELECT m.name FROM sqlite_master m WHERE type = 'table' AND rootpage > 0"
    " AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(m.name) WHERE hidden)"
)
"""Tables with stored values: views, virtual tables and generated columns can turn a few bytes into gigabytes."""
BATCH = 500
"""Rows per query: the database is open for only some milliseconds, so its writer is not held up."""
STEPS = 200_000_000
"""Instructions of SQLite's machine that a query may take, some seconds: 30 million rows of other runs. Pages of a
malicious database may lead to each other without end."""
LONGEST_TEXT = 32 << 20
"""Most characters of a value that is read; values of twice as many bytes are not loaded (Python 3.11 and newer)."""
LAST = 2**63 - 1
"""SQLite's largest row number."""

Row: TypeAlias = "tuple[Any, ...]"


class NoTableError(SourceError):
    """A database lacks a table, or has none with stored values."""


class TooLongError(SourceError):
    """A value is too long to be loaded."""


def query(
    path: Path, roots: Sequence[Path], tables: frozenset[str], sql: str, *values: object, lock: bool = True
) -> list[Row]:
    """Return the rows of a read-only query, up to ``BUDGET`` bytes and one row; ``tables``: those that it reads.

    A database with a write-ahead log is read through its live writer's log, or without creating a file beside it.
    Without ``lock``, a database without such a log is read as it is, even while it is written.

    Raises:
        NoTableError: it lacks one of the tables.
        TooLongError: a value in the query has more than twice ``LONGEST_TEXT`` bytes.
        SourceError: the file lies outside the roots, is no tracker's database, or can't be read.
        OSError: it does not exist.
    """
    import sqlite3  # noqa: PLC0415 (only where there is such a database)

    with os.fdopen(open_regular(path, roots), "rb") as file:
        head = file.read(JOURNAL + 1)
    if not head.startswith(MAGIC):
        raise SourceError(f"{path}: no database")
    still = (head[JOURNAL:] == bytes((OF_LOG,)) or not lock) and not path.with_name(f"{path.name}-wal").exists()
    mode = "immutable=1" if still else "mode=ro"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=1.0)) as database:
            database.text_factory = lambda data: data.decode("utf-8", "replace")  # broken text hides no other row
            database.set_progress_handler(lambda: 1, STEPS)
            if sys.version_info >= (3, 11):
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LONGEST_TEXT)
            database.execute("BEGIN")  # the tables stay the same until the rows are read
            lacking = tables.difference(name for (name,) in _bounded(database.execute(PLAIN)))
            if lacking:
                raise NoTableError(f"{path}: no plain table {min(lacking)}")
            return _bounded(database.execute(sql, values))
    except sqlite3.DataError as error:
        raise TooLongError(f"{path}: {error}") from error
    except sqlite3.Error as error:
        raise SourceError(f"{path}: can't be read as a tracker's database: {error}") from error


def _bounded(rows: Iterable[Row]) -> list[Row]:
    found: list[Row] = []
    size = 0
    for row in rows:
        found.append(row)
        size += row_size(row)
        if size >= BUDGET:
            break
    return found


def row_size(row: Iterable[object]) -> int:
    """Estimate the bytes that a row's values take."""
    return sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)


class DatabaseSource(TrackerFile):
    """Reads one run of a database by the rising numbers of its rows; see ``TrackerFile``."""

    KIND = ChannelKind.TRACKIO
    SUFFIXES: tuple[str, ...] = (".db", ".sqlite")
    OWN_TABLES: frozenset[str]
    """Tables of its databases; no other table is read."""
    ROWS: str
    """Query for the row number and the values for ``read_record``, given a run, a first number and a limit."""
    NUMBERS = ""
    """The same query without values that may be too long to load; empty if there are none."""

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:
        """Whether a database has the tracker's tables; another program's database is never locked."""
        try:
            return bool(query(path, roots, cls.OWN_TABLES, "SELECT 1", lock=False))
        except (SourceError, OSError):
            return False

    @abstractmethod
    def _settings(self) -> RunConfig | None:
        """Return the run's settings; None if none is known."""

    def _over(self) -> tuple[EventKind, str] | None:
        """Return how the run ended, if the database records it; called before its rows are read."""

    def _open(self) -> None:
        self._end = str(self._known.get("end") or "")

    def _state(self, position: int) -> dict[str, Scalar]:
        """Return the state to keep across a restart at this row."""
        del position
        return {"config": self._config, "end": self._end}

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._budget.begin(0, live=seen is not None)
        yield from self._give()
        try:
            over = self._over()
            if (config := self._new_config(self._settings())) is not None:
                yield config
            yield from self._read(seen)
            self.stats.problem = ""
            if self._budget.spent:
                return
            if over is not None and over[0].value != self._end:
                yield from self._flush(seen)
                self._end = over[0].value
                yield self._event(*over, step=self._feed.last, seen=seen)
            self._end = self._end if over is not None else ""
        except FileNotFoundError:
            return
        except (SourceError, OSError) as error:
            self.stats.problem = str(error)

    def _read(self, seen: float | None) -> Iterator[Item]:
        """Yield the items of new rows, up to the turn's limit.

        Raises:
            SourceError: the database can't be read, or its rows have no rising numbers.
        """
        size = 0
        while batch := self._batch(self.OWN_TABLES, self.ROWS, self.NUMBERS, self._feed.read_to):
            for number, *record in batch:
                if type(number) is not int or not self._feed.read_to <= number < LAST:
                    raise SourceError(f"{self._path}: rows without rising numbers; not read further")
                self._feed.read_to = number + 1
                self.read_record(number, number + 1, record, seen)
                yield from self._give()
                size += row_size(record)
                if self._budget.ends(size):
                    return

    def _rest(self) -> Iterator[Item]:
        yield from self._new(None)
        yield from super()._rest()

    def cursor(self) -> Cursor:
        """The cursor of the first row of the held-back step."""
        position, known = self._position()
        return Cursor(self.name, "", position, {**known, **self._state(position)})

    def _batch(self, tables: frozenset[str], sql: str, numbers: str, start: int) -> list[Row]:
        """Return the run's next rows; for a row too long to load, the result of ``numbers``."""
        ask = partial(query, self._path, self._roots, tables)

        def alone(row: Row) -> list[Row]:
            try:
                return ask(sql, self._run, row[0], 1)
            except TooLongError:
                return [row]

        try:
            return ask(sql, self._run, start, BATCH)
        except TooLongError:
            if not numbers:
                raise
            return _bounded(chain.from_iterable(map(alone, ask(numbers, self._run, start, BATCH))))

    def _query(self, sql: str, *values: object) -> list[Row]:
        return query(self._path, self._roots, self.OWN_TABLES, sql, *values)
