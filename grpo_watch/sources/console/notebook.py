"""Turns the saved outputs of a notebook (an ``.ipynb``, or one cell's HTML) into the rows and events of its run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import ChannelKind, EventKind, Item, RawRow, RunConfig, RunEvent, Stream
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import guess
from grpo_watch.sources.base import ChannelSource, Skip, SourceStats
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.rows.document import RewrittenSource
from grpo_watch.sources.rows.html_tables import HTML, HtmlTable, TableParser
from grpo_watch.sources.rows.layouts import parts_of
from grpo_watch.sources.rows.tables import TableSource, keys_of, row_of, table_owner

TRAINS = re.compile(r"(?<!model)\.train\(|\btrain_\w*\(|\bGRPOTrainer\b")
"""Matches code of training cells; an error in such a cell is the run's."""
CHART = "application/vnd.plotly.v1+json"
STOPPED = "KeyboardInterrupt"
"""A user pressed the stop button; no crash."""
LEAST_LINES = 3
"""Fewest rows of a table that count as an attempt."""
ENDS = frozenset({EventKind.TRACEBACK, EventKind.CONFIG_ERROR, EventKind.KILLED})
NO_CELL = -1


@dataclass(slots=True, eq=False)
class Shown:
    """Rows that belong together: of one table, or printed by one cell; ``table``: the table they were read from."""

    cell: int
    rows: Sequence[RawRow]
    keys: frozenset[str]
    table: HtmlTable | None = None

    @property
    def of_grpo(self) -> bool:
        """Whether a reward is among the metrics."""
        return any(guess(key) == "reward_mean" for key in self.keys)

    @property
    def of_evaluation(self) -> bool:
        """Whether ``trainer.evaluate()`` drew the table: during training, transformers puts the counter first."""
        return self.table is not None and self.table.header[:1] == ["Training Loss"]

    def like(self, other: Shown) -> bool:
        """Whether most metrics are the same in both."""
        return 2 * len(self.keys & other.keys) > max(len(self.keys), len(other.keys))

    def continues(self, other: Shown) -> bool:
        """Whether this is a later part of the same run: similar metrics, continuing steps."""
        return self.like(other) and (self.rows[0].step or 0) > (other.rows[-1].step or 0)


def runs_in(parts: Iterable[Shown]) -> list[list[Shown]]:
    """Group parts that continue each other."""
    runs: list[list[Shown]] = []
    for part in parts:
        if runs and part.continues(runs[-1][-1]):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def longest_of(parts: Iterable[Shown]) -> list[Shown]:
    """Return the parts of the longest run with a reward (of the longest run, if none has a reward)."""
    runs = runs_in(parts)
    rewarded = [run for run in runs if run[0].of_grpo] or runs
    return max(reversed(rewarded), key=lambda run: sum(len(part.rows) for part in run), default=[])


def attempts_of(parts: Sequence[Shown]) -> list[list[Shown]]:
    """Return the runs with a reward in order, each with its parts; without any reward the longest run.

    Users try a few steps, change a setting and start again: these are attempts. Runs with other metrics than the
    longest run belong to another training; a notebook may also show one table twice.
    """
    best = longest_of(parts)
    if not best or not best[0].of_grpo:
        return [best] if best else []
    return runs_in(part for part in parts if part in best or _tried(part, best[0]))


def _tried(part: Shown, best: Shown) -> bool:
    same = part.table is not None and best.table is not None and part.table.lines[:3] == best.table.lines[:3]
    return part.of_grpo and len(part.rows) >= LEAST_LINES and part.like(best) and not same


@dataclass(slots=True)
class Notebook:
    """The outputs of a notebook's code cells: tables, and printed text with errors, each with its cell's number.

    ``frames``: tables of pandas, used if nothing else shows rows.
    """

    tables: list[tuple[int, HtmlTable]] = field(default_factory=list)
    frames: list[tuple[int, HtmlTable]] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    trains: set[int] = field(default_factory=set)

    def add_html(self, number: int, html: str) -> None:
        """Add the tables of one output."""
        found = TableParser(html).tables
        self.tables += [(number, table) for table in found]
        self.frames += [(number, table) for table in ([] if found else TableParser(html, frames=True).tables)]


