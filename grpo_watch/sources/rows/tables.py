"""Reads growing tables of metrics (CSV, TSV), separates the runs in them, and recognises them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import ChannelKind, Item, RawRow, RunConfig, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import bases_last
from grpo_watch.frameworks.guessing import guess, names_training, names_updates
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.frameworks.row_numbers import STEPS, number
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.tail import SplitLine
from grpo_watch.sources.rows.jsonl import LineSource
from grpo_watch.sources.rows.layouts import MOST_RUNS, TABLE_COLUMNS, by_run, run_named, step_key

NAMES: Mapping[str, str] = {"Step": "step", "Training Loss": "loss", "Validation Loss": "eval_loss", "Epoch": "epoch"}
"""Headers of transformers' notebook table, and the keys of its logs."""
UNIT = re.compile(r"\s{0,3}[(\[](?:tokens?|tok|s|secs?|seconds|ms|min|h|nats|bits|GB|GiB|MB|MiB)[)\]]$", re.IGNORECASE)
NOTHING = frozenset({"", "No log", "-"})
MAX_COLUMNS = 4_096
DECIMALS = re.compile(r"-?\d{1,20}\.(\d{1,12})")
LEAST_ROUNDED = 3
"""Fewest numbers with the same count of decimals, and no exponent, that make a rounded row."""
MOST_ROUNDED = 8
"""Numbers with more decimals than this are floats printed in full."""


def keys_of(header: Sequence[str], columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key of each column: the user's name for it, transformers' for its headers, else the header's own.

    ``columns`` maps canonical names to the user's columns (``{"reward_mean": "avg_r"}``). A notebook writes
    ``rewards / check / mean`` for the logs' ``rewards/check/mean``; a unit in brackets is no part of a key.
    """
    own = {column: name for name, column in columns.items()}
    bare = (cell.strip() for cell in header[:MAX_COLUMNS])
    keys = [own.get(cell) or NAMES.get(cell) or UNIT.sub("", cell).replace(" / ", "/") for cell in bare]
    step = step_key(dict.fromkeys(keys))
    return tuple("step" if key == step else key for key in keys)


VALUE = "value"
EXPORTED = ("wall time", "step", "value")
"""The header of TensorBoard's CSV export, which holds one metric."""
TAG = re.compile(r"(?:.*tag[-_])?(?P<tag>.+)", re.DOTALL)


def named_columns(header: Sequence[str], stem: str) -> list[str]:
    """Return the header of an export with its one metric named: the file's name ends with the tag.

    An unnamed first column is pandas' index.
    """
    cells = [cell.strip() for cell in header]
    spelled = [cell.lower() for cell in cells]
    alone = VALUE in spelled and len(cells) <= len(EXPORTED) and step_key(spelled) is not None
    if alone and (tag := TAG.fullmatch(stem)) is not None and (guess(tag["tag"]) or tuple(spelled) == EXPORTED):
        return [tag["tag"] if cell == VALUE else name for cell, name in zip(spelled, cells, strict=True)]
    return ["index", *cells[1:]] if cells[:1] == [""] and len(cells) > 1 else cells


def table_owner(header: Sequence[str]) -> str | None:
    """Return the framework whose notebooks alone write such a table."""
    names = {cell.strip() for cell in header}
    if "Training Loss" not in names:
        return None
    return next((table.name for table in bases_last() if names & table.traces.notebook), None)


def row_of(keys: Sequence[str], cells: Sequence[str]) -> MetricLine:
    """Return the row of these cells; an empty cell is a metric that was not logged, text and times are dropped."""
    shown = {key: cell.strip() for key, cell in zip(keys, cells, strict=False) if cell.strip() not in NOTHING}
    values = row_numbers.numbers(shown)
    values.pop(WALL_TIME, None)
    return MetricLine(row_numbers.place(shown).step, values, resolution=_resolution(shown.values()))


def _resolution(cells: Iterable[str]) -> float | None:
    """Return one unit of the last decimal if all numbers have the same few decimals, as tables print them."""
    decimals: list[int] = []
    for cell in cells:
        if (found := DECIMALS.fullmatch(cell)) is not None:
            decimals.append(len(found[1]))
        elif "e" in cell.lower() and row_numbers.number(cell) is not None:
            return None
    if len(decimals) < LEAST_ROUNDED or len(set(decimals)) > 1 or decimals[0] > MOST_ROUNDED:
        return None
    return float(f"1e-{decimals[0]}")


REMARK = "#"
DELIMITERS = (",", "\t", ";", "|")
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x2212: ord("-")}
"""Full-width letters, digits and punctuation of Chinese and Japanese keyboards, and the minus sign."""
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d{1,3})?")
POINT = re.compile(r"\d\.\d")


