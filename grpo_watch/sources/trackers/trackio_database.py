"""Recognises a trackio database and queries it read-only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import open_regular

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