class NotebookSource(RewrittenSource):
    """Reads one notebook.

    Of several tables it reads the longest GRPO run's, with its continuations and earlier attempts; other tables are
    counted as skipped. Without a table, printed text is parsed as a console log; if the table shows no reward, the
    printed rows of its cell complete it. An error counts if it ends the cell of the last rows, or without rows the last
    training cell.
    """

    KIND = ChannelKind.CONSOLE

    def _read(self, text: str) -> Notebook | None:
        notebook = read_notebook(text)
        if notebook is None and text:
            self.stats.skip(Skip.NOT_JSON, "no notebook")
        return notebook

    def items(self, text: str, seen: float | None) -> Sequence[Item] | None:
        """Return all items in the outputs."""
        notebook = self._read(text)
        return list(self._of_notebook(notebook, seen)) if notebook is not None else None

    def _of_notebook(self, notebook: Notebook, seen: float | None) -> Iterator[Item]:
        tables = self._tables(notebook.tables, seen)
        runs = attempts_of([part for part in tables if not part.of_evaluation] or tables)
        for part in tables:
            if not any(part in run for run in runs):
                self._skip(f"{_place(part.cell)}a table of {len(part.rows)} rows is left aside")
        printed = list(self._printed(notebook, runs[-1] if runs else (), seen))
        if not (runs or _train_rows(printed)):
            runs = attempts_of(self._tables(notebook.frames, seen))
        last = runs[-1][-1].table if runs else None
        if last is None:
            yield from printed
            return
        if (owner := table_owner(last.header)) is not None:
            yield RunConfig(owner, None, {}, self.name, self.segment, precedence=3)
        yield from (item for item in printed if isinstance(item, RunConfig))
        for number, run in enumerate(runs):
            if number:
                yield RunEvent(self.name, EventKind.STARTED, segment=self.segment, seen=seen)
            shown = [row for part in run for row in part.rows]
            yield from shown if run[0].of_grpo else completed(shown, _train_rows(printed))
        if last.total and last.done >= last.total:
            yield RunEvent(self.name, EventKind.FINISHED, last.done, segment=self.segment, seen=seen)
        yield from filter(_ends, printed)

    def _tables(self, tables: Sequence[tuple[int, HtmlTable]], seen: float | None) -> list[Shown]:
        parts = []
        for cell, table in tables:
            keys = keys_of(table.header, {})
            if rows := list(self._rows(cell, table, keys, seen)):
                parts.append(Shown(cell, rows, frozenset(keys), table))
        return parts

    def _rows(self, cell: int, table: HtmlTable, keys: Sequence[str], seen: float | None) -> Iterator[RawRow]:
        for number, cells in enumerate(table.lines, 1):
            row = row_of(keys, cells)
            if row.step is None or not row.values:
                self._skip(f"{_place(cell)}row {number} of the table")
                continue
            stream = row_numbers.stream(row.values)
            where = self.name, self.KIND, row.step, row.values, stream, self.segment, table.total
            yield RawRow(*where, seen=seen, resolution=row.resolution)

    def _printed(self, notebook: Notebook, run: Sequence[Shown], seen: float | None) -> Iterator[Item]:
        """Yield the items of each cell's console output, and the error that ended the run's last cell.

        Of several cells with rows, the longest run with a reward counts; rows of other cells are skipped.
        """
        cells = {
            cell: list(printed_items(self.name, self.segment, text, seen)) for cell, text in notebook.texts.items()
        }
        rows = {cell: found for cell, items in cells.items() if (found := _train_rows(items))}
        parts = [Shown(cell, rows[cell], frozenset(rows[cell][-1].values)) for cell in sorted(rows)]
        of_run = {part.cell for part in run or longest_of(parts)}
        for cell, items in cells.items():
            if cell in rows and cell not in of_run:
                self._skip(f"cell {cell}: {len(rows[cell])} printed rows are left aside")
            trains = cell in (of_run or notebook.trains)
            kept = trains or not of_run
            yield from (i for i in items if (kept and (trains or not _ends(i))) or isinstance(i, RunConfig))
        last = max(of_run or notebook.trains, default=None)
        for cell, text in notebook.errors:
            if cell == last:
                traceback = f"Traceback (most recent call last):\n{text}\n"
                yield from printed_items(self.name, self.segment, traceback, seen)


def printed_items(name: str, segment: int, text: str, seen: float | None = None) -> Iterator[Item]:
    """Yield the items of a cell's printed text, parsed as a console log."""
    parser = ConsoleParser(name, segment, SourceStats(), {})
    for line in re.split(r"[\r\n]", text):
        yield from parser.feed(line.encode("utf-8", "replace"), seen)
    yield from parser.flush(seen)


def _ends(item: Item) -> bool:
    return isinstance(item, RunEvent) and item.kind in ENDS


