"""Turns the saved outputs of a Jupyter notebook (``.ipynb``) into the rows and events of the run that it holds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import xxhash

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RawRow, RunConfig, RunEvent, Stream
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import guess
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.own_loops.html_metric_tables import PrintedTable, TableParser, attempts_of
from grpo_watch.sources.rows.layouts import parts_of
from grpo_watch.sources.tables.table_rows import keys_of, row_of, table_owner

LARGEST = 64 << 20
"""Bytes of the largest notebook that is read; pictures make some of them tens of megabytes large."""
TRAINS = re.compile(r"(?<!model)\.train\(|\btrain_\w*\(|\bGRPOTrainer\b")
"""Source of a cell whose error is the run's."""


CHART = "application/vnd.plotly.v1+json"
STOPPED = "KeyboardInterrupt"
"""Somebody pressed the stop button, which is no crash."""


@dataclass(slots=True)
class Notebook:
    """The outputs of a notebook's code cells: tables, and printed text with errors, each with its cell's number.

    ``frames``: the tables with those of pandas among them, which count where nothing else shows rows.
    """

    tables: list[PrintedTable] = field(default_factory=list)
    frames: list[PrintedTable] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    trains: set[int] = field(default_factory=set)


class NotebookSource(Source):
    """Reads one notebook. Jupyter rewrites the file each time: only what is new comes.

    Of several tables the one of the longest GRPO run is read, with the parts that continue it; the others are counted
    as left aside. Without a table the printed text is read as a console's; where the table shows no reward, the printed
    rows of its cell complete it. An error counts where it ends the
    cell of the last rows, or without rows the last cell that trains. A notebook whose run begins with another row is
    read from its beginning.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._path, self._roots = path, tuple(roots)
        self._given = cursor.position if cursor is not None else 0
        self._first = str(cursor.state.get("first") or "") if cursor is not None else ""
        self._stamp: tuple[int, int, int] | None = None

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield what the notebook has more than before."""
        text = self._text()
        notebook = read_notebook(text) if text is not None else None
        if notebook is None:
            if text:
                self.stats.skip(Skip.NOT_JSON, "no notebook")
            return
        items = list(self._items(notebook, seen))
        first = next((_digest(item) for item in items if isinstance(item, RawRow)), "")
        if first != self._first or self._given > len(items):
            self._first, self._given = first, 0
        for item in items[self._given :]:
            self._given += 1
            self.stats.records += 1
            yield item

    def finish(self) -> Iterator[Item]:
        """Nothing is held back."""
        return iter(())

    def cursor(self) -> Cursor:
        """How many items were given, and of which run."""
        return Cursor(self.name, "", self._given, {"first": self._first})

    def close(self) -> None:
        """No handle stays open."""

    def _items(self, notebook: Notebook, seen: float | None) -> Iterator[Item]:
        runs, aside = attempts_of(notebook.tables)
        if self._given == 0:
            for table in aside:
                self.stats.skip(Skip.NOT_A_ROW, f"cell {table.cell}: a table of {len(table.lines)} rows is left aside")
        printed = list(self._printed(notebook, seen))
        if not (runs or _train_rows(printed)):
            runs, aside = attempts_of(notebook.frames)
        if not runs:
            yield from printed
            return
        chosen = runs[-1]
        if (owner := table_owner(chosen[0].header)) is not None:
            yield RunConfig(owner, None, {}, self.name, self.segment, precedence=3)
        yield from (item for item in printed if isinstance(item, RunConfig))
        for number, run in enumerate(runs):
            if number:
                yield RunEvent(self.name, EventKind.STARTED, segment=self.segment, seen=seen)
            shown = [row for table in run for row in self._rows(table, seen)]
            yield from shown if run[0].of_grpo else completed(shown, _train_rows(printed))
        if chosen[-1].total and chosen[-1].done >= chosen[-1].total:
            yield RunEvent(self.name, EventKind.FINISHED, chosen[-1].done, segment=self.segment, seen=seen)
        ended = {EventKind.TRACEBACK, EventKind.CONFIG_ERROR, EventKind.KILLED}
        yield from (item for item in printed if isinstance(item, RunEvent) and item.kind in ended)

    def _rows(self, table: PrintedTable, seen: float | None) -> Iterator[RawRow]:
        keys = keys_of(table.header, {})
        for cells in table.lines:
            row = row_of(keys, cells)
            if row.step is None or not row.values:
                self.stats.skip(Skip.NOT_A_ROW, f"a row of the table of cell {table.cell}")
                continue
            yield RawRow(
                channel=self.name,
                kind=ChannelKind.CONSOLE,
                step=row.step,
                values=row.values,
                stream=row_numbers.stream(row.values),
                segment=self.segment,
                max_steps=table.total,
                seen=seen,
                resolution=row.resolution,
            )

    def _printed(self, notebook: Notebook, seen: float | None) -> Iterator[Item]:
        """What the cells printed, each read as a console, and the error that ended the run's last cell.

        Of several cells with rows those of the longest run with a reward count; the rows of others are left aside.
        """
        cells = {cell: list(self._cell(text, seen)) for cell, text in notebook.texts.items()}
        rows = {cell: found for cell, items in cells.items() if (found := _train_rows(items))}
        of_run = {table.cell for table in _last(attempts_of(notebook.tables)[0])} or chosen_cells(rows)
        for cell, items in cells.items():
            if cell in rows and cell not in of_run and self._given == 0:
                self.stats.skip(Skip.NOT_A_ROW, f"cell {cell}: {len(rows[cell])} printed rows are left aside")
            kept = cell in of_run or not of_run
            yield from (item for item in items if kept or isinstance(item, RunConfig))
        last = max(of_run or notebook.trains, default=None)
        for cell, text in notebook.errors:
            if cell == last:
                yield from self._cell(f"Traceback (most recent call last):\n{text}\n", seen)

    def _cell(self, text: str, seen: float | None) -> Iterator[Item]:
        parser = ConsoleParser(self.name, self.segment, SourceStats(), {})
        for line in re.split(r"[\r\n]", text):
            yield from parser.feed(line.encode("utf-8", "replace"), seen)
        yield from parser.flush(seen)

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
            self.stats.problem = f"{self._path}: larger than {LARGEST >> 20} MiB, too large for a notebook"
            return None
        self.stats.bytes, self.stats.problem = self.stats.bytes + len(data), ""
        return data.decode("utf-8", "replace")


