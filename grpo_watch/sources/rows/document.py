"""Turns a document of metrics (JSON, YAML, a chart, a table of single numbers) into raw rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.files.decompress import plain
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.decoded import parts_in
from grpo_watch.sources.rows.layouts import Rows, shows_reward

LARGEST = 32 << 20
"""Bytes of the largest document that is read."""
MARK = "#"
"""What stands between the file and the run's name in the name of a channel."""
NESTED = re.compile(rb'":\s*\[\s*\{')


class DocumentSource(Source):
    """Reads one document; it is rewritten each time, and only rows beyond those given come.

    Of several parts with rows it reads the one that the channel is named after, else the first. Rows without a step of
    their own are counted from 1.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._path, self._roots = path, tuple(roots)
        self._run, self._aside = name.partition(MARK)[2], set[str]()
        self._given = cursor.position if cursor is not None else 0
        self._stamp: tuple[int, int, int] | None = None

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the rows that the document has more than before."""
        try:
            info = self._path.stat()
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
            text = None if stamp == self._stamp else whole_text(self._path, self._roots)
        except FileNotFoundError:
            return
        except (SourceError, OSError) as error:
            self.stats.problem = str(error)
            return
        if text is None:
            return
        self._stamp, self.stats.bytes = stamp, self.stats.bytes + len(text)
        rows = self._chosen(parts_in(text, self._path.name))
        self._given = self._given if self._given <= len(rows) else 0
        for number, row in enumerate(rows[self._given :], self._given + 1):
            self._given = number
            yield from self._row(row, number, seen)

    def _chosen(self, parts: Mapping[str, Rows]) -> Rows:
        """The rows to read; those of other parts with a reward are reported, once each."""
        if self._run:
            return parts.get(self._run, [])
        chosen = next(iter(parts), "")
        for name in parts.keys() - {chosen} - self._aside:
            if shows_reward(parts[name]):
                self._aside.add(name)
                self.stats.skip(Skip.NOT_A_ROW, f"{name}: {len(parts[name])} rows are left aside")
        return parts.get(chosen, [])

    def _row(self, row: Mapping[str, object], number: int, seen: float | None) -> Iterator[Item]:
        values, step = row_numbers.numbers(row), row_numbers.place(row).step
        if not values:
            self.stats.skip(Skip.NOT_A_ROW, f"row {number}: no number in it")
            return
        self.stats.records += 1
        yield RawRow(
            channel=self.name,
            kind=ChannelKind.TRAINER_STATE,
            step=number if step is None else step,
            values=values,
            stream=row_numbers.stream_of(row, values),
            segment=self.segment,
            seen=seen,
        )

    def finish(self) -> Iterator[Item]:
        """Nothing is held back."""
        return iter(())

    def cursor(self) -> Cursor:
        """How many rows were given."""
        return Cursor(self.name, "", self._given, {})

    def close(self) -> None:
        """No handle stays open."""


def whole_text(path: Path, roots: Sequence[Path], largest: int = 2 * LARGEST) -> str | None:
    """The text of a file; None where it is larger than the limit.

    Raises:
        OSError: it can't be opened.
        SourceError: it is no regular file, or lies outside.
    """
    opened = open_regular(path, roots)
    with os.fdopen(opened, "rb", closefd=False) as file:
        descriptor = plain(file.fileno(), largest + 1)
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as text:
            text.seek(0)
            data = text.read(largest + 1)
    finally:
        for each in {opened, descriptor}:
            os.close(each)
    return data.decode("utf-8", "replace") if len(data) <= largest else None


def nests_rows(head: bytes) -> bool:
    """Whether a JSON list begins with a mapping that holds a list of mappings: the rows of a run, or completions."""
    return NESTED.search(head) is not None