class HtmlTableSource(NotebookSource):
    """Reads the saved output of one training cell: an HTML table that is redrawn as it grows."""

    KIND = ChannelKind.JSONL
    _unread = False

    def _read(self, text: str) -> Notebook | None:
        notebook = Notebook()
        notebook.add_html(NO_CELL, text)
        self._unread = not (notebook.tables or notebook.frames)
        return None if self._unread else notebook

    def _rest(self) -> Iterator[Item]:
        if self._unread and not self._given:
            self._skip("no table with a Step column and rows that fill its columns")
        return super()._rest()


def table_source(name: str, path: Path, *place: Any, **own: Any) -> ChannelSource:
    """Return the source of a table by its file's suffix: HTML, else one line per row."""
    return (HtmlTableSource if path.suffix in HTML else TableSource)(name, path, *place, **own)


def holds_run(text: str) -> bool:
    """Whether a notebook's outputs hold rows, or the end of a run."""
    items = NotebookSource("", Path(), ()).items(text, None)
    return any(isinstance(item, (RawRow, RunEvent)) for item in items or ())


def read_notebook(text: str) -> Notebook | None:
    """Return the outputs of a notebook; None if the text isn't one."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        return None
    found = Notebook()
    ahead, last = [0], 0  # training cells that did not run; the last one that ran
    for number, cell in enumerate(cells):
        if isinstance(cell, dict) and isinstance(cell.get("outputs"), list):
            if TRAINS.search(_joined(cell.get("source"))) is not None:
                (found.trains.add if cell["outputs"] else ahead.append)(number)
            for output in cell["outputs"]:
                if isinstance(output, dict):
                    _add(found, number, output)
                    last = number
    if found.errors and found.errors[-1][0] == last < max(ahead) and "GRPO" in text:
        found.trains.add(last)  # training was never reached
    return found


def completed(table: Sequence[RawRow], printed: Sequence[RawRow]) -> Sequence[RawRow]:
    """Merge printed rows into a table's by step, keeping printed rows between them; the table's values win.

    transformers' table shows only the loss by default; a callback may print the rest.
    """
    if not any(guess(key) == "reward_mean" for row in printed for key in row.values):
        return table
    by_step = {row.step or 0: row for row in _aligned(table, printed)}
    for row in table:
        more = by_step.get(row.step or 0)
        by_step[row.step or 0] = row if more is None else _joined_row(row, more)
    return [by_step[step] for step in sorted(by_step)]


def _aligned(table: Sequence[RawRow], printed: Sequence[RawRow]) -> Sequence[RawRow]:
    """Give printed rows that were only counted the table's steps, if both have as many rows in sequence.

    Printed rows name no step if the notebook draws the bar itself.
    """
    steps = [row.step for row in table]
    counted = [row.step for row in printed] == list(range(1, len(printed) + 1))
    if counted and steps != list(range(1, len(steps) + 1)) and 0 <= len(printed) - len(steps) <= 1:
        return [row._replace(step=step) for row, step in zip(printed, steps, strict=False)]
    return [row for row in printed if row.step is not None]


def _joined_row(row: RawRow, more: RawRow) -> RawRow:
    """Merge two rows into one, with the coarser resolution of the two."""
    resolution = max((one.resolution for one in (row, more) if one.resolution is not None), default=None)
    return row._replace(values={**more.values, **row.values}, resolution=resolution)


def _place(cell: int) -> str:
    return f"cell {cell}: " if cell != NO_CELL else ""


def _train_rows(items: Sequence[Item]) -> list[RawRow]:
    return [item for item in items if isinstance(item, RawRow) and item.stream in {None, Stream.TRAIN}]


def _add(found: Notebook, number: int, output: Mapping[str, Any]) -> None:
    kind = output.get("output_type")
    if kind == "stream":
        found.texts[number] = found.texts.get(number, "") + _joined(output.get("text"))
    elif kind == "error" and output.get("ename") not in ("", STOPPED):  # empty if the kernel was lost
        found.errors.append((number, f"{output.get('ename')}: {output.get('evalue')}".split("\n", 1)[0]))
    elif isinstance(data := output.get("data"), dict):
        html = _joined(data.get("text/html"))
        for rows in parts_of(data.get(CHART)).values():
            found.texts[number] = found.texts.get(number, "") + "".join(f"{json.dumps(row)}\n" for row in rows)
        if not html and (shown := _joined(data.get("text/markdown")) or _joined(data.get("text/plain"))):
            found.texts[number] = found.texts.get(number, "") + f"{shown}\n"
        if "<th" in html:
            found.add_html(number, html)


def _joined(text: object) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