def table_lines(text: str) -> list[str]:
    """Return the lines of a table from its header on; remarks before it are dropped, unless the last is the header."""
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    begin = next((place for place, line in enumerate(lines) if _may_be_header(line)), len(lines))
    if begin and begin < len(lines) and is_header(lines[begin - 1], lines[begin]):
        return [lines[begin - 1].lstrip("# "), *lines[begin:]]
    return lines[begin:]


def _may_be_header(line: str) -> bool:
    return not line.startswith(REMARK) and any(map(line.translate(FULL_WIDTH).count, DELIMITERS))


def grid(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the header of a table, and its lines with as many cells."""
    lines = table_lines(text)
    delimiter = delimiter_of(lines[0]) if lines else ","
    header = [cell.strip() for cell in cells_of(lines[0], delimiter)] if lines else []
    return header, [cells for line in lines[1:] if len(cells := cells_of(line, delimiter)) == len(header)]


def is_header(remark: str, line: str) -> bool:
    """Whether a remark names the columns of the following line, which holds only numbers."""
    cells = cells_of(line, delimiter_of(line))
    named = len(cells_of(remark, delimiter_of(line))) == len(cells)
    return named and all(number(cell) is not None for cell in cells)


def delimiter_of(header: str) -> str:
    """Return the header's delimiter: the most frequent of comma, tab, semicolon and bar."""
    return max(DELIMITERS, key=header.translate(FULL_WIDTH).count)


def cells_of(text: str, delimiter: str) -> list[str]:
    """Return the cells of one line; empty if it is no CSV. ``1,234.5`` in a cell becomes ``1234.5``.

    Commas are decimal commas if they don't separate cells and no number of the line has a point.
    """
    plain = text.translate(FULL_WIDTH) if not text.isascii() else text
    try:
        cells = next(csv.reader([plain.strip(" |") if delimiter == "|" else plain], delimiter=delimiter), [])
    except csv.Error:
        return []
    decimals = delimiter != "," and "," in plain and not POINT.search(plain)
    bare = [cell.strip() for cell in cells]
    if decimals and (delimiter == ";" or any(DECIMAL_COMMA.fullmatch(c) and not THOUSANDS.fullmatch(c) for c in bare)):
        return [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell for cell in cells]
    return [cell.replace(",", "") if THOUSANDS.fullmatch(cell.strip()) else cell for cell in cells]


WALL_TIME = "Wall time"
"""A column of TensorBoard's export that is no metric."""
NOT_OF_ARM = frozenset({"_runtime", "_timestamp", "Relative Time (Process)", "Relative Time (Wall)"})
RULER = frozenset("-|: ")
"""Characters of the line under a Markdown table's header; people paste a notebook's table like that."""


class TableSource(LineSource):
    """Reads one table. Quoted cells may hold the delimiter, but no line end.

    A repeated header (a job that appends to its predecessor's file writes it again) is skipped. Of a table with several
    runs it reads the one named ``run``; the columns ``named_by`` name the run of each row.
    """

    LONGEST = 1 << 20

    def _begin(self, *, run: str = "", named_by: Sequence[str] = (), **own: Any) -> None:
        self._run, self._named_by = run, named_by
        super()._begin(**own)

    def _recall(self, state: Mapping[str, Scalar]) -> None:
        self._header, self._remark = str(state.get("header") or ""), str(state.get("remark") or "")
        self._layout()

    def _remembered(self) -> dict[str, Scalar]:
        return {"header": self._header, "remark": self._remark}

    def _item(self, line: SplitLine, seen: float | None) -> Item | None:
        if line.too_long:
            self._skip(Skip.TOO_LONG, f"{line.end - line.start} bytes")
            return None
        text = line.data.decode("utf-8-sig", "replace")
        if not text.strip() or text == self._header or RULER.issuperset(text):
            return None
        return self._row(text, seen) if self._header else self._above(text, seen)

    def _above(self, text: str, seen: float | None) -> Item | None:
        """Take a line above the rows: a remark, the header, or the first row if a remark was the header."""
        if text.startswith(REMARK):
            self._remark = text
            return None
        if not _may_be_header(text):
            self._skip(Skip.NOT_A_ROW, "no header of several columns")
            return None
        above = is_header(self._remark, text)
        self._header = self._remark.lstrip("# ") if above else text
        self._layout()
        if above:
            return self._row(text, seen)
        whose = table_owner(self._names)
        return RunConfig(whose, None, {}, self.name, self.segment, precedence=3) if whose is not None else None

    def _layout(self) -> None:
        self._delimiter = delimiter_of(self._header)
        self._names = [cell.strip() for cell in cells_of(self._header, self._delimiter)]
        wide = _wide(self._names) if self._run else None
        self._places = wide.keys.get(self._run, {}) if wide is not None else {}
        every = named_columns(self._names, self._tail.path.stem)
        names = [self._places[place] for place in sorted(self._places)] if self._places else every
        self._keys = keys_of(names, self._columns)

    def _row(self, text: str, seen: float | None) -> RawRow | None:
        cells = cells_of(text, self._delimiter)
        if self._named_by and run_named(dict(zip(self._names, cells, strict=False)), self._named_by) != self._run:
            return None  # a row of another run
        if self._places and len(cells) == len(self._names):
            cells = [cells[place] for place in sorted(self._places)]
            if row_of(self._keys, cells).values.keys() <= NOT_OF_ARM:
                return None  # a step that only another run logged
        row = row_of(self._keys, cells)
        if len(cells) != len(self._keys) or not row.values:
            why = f"{len(cells)} cells under {len(self._keys)} headers" if row.values else "no number in it"
            self._skip(Skip.NOT_A_ROW, why)
            return None
        if row.step is None and not names_updates(row.values):
            self._skip(Skip.NO_STEP, "no column holds its step; name it under columns: step")
            return None
        stream = row_numbers.stream_of(dict(zip(self._keys, cells, strict=False)), row.values)
        where = self.name, ChannelKind.JSONL, row.step, row.values, stream, self.segment
        return RawRow(*where, seen=seen, resolution=row.resolution)


OF_RUN = re.compile(r"(?P<run>.+) - (?P<key>[^ ].*)")
"""A header of wandb's CSV export: the run's name and the metric."""
BOUNDS = ("__MIN", "__MAX")
"""Suffixes of the columns that wandb adds to each metric of a chart."""
LOOKED_AT = 32 << 20
HEADER = 1 << 20
"""Characters that hold a table's header; the rest is parsed only if a column may name runs."""


class TableArms(Struct, frozen=True):
    """The runs of a table, and how they are distinguished: by columns with their names, or by columns per run."""

    names: tuple[str, ...] = ()
    keys: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    named_by: tuple[str, ...] = ()


def arms_of(text: str) -> TableArms:
    """Return the runs in a table; no names if it holds only one."""
    header, _ = grid(text[:HEADER])
    wide = _wide(header)
    if wide is not None or TABLE_COLUMNS.isdisjoint(map(str.lower, header)):
        return wide or TableArms()
    header, rows = grid(text)
    named = by_run([dict(zip(header, cells, strict=True)) for cells in rows], table=True)
    return TableArms(tuple(named.rows), named_by=named.columns)


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
    return TableArms(tuple(found)[:MOST_RUNS], {run: {**shared, **keys} for run, keys in found.items()})


TABLES = (".csv", ".tsv")


def proposed(path: PurePath, columns: Mapping[str, str]) -> str:
    """Return the settings with which a file's rows are read if one of its names is the reward."""
    mapping = json.dumps({"path": str(path), "columns": columns})
    return f"if {columns['reward_mean']} is the reward, check the file with `runs: [{mapping}]` in grpo-watch.yaml"


HEADER_NEEDED = "no column of its header is known; say what they mean under runs: columns: in grpo-watch.yaml"


def holds_table(name: str, head: bytes, metrics: AbstractSet[str]) -> bool:
    """Whether a file with this name and head has a step and one of these metrics."""
    lines = table_lines(head.decode("utf-8-sig", "replace"))
    header = lines[0].strip() if lines else ""
    cells = cells_of(header, delimiter_of(header))
    if any(number(cell.strip("[](){}' \"")) is not None for cell in cells):
        return False  # named numbers on one line
    keys = frozenset(keys_of(named_columns(cells, PurePath(name).stem), {}))
    metric = bool(keys & metrics or names_training(part for key in keys for part in {key, key.rpartition(" - ")[2]}))
    return metric and (bool(keys & frozenset(STEPS)) or names_updates(keys))
