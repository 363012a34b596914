"""Reads tables that are printed as text: a header of names, then lines of numbers (``print(df)``, Markdown)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.frameworks.row_numbers import number
from grpo_watch.sources.own_loops.lines import row_of
from grpo_watch.sources.tables.table_rows import keys_of, step_key
from grpo_watch.sources.tables.table_rows import row_of as cells_row

LONGEST = 2_000
LEAST_COLUMNS = 3
LEAST_ROWS = 3
MOST_COLUMNS = 64
NAME = re.compile(r"[A-Za-z][\w./%@()-]*(?: [A-Za-z(][\w./%@()-]*){0,4}")
RULER = re.compile(r"[\s|:+=\u2500-\u257f-]+")
BARS = re.compile(r"[|\u2502\u2503\u2551]")
SIDES = "|\u2502\u2503\u2551 "
WIDE = re.compile(r"\s{2,}|\t")


def _split(text: str) -> list[str]:
    return [cell.strip() for cell in BARS.split(text)]


class PrintedColumns:
    """Takes a log line by line: a header that names a step and a reward opens a table, other text ends it.

    Args:
        state: what ``state`` gave before a restart.
    """

    def __init__(self, state: str = "") -> None:
        self._header: list[str] = json.loads(state) if state else []

    def state(self) -> str:
        """The header of the open table, as text; empty where none is open."""
        return json.dumps(self._header) if self._header else ""

    @property
    def open(self) -> bool:
        """Whether lines of a table may follow."""
        return bool(self._header)

    def feed(self, data: bytes) -> Sequence[MetricLine]:
        """The row that a line is."""
        if len(data) > LONGEST or (not self._header and b"eward" not in data and b"eturn" not in data):
            return ()
        text = data.decode("utf-8", "replace").strip()
        if not text or RULER.fullmatch(text):
            return ()
        if self._header and (row := self._row(text)) is not None:
            return (row,)
        self._header = header_of(text)
        return ()

    def _row(self, text: str) -> MetricLine | None:
        cells = _split(text.strip(SIDES)) if BARS.search(text) else text.split()
        if text.count(",") == len(self._header) - 1:
            cells = [cell.strip() for cell in text.split(",")]
        if len(cells) == len(self._header) + 1 and number(cells[0]) is not None:
            cells = cells[1:]  # pandas' index
        if len(cells) != len(self._header):
            return None
        row = cells_row(self._header, cells)
        made = (
            row_of(row.step, {key: value for key, value in row.values.items() if value is not None})
            if row.step is not None
            else None
        )
        return made and MetricLine(made.step, row.values, resolution=row.resolution)


def holds_columns(text: bytes) -> bool:
    """Whether a text has a printed table of training with several rows."""
    columns = PrintedColumns()
    return sum(len(columns.feed(line)) for line in text.splitlines()) >= LEAST_ROWS


def header_of(text: str) -> list[str]:
    """The keys of a line that is the header of a table of training with a step and a reward; else nothing."""
    plain = text.strip(SIDES).removeprefix("# ")
    splits = (
        [_split(plain)]
        if BARS.search(plain)
        else [WIDE.split(plain), plain.split(), [cell.strip() for cell in plain.split(",")]]
    )
    for cells in splits:
        if not LEAST_COLUMNS <= len(cells) <= MOST_COLUMNS or not all(NAME.fullmatch(cell) for cell in cells):
            continue
        if step_key(cells) is not None and any(guess(cell) == "reward_mean" for cell in keys_of(cells, {})):
            return list(keys_of(cells, {}))
    return []
