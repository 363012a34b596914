"""Reads rows printed by own training loops in any shape: lines, blocks, text tables, and bars with metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Scalar
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.frameworks.row_numbers import number
from grpo_watch.sources.base import recalled, remembered
from grpo_watch.sources.rows.bars import BarRows, training_bar
from grpo_watch.sources.rows.fields import fields_of
from grpo_watch.sources.rows.layouts import step_key
from grpo_watch.sources.rows.own_lines import DIGIT, OwnLines, makes_row
from grpo_watch.sources.rows.tables import keys_of, row_of

LONGEST = 2_000
LEAST_COLUMNS = 3
MOST_COLUMNS = 64
NAME = re.compile(r"[A-Za-z][\w./%@()-]*(?: [A-Za-z(][\w./%@()-]*){0,4}")
RULER = re.compile(r"[\s|:+=\u2500-\u257f-]+")
BARS = re.compile(r"[|\u2502\u2503\u2551]")
SIDES = "|\u2502\u2503\u2551 "
EMPHASIS = re.compile(
    r"^[\s*`\u2190-\u21ff\u2300-\u2bff\ufe0f\U0001f000-\U0001faff]+|[\s*`\u2190-\u21ff\u2300-\u2bff\ufe0f\U0001f000-\U0001faff]+$"
)
"""Decoration around a cell by Markdown or people: ``**0.5**``, a picture, an arrow."""
WIDE = re.compile(r"\s{2,}|\t")

UNQUOTED = re.compile(rb"\{\s{0,9}[A-Za-z_][\w./]{0,60}\s?[:=]\s{0,4}[-\d][^{]*\}")
"""A row in braces whose keys have no quotes: ``{ step: 1, loss: 0.1 }``."""


def shows_metric(data: bytes, *, or_step: bool) -> bool:
    """Whether a line names a metric with its value, or a step."""
    fields = fields_of(data.decode("utf-8", "replace"))
    return any(or_step if one.is_step or one.counts else guess(one.name) is not None for one in fields)


def begins_own_row(data: bytes) -> bool:
    """Whether a metric stands before the first brace of a line: the dictionary after it is a part of the row."""
    brace = data.find(b"{")
    if brace >= 0 and len(data) <= LONGEST and UNQUOTED.match(data, brace):
        return True
    if brace <= 0 or len(data) > LONGEST or DIGIT.search(data, 0, brace) is None:
        return False
    fields = fields_of(data.decode("utf-8", "replace"))
    return bool(fields) and any(guess(one.name) is not None for one in fields[:1] if not (one.is_step or one.counts))


class PrintedColumns(Struct):
    """Reads printed tables: a header that names a step and a reward opens a table, other text ends it.

    ``names``: a header's name of a metric (or the step) → its canonical name.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    _header: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether lines of a table may follow."""
        return bool(self._header)

    def rows_of(self, data: bytes) -> Sequence[MetricLine]:
        """Return the row on a line of the open table, if any."""
        named = self._header or self.names or b"eward" in data or b"eturn" in data
        if len(data) > LONGEST or not named:
            return ()
        text = data.decode("utf-8", "replace").strip()
        if not text or RULER.fullmatch(text):
            return ()
        if self._header and (row := self._row(text)) is not None:
            return (row,)
        self._header = header_of(text, {name: column for column, name in self.names.items()})
        return ()

    def _row(self, text: str) -> MetricLine | None:
        cells = _between_bars(text) or text.split()
        if text.count(",") == len(self._header) - 1:
            cells = [cell.strip() for cell in text.split(",")]
        if len(cells) == len(self._header) + 1 and number(cells[0]) is not None:
            cells = cells[1:]  # pandas' index
        if len(cells) != len(self._header):
            return None
        row = row_of(self._header, cells)
        shown = {key: value for key, value in row.values.items() if value is not None}
        return row if row.step is not None and makes_row(shown) else None


def _between_bars(text: str) -> list[str]:
    """Return the cells of a line separated by bars; empty for other lines."""
    return [EMPHASIS.sub("", cell) for cell in BARS.split(text.strip(SIDES))] if BARS.search(text) else []


def header_of(text: str, columns: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the keys of a line that is a training table's header with a step and a reward; else empty."""
    plain = text.strip(SIDES).removeprefix("# ")
    barred = _between_bars(plain)
    splits = [barred] if barred else [WIDE.split(plain), plain.split(), [cell.strip() for cell in plain.split(",")]]
    for cells in splits:
        if not LEAST_COLUMNS <= len(cells) <= MOST_COLUMNS or not all(NAME.fullmatch(cell) for cell in cells):
            continue
        keys = keys_of(cells, columns)
        if step_key(keys) is not None and any(guess(key) == "reward_mean" for key in keys):
            return list(keys)
    return []


DRAWN = b"\xe2\x94"
"""How lines of tables drawn with rules begin, and the branches of a tree."""
MOVES = re.compile(rb"\x1b\[[\d;?]{0,10}[A-Za-z]")
"""Moves of a terminal's cursor, after a bar drawn below another one."""


class OwnRows:
    """Tries one reader per shape; the first one that gives rows reads the rest of the log alone.

    Args:
        state: the value of ``state`` before a restart.
        names: the log's name of a metric (or the step) → its canonical name.
    """

    def __init__(self, state: Mapping[str, Scalar], names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._lines = recalled(OwnLines, state.get("own"))
        self._columns = recalled(PrintedColumns, state.get("columns"))
        self._lines.names = self._columns.names = dict(names)
        self._bars = recalled(BarRows, state.get("bars"))

    def state(self) -> dict[str, Scalar]:
        """Return the state to keep across a restart; empty before the first possible row."""
        lines, columns, bars = self._lines, self._columns, self._bars
        kept = {"own": (lines, lines.begun), "columns": (columns, columns.open), "bars": (bars, bars.begun)}
        return {name: remembered(reader) for name, (reader, begun) in kept.items() if begun}

    @property
    def sure(self) -> bool:
        """Whether the log's rows are known to be an own loop's."""
        return self._lines.sure or self._columns.open or self._bars.sure

    @property
    def scores_alone(self) -> bool:
        """Whether the rows lack update metrics."""
        return self._lines.scores_alone

    @property
    def counted(self) -> bool:
        """Whether rows were numbered because their lines have no step."""
        return self._lines.counted

    def wants(self, data: bytes) -> bool:
        """Whether a line may complete or begin a row; other lines need only this test."""
        if self._columns.open or b"eward" in data or b"eturn" in data or self._lines.wants(data):
            return True
        self._lines.passed(data)
        return False

    def rows_of(self, data: bytes) -> Sequence[MetricLine]:
        """Return the rows completed by a line; a line drawn with rules can only belong to a table."""
        drawn = data.lstrip().startswith(DRAWN)
        if self._bars.sure or (drawn and self._lines.sure):
            return ()
        rows = () if self._lines.sure else self._columns.rows_of(data)
        return rows if rows or drawn else self._lines.rows_of(data)

    def rows_of_bar(self, data: bytes) -> Sequence[MetricLine]:
        """Return the rows completed by a bar, or by text after it: lines printed below a bar often share its line."""
        behind = training_bar(data)[1]
        line = MOVES.sub(b"", data[behind:]).strip() if behind else b""
        if line:
            return self.rows_of(line)
        return () if self._lines.sure or self._columns.open else self._bars.rows_of(MOVES.sub(b"", data))

    def flush(self) -> Sequence[MetricLine]:
        """Return the rows held back."""
        return (*self._lines.flush(), *self._bars.flush())
