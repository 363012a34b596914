"""Tells tables of metrics (CSV, TSV) from others, and the runs in them apart, and reads them while they grow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, RunConfig, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import names_training, names_updates
from grpo_watch.frameworks.row_numbers import STEPS, number
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.tail import SplitLine, Tail
from grpo_watch.sources.own_loops.html_metric_tables import TableParser
from grpo_watch.sources.rows.line_source import LineSource
from grpo_watch.sources.tables.table_rows import (
    REMARK,
    cells_of,
    delimiter_of,
    is_header,
    keys_of,
    named_columns,
    row_of,
    step_key,
    table_lines,
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


NAMES = frozenset(
    {"arm", "run", "run_id", "run_name", "runid", "name", "experiment", "exp", "exp_name", "variant", "method"}
    | {"config", "setting", "seed", "model", "trial", "condition", "group"}
)
"""Columns that people name the runs of one table with."""
OF_RUN = re.compile(r"(?P<run>.+) - (?P<key>[^ ].*)")
"""A header of wandb's CSV export: the run's name and the metric."""
BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns that wandb adds to each of a chart."""
MOST_ARMS = 64
LOOKED_AT = 32 << 20


@dataclass(frozen=True, slots=True)
class TableArms:
    """The runs of a table. ``column``: where their names are in each line; None: in the header."""

    names: tuple[str, ...] = ()
    column: int | None = None
    keys: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def arms_of(text: str) -> TableArms:
    """The runs in a table; no names where it holds one alone."""
    lines = table_lines(text)
    if not lines:
        return TableArms()
    delimiter = delimiter_of(lines[0])
    header = [cell.strip() for cell in cells_of(lines[0], delimiter)]
    wide = _wide(header)
    if wide is not None:
        return wide
    rows = [cells for line in lines[1:] if len(cells := cells_of(line, delimiter)) == len(header)]
    return _long(header, rows)


def arm_in_header(header: Sequence[str], arm: str) -> Mapping[int, str]:
    """The columns of one run in wandb's export, and the metric of each, with those that all runs share."""
    wide = _wide([cell.strip() for cell in header])
    return wide.keys.get(arm, {}) if wide is not None else {}


def arm_column(header: Sequence[str]) -> int | None:
    """The place of the column that names the runs."""
    return next((place for place, name in enumerate(header) if name.strip().lower() in NAMES), None)


def _wide(header: Sequence[str]) -> TableArms | None:
    found: dict[str, dict[int, str]] = {}
    shared: dict[int, str] = {}
    for place, name in enumerate(header):
        parts = OF_RUN.fullmatch(name)
        if parts is None:
            shared[place] = name
        elif not name.endswith(BOUNDS):
            found.setdefault(parts["run"], {})[place] = parts["key"]
    if not found or step_key(dict.fromkeys(shared.values())) is None:
        return None
    return TableArms(tuple(found)[:MOST_ARMS], None, {run: {**shared, **keys} for run, keys in found.items()})


def _long(header: Sequence[str], rows: Sequence[Sequence[str]]) -> TableArms:
    """A column of names counts where a step comes again under another name."""
    place, step = arm_column(header), step_key(dict.fromkeys(header))
    if place is None or step is None:
        return TableArms()
    at = header.index(step)
    names = tuple(dict.fromkeys(cells[place].strip() for cells in rows))
    pairs = {(cells[place].strip(), cells[at].strip()) for cells in rows}
    repeated = len(pairs) > len({number for _, number in pairs})
    several = (
        1 < len(names) <= MOST_ARMS and repeated and all(row_numbers.number(cells[at]) is not None for cells in rows)
    )
    return TableArms(names, place) if several else TableArms()


HEAD = 64 << 10
HTML = (".html", ".htm")
TABLES = (".csv", ".tsv", *HTML)
NOTEBOOK = re.compile(rb"<t[hd][^>]{0,80}>\s{0,20}(?:Step|step|global_step)\s{0,20}</t[hd]>")
HEADER_NEEDED = "no column of its header is known; say what they mean under runs: columns: in grpo-watch.yaml"


def holds_table(name: str, head: bytes, metrics: AbstractSet[str]) -> bool:
    """Whether a file of this name and beginning has a step and one of these metrics, or is a notebook's output."""
    if name.endswith(HTML):
        parser = TableParser(frames=True)
        parser.feed(head.decode("utf-8", "replace"))
        return bool(parser.tables) or NOTEBOOK.search(head) is not None
    lines = table_lines(head[:HEAD].decode("utf-8-sig", "replace"))
    header = lines[0].strip() if lines else ""
    cells = cells_of(header, delimiter_of(header))
    if any(number(cell.strip("[](){}' \"")) is not None for cell in cells):
        return False  # numbers by name on one line
    keys = frozenset(keys_of(named_columns(cells, PurePath(name).stem), {}))
    metric = bool(keys & metrics or names_training(part for key in keys for part in {key, key.rpartition(" - ")[2]}))
    return metric and (bool(keys & frozenset(STEPS)) or names_updates(keys))