def holds_run(text: str) -> bool:
    """Whether a notebook's outputs hold a table of metrics, printed rows, or the error that ended a training cell."""
    notebook = read_notebook(text)
    if notebook is None:
        return False
    if notebook.tables or notebook.frames or notebook.trains & {cell for cell, _ in notebook.errors}:
        return True
    parser = ConsoleParser("", 0, SourceStats(), {})
    lines = (line for printed in notebook.texts.values() for line in re.split(r"[\r\n]", printed))
    return any(isinstance(item, RawRow) for line in lines for item in parser.feed(line.encode(), None))


def read_notebook(text: str) -> Notebook | None:
    """The outputs of a notebook; None for a text that is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        return None
    found = Notebook()
    ahead, last = [0], 0  # cells that would train and did not run; the last one that ran
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


def chosen_cells(rows: Mapping[int, Sequence[RawRow]]) -> set[int]:
    """The cells that printed the longest run with a reward (the longest run, if none has one)."""
    runs: list[list[int]] = []
    for cell in sorted(rows):
        before = rows[runs[-1][-1]][-1] if runs else None
        goes_on = (
            before is not None and (rows[cell][0].step or 0) > (before.step or 0) and _alike(before, rows[cell][0])
        )
        if goes_on:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    rewarded = [run for run in runs if any(guess(key) == "reward_mean" for key in rows[run[0]][-1].values)] or runs
    return set(max(reversed(rewarded), key=lambda run: sum(len(rows[cell]) for cell in run), default=()))


def completed(table: Sequence[RawRow], printed: Sequence[RawRow]) -> Sequence[RawRow]:
    """A table's rows with what was printed for the same steps, and the printed rows between; the table's values count.

    transformers' table shows the loss alone unless the trainer asks for more; a callback may print the rest.
    """
    if not any(guess(key) == "reward_mean" for row in printed for key in row.values):
        return table
    by_step = {row.step or 0: row for row in _aligned(table, printed)}
    for row in table:
        more = by_step.get(row.step or 0)
        by_step[row.step or 0] = row if more is None else _joined_row(row, more)
    return [by_step[step] for step in sorted(by_step)]


def _last(runs: Sequence[Sequence[PrintedTable]]) -> Sequence[PrintedTable]:
    return runs[-1] if runs else ()


def _aligned(table: Sequence[RawRow], printed: Sequence[RawRow]) -> Sequence[RawRow]:
    """The printed rows at the table's steps, where they were only counted: as many rows, and one after the other.

    What was printed of the rows names no step where the bar is drawn by the notebook itself.
    """
    steps = [row.step for row in table]
    counted = [row.step for row in printed] == list(range(1, len(printed) + 1))
    if counted and steps != list(range(1, len(steps) + 1)) and 0 <= len(printed) - len(steps) <= 1:
        return [row._replace(step=step) for row, step in zip(printed, steps, strict=False)]
    return [row for row in printed if row.step is not None]


def _joined_row(row: RawRow, more: RawRow) -> RawRow:
    """One row of two; its zeros are as rough as the rougher of the two prints them."""
    resolution = max((one.resolution for one in (row, more) if one.resolution is not None), default=None)
    return row._replace(values={**more.values, **row.values}, resolution=resolution)


def _alike(first: RawRow, second: RawRow) -> bool:
    return 2 * len(first.values.keys() & second.values.keys()) > max(len(first.values), len(second.values))


def _train_rows(items: Sequence[Item]) -> list[RawRow]:
    return [item for item in items if isinstance(item, RawRow) and item.stream in {None, Stream.TRAIN}]


def _add(found: Notebook, number: int, output: Mapping[str, Any]) -> None:
    kind = output.get("output_type")
    if kind == "stream":
        found.texts[number] = found.texts.get(number, "") + _joined(output.get("text"))
    elif kind == "error" and output.get("ename") != STOPPED:
        found.errors.append((number, f"{output.get('ename')}: {output.get('evalue')}".split("\n", 1)[0]))
    elif isinstance(data := output.get("data"), dict):
        html = _joined(data.get("text/html"))
        for rows in parts_of(data.get(CHART)).values():
            found.texts[number] = found.texts.get(number, "") + "".join(f"{json.dumps(row)}\n" for row in rows)
        if not html and (shown := _joined(data.get("text/markdown")) or _joined(data.get("text/plain"))):
            found.texts[number] = found.texts.get(number, "") + f"{shown}\n"
        if "<th" in html:
            found.tables += _tables(number, html)
            found.frames += _tables(number, html, frames=True)


def _tables(cell: int, html: str, *, frames: bool = False) -> Iterator[PrintedTable]:
    parser = TableParser(frames=frames)
    parser.feed(html)
    yield from (replace(table, cell=cell) for table in parser.tables)


def _joined(text: object) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""


def _digest(row: RawRow) -> str:
    return xxhash.xxh3_64_hexdigest(repr((row.step, sorted(row.values))).encode())
