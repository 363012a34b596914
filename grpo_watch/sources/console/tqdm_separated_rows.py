"""Reads rows between progress bars many at a time, with the items that the console's parser makes of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from grpo_watch.engine.records import ChannelKind, Item, Progress, RawRow
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.console.parser import WIPE, ConsoleParser
from grpo_watch.sources.console.progress_bar import ProgressBar

BAR = re.compile(
    rb" {0,3}\d{1,3}%\|[ #\d\x80-\xff]{0,400}\| (\d{1,12})/(\d{1,12})"
    rb" \[\d[\d:]{0,20}<\d[\d:]{0,19}, {1,4}[\d.]{1,12}(?:it/s|s/it)\]"
)
"""A bar without a label or text behind it that was drawn before."""
NUMBER = rb"((?!-0[',}])-?(?:0|[1-9]\d{0,17})(?:\.\d{1,20})?(?:e[-+]\d\d)?)"
"""A number that JSON and Python read alike."""
PAIR = re.compile(rb"'([A-Za-z_][A-Za-z0-9_ /.\[\]()-]{0,200})': ('?)" + NUMBER + rb"\2")
ROW, END = b"{'", b"}"
LAYOUTS = 16
"""Key sets that are remembered; a log has one or two."""


class RowLayout(NamedTuple):
    """The keys of printed rows, and the pattern that matches such a row and nothing else."""

    keys: tuple[str, ...]
    pattern: re.Pattern[bytes]

    def values(self, line: bytes) -> dict[str, float | None] | None:
        """The numbers of a row that is printed so; None for any other line."""
        found = self.pattern.fullmatch(line)
        return None if found is None else dict(zip(self.keys, map(float, found.groups()), strict=True))


def layout_of(line: bytes) -> RowLayout | None:
    """How a row is printed that holds nothing but numbers and names no step; None for any other line."""
    pairs = list(PAIR.finditer(line))
    if b"{" + b", ".join(pair[0] for pair in pairs) + b"}" != line:
        return None
    row = {pair[1].decode(): float(pair[3]) for pair in pairs}
    values = row_numbers.numbers(row)
    plain = len(row) == len(pairs) and values == row and row_numbers.place(row) == row_numbers.NO_ROW_STEP
    if not plain or "train_runtime" in row or row_numbers.stream(row) is not None:
        return None
    if not row_numbers.is_printed_row(row, values):
        return None
    parts = (b"'" + re.escape(pair[1]) + b"': " + pair[2] + NUMBER + pair[2] for pair in pairs)
    return RowLayout(tuple(row), re.compile(rb"\{" + b", ".join(parts) + rb"\}"))


class BarredRows:
    """Follows the moves of tqdm around a row (see ``StepPlacement``) as long as there is nothing else.

    A row whose bar is not redrawn in the same lines is left to the parser, like everything that looks unusual.
    """

    def __init__(self, parser: ConsoleParser) -> None:
        self._parser = parser
        self._layouts: list[RowLayout] = []
        self._items: list[Item] = []

    def take(self, lines: Sequence[bytes], start: int) -> tuple[list[Item], int]:
        """The items of the lines from one index on, and the index of the first that must be read by the parser."""
        self._items = []
        if not self._parser.settled:
            return self._items, start
        end, steps = start, self._parser.steps
        held: dict[str, float | None] | None = None
        drawn, bar = b"", ProgressBar(0, 0, fresh=False, named=False, rest=0)
        for index in range(start, len(lines)):
            line = lines[index]
            if line.startswith(ROW):
                held = self._values(line) if steps.wiped and held is None else None
                if held is None:
                    break
                continue
            if line.isspace():
                if held is not None or len(line) < WIPE:
                    break
                steps.wiped = True
            elif line:
                if line != drawn:
                    found = BAR.fullmatch(line)
                    if found is None or int(found[2]) != steps.total:
                        break
                    drawn, bar = line, bar._replace(step=int(found[1]), total=int(found[2]))
                self._drawn(bar, held)
                held = None
            end = index + 1 if held is None else end
        return self._items, end

    def _drawn(self, bar: ProgressBar, held: dict[str, float | None] | None) -> None:
        """The bar was drawn; a row that is held belongs to its step."""
        parser, steps, waits = self._parser, self._parser.steps, held is not None
        moved = bar.step != steps.bar
        steps.drawn(bar, rows_wait=int(waits), train_waits=waits)
        if held is not None:
            step = steps.fitted(bar.step, held.get("epoch"))
            steps.placed(step)
            parser.went_on()
            self._items.append(RawRow(parser.name, ChannelKind.CONSOLE, step, held, segment=parser.segment))
        if moved:
            self._items.append(Progress(parser.name, bar.step, bar.total, parser.segment))

    def _values(self, line: bytes) -> dict[str, float | None] | None:
        """The numbers of a plain row; None for any other line."""
        for index, layout in enumerate(self._layouts):
            if (values := layout.values(line)) is not None:
                if index:
                    self._layouts.insert(0, self._layouts.pop(index))
                return values
        made = layout_of(line) if line.endswith(END) else None
        if made is None:
            return None
        self._layouts = [made, *self._layouts[: LAYOUTS - 1]]
        return made.values(line)
