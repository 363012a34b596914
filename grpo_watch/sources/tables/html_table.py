"""Turns the saved output of a notebook's training cell (an HTML table that is redrawn as it grows) into raw rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xxhash

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RawRow, RunConfig, RunEvent
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.own_loops.html_metric_tables import TableParser, chosen_tables
from grpo_watch.sources.tables.table_rows import keys_of, row_of, table_owner
from grpo_watch.sources.tables.text_table import TableSource

LARGEST = 32 << 20
"""Bytes of the largest file that is read: 100,000 rows of 20 columns."""


class HtmlTableSource(Source):
    """Reads the table under a ``Step`` header. The file is rewritten each time: only rows beyond those given come.

    Of several tables that of the longest run with a reward is read, with the parts that continue it.

    A table that begins with another first row is another run of the cell, and is given from its beginning.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._path, self._roots = path, tuple(roots)
        state = cursor.state if cursor is not None else {}
        self._given = cursor.position if cursor is not None else 0
        self._first = str(state.get("first") or "")
        self._over = state.get("over") is True
        self._stamp: tuple[int, int, int] | None = None
        self._unread = ""

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the rows that the file has more than before."""
        text = self._text()
        if text is None:
            return
        parser = TableParser()
        parser.feed(text)
        if not parser.tables:
            unread, parser = parser.unread(), TableParser(frames=True)
            parser.feed(text)
            self._unread = "" if parser.tables else unread
        chosen, aside = chosen_tables(parser.tables)
        if not chosen:
            return
        if self._given == 0:
            for table in aside:
                self.stats.skip(Skip.NOT_A_ROW, f"a table of {len(table.lines)} rows is left aside")
        yield from self._begin(chosen[0].header, chosen[0].lines[0], sum(len(table.lines) for table in chosen))
        keys, done, total = keys_of(chosen[0].header, {}), chosen[-1].done, chosen[-1].total
        for cells in [cells for table in chosen for cells in table.lines][self._given :]:
            self._given += 1
            row = row_of(keys, cells)
            if row.step is None or not row.values:
                self.stats.skip(Skip.NOT_A_ROW, f"row {self._given} of the table")
                continue
            self.stats.records += 1
            yield self._raw(row.step, row.values, total, seen)._replace(resolution=row.resolution)
        if total and done >= total and not self._over:
            self._over = True
            yield RunEvent(self.name, EventKind.FINISHED, done, segment=self.segment, seen=seen)

    def finish(self) -> Iterator[Item]:
        """Nothing is held back; report a table that could not be read."""
        if not self._given and self._unread:
            self.stats.skip(Skip.NOT_A_ROW, self._unread)
        return iter(())

    def cursor(self) -> Cursor:
        """How many rows were given, and of which table."""
        return Cursor(self.name, "", self._given, {"first": self._first, "over": self._over})

    def close(self) -> None:
        """No handle stays open."""

    def _begin(self, header: Sequence[str], line: Sequence[str], rows: int) -> Iterator[Item]:
        """Start over when the table is another one."""
        first = xxhash.xxh3_64_hexdigest("\0".join([*header, *line]).encode("utf-8", "replace"))
        if first == self._first and rows >= self._given:
            return
        self._first, self._given, self._over = first, 0, False
        if (whose := table_owner(header)) is not None:
            yield RunConfig(whose, None, {}, self.name, self.segment, precedence=3)

    def _raw(self, step: int, values: dict[str, float | None], total: int | None, seen: float | None) -> RawRow:
        return RawRow(
            channel=self.name,
            kind=ChannelKind.JSONL,
            step=step,
            values=values,
            stream=row_numbers.stream(values),
            segment=self.segment,
            max_steps=total,
            seen=seen,
        )

    def _text(self) -> str | None:
        """The file's text if it was written since the last look."""
        try:
            descriptor = open_regular(self._path, self._roots)
        except FileNotFoundError:
            return None
        except (SourceError, OSError) as error:
            self.stats.problem = str(error)
            return None
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(file.fileno())
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
            if stamp == self._stamp:
                return None
            self._stamp, data = stamp, file.read(LARGEST + 1)
        if len(data) > LARGEST:
            self.stats.problem = f"{self._path}: larger than {LARGEST >> 20} MiB, too large for a notebook's output"
            return None
        self.stats.bytes, self.stats.problem = self.stats.bytes + len(data), ""
        return data.decode("utf-8", "replace")


def table_source(
    name: str,
    path: Path,
    roots: Sequence[Path],
    segment: int = 0,
    cursor: Cursor | None = None,
    columns: Mapping[str, str] | None = None,
) -> Source:
    """The source of a table by its file's name: HTML, else one line per row."""
    if path.suffix in {".html", ".htm"}:
        return HtmlTableSource(name, path, roots, segment, cursor)
    return TableSource(name, path, roots, segment, cursor, columns)
