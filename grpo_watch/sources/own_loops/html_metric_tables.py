"""Finds the tables of training metrics in HTML, and which of several are the run's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from grpo_watch.frameworks.guessing import guess
from grpo_watch.sources.tables.table_rows import MAX_COLUMNS, keys_of, row_of, step_key

BAR = re.compile(r"\[\s*(\d{1,9})/(\d{1,9})[ <,]")
"""``[100/100 2:43:09, Epoch 0/1]`` above a table."""


LEAST_LINES = 3
"""Rows of a table that is an attempt of its own."""


@dataclass(slots=True)
class PrintedTable:
    """One table under a ``Step`` header; ``done`` and ``total``: the bar above it; ``cell``: the notebook's."""

    header: list[str]
    lines: list[list[str]]
    done: int
    total: int | None
    cell: int = 0

    @property
    def of_grpo(self) -> bool:
        """Whether it shows a reward."""
        return any(guess(name) == "reward_mean" for name in keys_of(self.header, {}))

    def continues(self, other: PrintedTable) -> bool:
        """Whether it is a later part of the same run: the same columns, steps that continue."""
        keys = keys_of(self.header, {})
        before, after = row_of(keys, other.lines[-1]).step, row_of(keys, self.lines[0]).step
        return self.header == other.header and before is not None and after is not None and after > before


def _of_frame(cells: Sequence[str]) -> bool:
    """Whether the header of pandas' table is one of training metrics: its index has no name."""
    return step_key([cell for cell in cells if cell]) is not None and any(
        guess(cell) == "reward_mean" for cell in cells
    )


def attempts_of(tables: Sequence[PrintedTable]) -> tuple[list[list[PrintedTable]], list[PrintedTable]]:
    """The runs with a reward one after the other, each with its parts, and the tables of other trainings.

    Somebody tries a few steps, changes a setting and starts again: these are attempts. Where no table has a reward the
    longest run counts; runs whose columns are others than the longest one's are another training.
    """
    best, aside = chosen_tables(tables)
    if not best or not best[0].of_grpo:
        return ([best] if best else []), aside
    alike = [table for table in aside if table.of_grpo and len(table.lines) >= LEAST_LINES and _like(table, best[0])]
    runs: list[list[PrintedTable]] = []
    for table in (table for table in tables if table in best or table in alike):
        if runs and table.continues(runs[-1][-1]):
            runs[-1].append(table)
        else:
            runs.append([table])
    return runs, [table for table in aside if table not in alike]


def _like(table: PrintedTable, other: PrintedTable) -> bool:
    """Whether most columns are the same, and the rows are not: a notebook may show one table twice."""
    shared = set(table.header) & set(other.header)
    return 2 * len(shared) > max(len(table.header), len(other.header)) and table.lines[:3] != other.lines[:3]


def chosen_tables(tables: Sequence[PrintedTable]) -> tuple[list[PrintedTable], list[PrintedTable]]:
    """The tables of the longest run with a reward (of the longest run, if none has one), and all others."""
    runs: list[list[PrintedTable]] = []
    for table in tables:
        if runs and table.continues(runs[-1][-1]):
            runs[-1].append(table)
        else:
            runs.append([table])
    rewarded = [run for run in runs if run[0].of_grpo] or runs
    best = max(reversed(rewarded), key=lambda run: sum(len(table.lines) for table in run), default=[])
    return best, [table for run in runs if run is not best for table in run]


class TableParser(HTMLParser):
    """Collects the header and the complete lines of each table that has a ``Step`` column, with the bar before it.

    ``frames``: tables of pandas count too, whose header names a step and a reward in whatever words.
    """

    def __init__(self, *, frames: bool = False) -> None:
        super().__init__(convert_charrefs=True)
        self._frames = frames
        self.tables: list[PrintedTable] = []
        self._width = 0
        self._header: list[str] = []
        self._lines: list[list[str]] = []
        self._before = ""
        self._cells: list[str] = []
        self._cell: str | None = None
        self._uneven = 0

    def feed(self, data: str) -> None:
        """Take the whole text; a table without an end counts as far as it came."""
        super().feed(data)
        self._ended()

    def unread(self) -> str:
        """Why there are no lines, if any were written."""
        if not self._width:
            return "no table with a Step column"
        return "" if self.tables or not self._uneven else f"its rows have not the {self._width} cells of the header"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A line or a cell begins."""
        del attrs
        if tag == "tr":
            self._cells = []
        elif tag in {"td", "th"}:
            self._cell = ""

    def handle_data(self, data: str) -> None:
        """Text of a cell, or between."""
        if self._cell is not None:
            self._cell += data
        elif not self._header:
            self._before = (self._before + data)[-10_000:]

    def handle_endtag(self, tag: str) -> None:
        """A cell, a line or the table ends."""
        if tag in {"td", "th"} and self._cell is not None:
            self._cells += [self._cell.strip()] if len(self._cells) < MAX_COLUMNS else []
            self._cell = None
        elif tag == "tr":
            self._line()
        elif tag == "table":
            self._ended()

    def _line(self) -> None:
        if not self._header:
            self._header = self._cells if "Step" in self._cells or (self._frames and _of_frame(self._cells)) else []
            self._width = len(self._header) or self._width
        elif len(self._cells) == len(self._header):
            self._lines.append(self._cells)
        else:
            self._uneven += 1

    def _ended(self) -> None:
        if self._lines:
            bars = BAR.findall(self._before)
            done, total = (int(bars[-1][0]), int(bars[-1][1])) if bars else (0, None)
            self.tables.append(PrintedTable(self._header, self._lines, done, total))
        if self._header:
            self._header, self._lines, self._before = [], [], ""
