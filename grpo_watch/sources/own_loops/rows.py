"""Reads what own training loops print in any shape: lines, blocks, printed tables, and bars with metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from grpo_watch.engine.records import Scalar
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.sources.console.collector_prefixes import Envelope
from grpo_watch.sources.console.progress_bar import training_bar
from grpo_watch.sources.own_loops.lines import OwnLines, may_show
from grpo_watch.sources.own_loops.printed_columns import PrintedColumns
from grpo_watch.sources.own_loops.tqdm_metrics import BarRows

MOVES = re.compile(rb"\x1b\[[\d;?]{0,10}[A-Za-z]")
"""How a terminal is told to move its cursor, behind a bar drawn below another one."""


class OwnRows:
    """One reader for each shape. The shape that gave rows first is the log's, and the others are not asked any more.

    Args:
        state: what ``state`` gave before a restart.
    """

    def __init__(self, state: Mapping[str, Scalar]) -> None:
        self._lines = OwnLines(str(state.get("own") or ""))
        self._columns = PrintedColumns(str(state.get("columns") or ""))
        self._bars = BarRows(str(state.get("bars") or ""))
        self._asked, self.sure = bool(state.get("own") or state.get("columns") or state.get("bars")), False
        self._look()

    def state(self) -> dict[str, Scalar]:
        """What has to be remembered across a restart; nothing while nothing that looks like a row was seen."""
        if not self._asked:
            return {}
        kept = {"own": self._lines.state(), "columns": self._columns.state(), "bars": self._bars.state()}
        return {name: state for name, state in kept.items() if state}

    def _look(self) -> None:
        """``sure``: the rows of the log are those of an own loop."""
        self.sure = self._lines.sure or self._columns.open or self._bars.sure
        self._asked = self._asked or self.sure

    def wants(self, data: bytes) -> bool:
        """Whether a line may complete or begin a row; the others cost no more than this look."""
        if self._columns.open or b"eward" in data or b"eturn" in data or may_show(data):
            return True
        self._lines.passed()
        return False

    def line(self, data: bytes) -> Sequence[MetricLine]:
        """The rows that a line completes."""
        if self._bars.sure:
            return ()
        self._asked = True
        rows = (() if self._lines.sure else self._columns.feed(data)) or self._lines.feed(data)
        self._look()
        return rows

    def table(self, data: bytes) -> Sequence[MetricLine]:
        """The row that a line drawn with rules completes: other text never looks so."""
        if self._bars.sure or self._lines.sure:
            return ()
        rows = self._columns.feed(data)
        self._look()
        return rows

    def bar(self, data: bytes) -> Sequence[MetricLine]:
        """The row that a bar completes."""
        if self._lines.sure or self._columns.open:
            return ()
        self._asked = True
        rows = self._bars.feed(data)
        self._look()
        return rows

    def bar_or_line(self, data: bytes) -> Sequence[MetricLine]:
        """The rows that a bar completes, or the line behind it: what is printed below a bar often shares its line."""
        behind = training_bar(data)[1]
        line = MOVES.sub(b"", data[behind:]).strip() if behind else b""
        return self.line(line) if line else self.bar(MOVES.sub(b"", data))

    def flush(self) -> Sequence[MetricLine]:
        """The rows that are held back."""
        return (*self._lines.flush(), *self._bars.flush())


def holds_own_rows(text: bytes) -> bool:
    """Whether a piece of a log has rows of an own loop."""
    rows, envelope = OwnRows({}), Envelope()
    pieces = (piece for line in text.replace(b"\r", b"\n").split(b"\n") for piece in envelope.take(line))
    return any(rows.line(piece) or rows.bar_or_line(piece) for piece in pieces) or bool(rows.flush())
