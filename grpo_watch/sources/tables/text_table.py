"""Turns a metrics file with one line per step under a header (CSV, TSV) into raw rows while it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, RunConfig, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import names_updates
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.tail import SplitLine, Tail
from grpo_watch.sources.rows.line_source import LineSource
from grpo_watch.sources.tables.runs_in_table import arm_column, arm_in_header
from grpo_watch.sources.tables.table_rows import (
    REMARK,
    cells_of,
    delimiter_of,
    is_header,
    keys_of,
    named_columns,
    row_of,
    table_owner,
)

MAX_LINE = 1 << 20
WALL_TIME = "Wall time"
"""A column of TensorBoard's export that is no metric."""
MARK = "#"
"""Parts the name of a table and the run in it, in a channel's name."""
NOT_OF_ARM = frozenset({"_runtime", "_timestamp", "Relative Time (Process)", "Relative Time (Wall)"})
RULER = frozenset("-|: ")
"""What the line under the header of a Markdown table is made of; people paste a notebook's table like that."""


class TableSource(LineSource):
    """Reads one table. Quoted cells may hold the delimiter, but no line end.

    A line that repeats the header (a job that appends to its predecessor's file writes it again) begins nothing new.

    Args:
        name: the channel's name; what follows a ``#`` is the run to read of a table that holds several.
        path: the file.
        roots: folders that links may not lead out of.
        segment: order among the files of this kind.
        cursor: where an earlier reader stopped.
        columns: what the user calls a column's meaning → the column.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        roots: Sequence[Path],
        segment: int = 0,
        cursor: Cursor | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, Tail(path, roots, cursor, max_line=MAX_LINE), segment, cursor)
        self._columns, self._arm, self._stem = columns or {}, name.partition(MARK)[2], path.stem
        state = cursor.state if cursor is not None else {}
        self._header, self._remark = str(state.get("header") or ""), str(state.get("remark") or "")
        self._layout()

    def _remembered(self) -> dict[str, Scalar]:
        return {"header": self._header, "remark": self._remark}

    def _forget(self) -> None:
        self._header = self._remark = ""

    def _item(self, line: SplitLine, seen: float | None) -> Item | None:
        if line.too_long:
            self.stats.skip(Skip.TOO_LONG, f"line {self._line}: {line.end - line.start} bytes")
            return None
        text = line.data.decode("utf-8-sig", "replace")
        if not text.strip() or text == self._header or RULER.issuperset(text):
            return None
        if not self._header and text.startswith(REMARK):
            self._remark = text
            return None
        if not self._header:
            above = is_header(self._remark, text)
            self._header = self._remark.lstrip("# ") if above else text
            self._layout()
            if above:
                return self._row(text, seen)
            whose = table_owner(self._names)
            return RunConfig(whose, None, {}, self.name, self.segment, precedence=3) if whose is not None else None
        return self._row(text, seen)

    def _layout(self) -> None:
        self._delimiter = delimiter_of(self._header)
        self._names = cells_of(self._header, self._delimiter)
        self._places = arm_in_header(self._names, self._arm) if self._arm else {}
        self._named_in = arm_column(self._names) if self._arm and not self._places else None
        every = named_columns(self._names, self._stem)
        names = [self._places[place] for place in sorted(self._places)] if self._places else every
        self._keys = keys_of(names, self._columns)

    def _row(self, text: str, seen: float | None) -> RawRow | None:
        cells = cells_of(text, self._delimiter)
        if self._named_in is not None and cells[self._named_in : self._named_in + 1] != [self._arm]:
            return None  # of another run
        if self._places and len(cells) == len(self._names):
            cells = [cells[place] for place in sorted(self._places)]
            if row_of(self._keys, cells).values.keys() <= NOT_OF_ARM:
                return None  # a step that only another run logged
        row = row_of(self._keys, cells)
        row.values.pop(WALL_TIME, None)
        if len(cells) != len(self._keys) or not row.values:
            why = f"{len(cells)} cells under {len(self._keys)} headers" if row.values else "no number in it"
            self.stats.skip(Skip.NOT_A_ROW, f"line {self._line}: {why}")
            return None
        if row.step is None and not names_updates(row.values):
            self.stats.skip(Skip.NO_STEP, f"line {self._line}: no column holds its step; name it under columns: step")
            return None
        return RawRow(
            channel=self.name,
            kind=ChannelKind.JSONL,
            step=row.step,
            values=row.values,
            stream=row_numbers.stream_of(dict(zip(self._keys, cells, strict=False)), row.values),
            segment=self.segment,
            seen=seen,
            resolution=row.resolution,
        )
