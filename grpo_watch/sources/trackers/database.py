"""What the sources of trackers' SQLite databases share: read-only queries, and rows by rising number."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RunConfig, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.trackers.tracker_source import TrackerFile

MAGIC = b"SQLite format 3\0"
JOURNAL, OF_LOG = 18, 2
"""The byte that says how the database is written, and its value where a write-ahead log is."""
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
BATCH = 500
"""Rows per query: the database is open for some milliseconds only, so that its writer is not held up."""

Row: TypeAlias = "tuple[Any, ...]"


def query(path: Path, roots: Sequence[Path], sql: str, *values: object, lock: bool = True) -> list[Row]:
    """The rows of a query, read-only.

    A database with a write-ahead log is read through that of its live writer, else without making a file beside it.
    Without ``lock``, one that has none is read as it lies there, even while it is written.

    Raises:
        SourceError: the file lies outside the roots, is none of a tracker's, or can't be read.
        OSError: it is not there.
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
            return list(database.execute(sql, values))
    except sqlite3.Error as error:
        raise SourceError(f"{path}: can't be read as a tracker's database: {error}") from error


class DatabaseSource(TrackerFile):
    """Reads one run of a database by the rising numbers of its rows; see ``TrackerFile``."""

    KIND, SUFFIXES = ChannelKind.TRACKIO, (".db", ".sqlite")
    OWN_TABLES: frozenset[str]
    """Tables that its databases have."""
    ROWS: str
    """Gives a row's number and what ``take`` reads, for a run, a first number and a limit."""

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:
        """Whether a database has the tracker's tables; another program's is never locked."""
        try:
            return {str(name) for (name,) in query(path, roots, TABLES, lock=False)} >= cls.OWN_TABLES
        except (SourceError, OSError):
            return False

    @abstractmethod
    def _settings(self) -> RunConfig | None:
        """The run's settings; None where none is known.

        Raises:
            SourceError: the database can't be read.
        """

    def _over(self) -> tuple[EventKind, str] | None:
        """How the run ended, where the database says so; asked before its rows are read.

        Raises:
            SourceError: the database can't be read.
        """

    def _begin(self, cursor: Cursor | None) -> None:
        del cursor
        self._config, self._end = str(self._known.get("config") or ""), str(self._known.get("end") or "")

    def _state(self, position: int) -> dict[str, Scalar]:
        """What must be remembered across a restart at this row."""
        del position
        return {"config": self._config, "end": self._end}

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield what was logged since."""
        yield from self._give()
        try:
            over = self._over()
            yield from self._configure()
            while batch := self._query(self.ROWS, self._run, self._feed.read_to, BATCH):
                for number, *record in batch:
                    self._feed.read_to = number + 1
                    self.take(number, number + 1, record, seen)
                    yield from self._give()
            if over is not None and over[0].value != self._end:
                yield from self._flush(seen)
                self.stats.records += 1
                self._end = over[0].value
                yield self._event(*over, step=self._feed.last, seen=seen)
            self._end = self._end if over is not None else ""
            self.stats.problem = ""
        except FileNotFoundError:
            return
        except (SourceError, OSError) as error:
            self.stats.problem = str(error)

    def finish(self) -> Iterator[Item]:
        """Yield the newest step."""
        yield from self.poll(None)
        yield from super().finish()

    def cursor(self) -> Cursor:
        """The first row of the step held back."""
        position, known = self._position()
        return Cursor(self.name, "", position, {**known, **self._state(position)})

    def close(self) -> None:
        """Nothing stays open."""

    def _configure(self) -> Iterator[Item]:
        config = self._settings()
        shown = repr(config)
        if config is not None and shown != self._config:
            self._config = shown
            self.stats.records += 1
            yield config

    def _query(self, sql: str, *values: object) -> list[Row]:
        return query(self._path, self._roots, sql, *values)
