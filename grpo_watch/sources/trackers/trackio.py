"""Reads trackio's SQLite database, read-only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.jsonl import decode
from grpo_watch.sources.rows.step_assembly import BOTH
from grpo_watch.sources.settings.logged_config import logged_config
from grpo_watch.sources.trackers.tfevents import AT_END, END
from grpo_watch.sources.trackers.tracker_source import TrackerSource, iso_seconds

MAGIC = b"SQLite format 3\0"
TABLES = (b"CREATE TABLE metrics", b"CREATE TABLE configs", b"run_name")
"""All stand on the first page of trackio's database (0.20 to 0.43), which holds the definitions of its tables."""
HEAD = 256 << 10
NAMES = (
    "SELECT run_name FROM configs UNION SELECT run_name FROM (SELECT run_name FROM metrics ORDER BY id DESC LIMIT 100)"
)
"""Every run has a configuration once it logged; the newest rows are looked at for those that have none."""


def is_database(path: Path, head: bytes, roots: Sequence[Path]) -> bool:
    """Whether a file that begins with ``head`` is trackio's; its tables may still be in the log next to it."""
    if not head.startswith(MAGIC):
        return False
    try:
        with os.fdopen(open_regular(path.with_name(f"{path.name}-wal"), roots), "rb") as log:
            head += log.read(HEAD)
    except (SourceError, OSError):
        pass
    return all(text in head for text in TABLES)


def query(path: Path, roots: Sequence[Path], sql: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a query, read-only: through the write-ahead log of a live writer, else without any lock or file.

    Raises:
        SourceError: the file lies outside the roots, is none of trackio's, or can't be read.
        OSError: it is not there.
    """
    import sqlite3  # noqa: PLC0415 (only where there is such a database)

    os.close(open_regular(path, roots))
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=1.0)) as database:
            return list(database.execute(sql, values))
    except sqlite3.Error as error:
        raise SourceError(f"{path}: can't be read as a database of trackio: {error}") from error


def run_names(path: Path, roots: Sequence[Path]) -> list[str]:
    """Names of the runs in a database, sorted; none where it can't be read."""
    try:
        return sorted(str(name) for (name,) in query(path, roots, NAMES))
    except (SourceError, OSError):
        return []


BATCH = 500
"""Rows per query: the database is open for some milliseconds only, so that a checkpoint of its log is not held up."""
ROWS = "SELECT id, timestamp, step, metrics FROM metrics WHERE run_name = ? AND id >= ? ORDER BY id LIMIT ?"
CONFIG = "SELECT config FROM configs WHERE run_name = ? ORDER BY id DESC LIMIT 1"
NOT_YET = -1


class TrackioSource(TrackerSource):
    """Reads one run of a project's database (schemas of trackio 0.20 to 0.43).

    trackio's own ``step`` counts calls; rows are joined by the step that the framework logs, or by that counter in a
    run that never logs one. NaN and infinities come as texts.

    Args:
        name: the channel's name.
        path: the database.
        roots: folders that links may not lead out of.
        run: the run's name in it.
        group_size: G as configured, asked at each completions table.
        segment: order among the files of this kind.
        cursor: where an earlier reader stopped.
        examples: what summaries carry of the texts.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (the arguments that all sources share, and three of its own)
        self,
        name: str,
        path: Path,
        roots: Sequence[Path],
        run: str,
        group_size: Callable[[], int | None],
        segment: int = 0,
        cursor: Cursor | None = None,
        *,
        examples: KeptTexts = KeptTexts.EXCERPT,
    ) -> None:
        super().__init__(name, ChannelKind.TRACKIO, group_size, segment, cursor, examples=examples)
        self._path, self._roots, self._run = path, tuple(roots), run
        self._last_config = str(self._known.get("config") or "")
        ended = row_numbers.whole(self._known.get("ended"))
        self._ended = NOT_YET if ended is None else ended

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield what was logged since."""
        yield from self._give()
        try:
            yield from self._configure()
            while batch := query(self._path, self._roots, ROWS, self._run, self._feed.read_to, BATCH):
                for order, logged, counter, metrics in batch:
                    self._feed.read_to = order + 1
                    self._take(order, (logged, counter, metrics), seen)
                    yield from self._give()
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
        position, known = self._position(config=self._last_config)
        return Cursor(self.name, "", position, {**known, "ended": self._ended if position == self._ended else NOT_YET})

    def close(self) -> None:
        """Nothing stays open."""

    def _configure(self) -> Iterator[Item]:
        for (text,) in query(self._path, self._roots, CONFIG, self._run):
            config = logged_config(decode(_bytes(text)) or {}, "trackio config", self.name, self.segment)
            shown = repr(config)
            if config is not None and shown != self._last_config:
                self._last_config = shown
                self.stats.records += 1
                yield config

    def _take(self, order: int, stored: tuple[object, object, object], seen: float | None) -> None:
        logged, counter, metrics = stored
        row = decode(_bytes(metrics))
        if row is None:
            self.stats.skip(Skip.NOT_JSON, f"row {order}: no JSON object")
            return
        self.stats.bytes += len(_bytes(metrics))
        table = any(isinstance(value, dict) and "_type" in value for value in row.values())
        values = self._values(row, f"row {order}", table=table)
        step, ends = self._step(row, values, counter), END in row
        values = {key: value for key, value in values.items() if key not in AT_END}
        if order != self._ended and not (ends and values.keys() <= BOTH):
            self._feed.add(order, step, values, iso_seconds(logged), seen)
        self._take_tables(order, row, step, seen)
        if ends:
            self._ended = order
            self._feed.flush(order, seen)
            self._feed.say(order, self._event(EventKind.FINISHED, step=self._feed.last, seen=seen), order + 1)

    def _take_tables(self, order: int, row: Mapping[str, object], step: int | None, seen: float | None) -> None:
        for value in row.values():
            lines = value.get("_value") if isinstance(value, dict) and value.get("_type") == "trackio.table" else None
            if not isinstance(lines, list) or self._feed.given_to(order):
                continue
            whole = [line for line in lines if isinstance(line, dict)]
            names = dict.fromkeys(name for line in whole for name in line)
            columns = {str(name): [line.get(name) for line in whole] for name in names}
            self._feed.say(order, self._tables.summary(columns, self.stats, seen, step), order + 1)


def _bytes(value: object) -> bytes:
    """The JSON text, which trackio stores as text or as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
