"""Readers of console output: rows, by ``row:`` of a ``keys.yaml`` or a ``console.py``'s ``READER``, and ``marks:``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from grpo_watch.engine.records import Scalar, Stream
from grpo_watch.frameworks.framework import ConsoleMark, DictionaryRow, MarkKind
from grpo_watch.frameworks.framework_tables import contributions, frameworks
from grpo_watch.frameworks.python_literal import dictionaries
from grpo_watch.frameworks.row_numbers import numbers, whole


class MetricLine(Struct, frozen=True):
    """One complete row as printed.

    ``step`` None: the line names none (a count or a progress bar gives it). ``resolution``: numbers below it print as
    zero (0.0005 for ``:.3f``; None: exact). ``lost``: broken pieces of the row that could not be read.
    """

    step: int | None
    values: Mapping[str, float | None]
    stream: Stream | None = None
    max_steps: int | None = None
    resolution: float | None = None
    lost: int = 0


class LineReader:
    """Recognises the metric lines of one framework in a console without envelopes (Ray, Docker …).

    ``marks`` are byte strings, one of which is in every line that begins a row; no other line is passed to
    ``read_line`` while ``held`` is False. A mark may be anywhere in the line (a progress bar is glued before it) and
    may be model text: a reader returns rows, or holds, only if the rest of the line leaves no doubt.

    A row that spans several lines is held (``held`` True: every line comes, other processes' and bars among them) until
    a line ends it; after 1,000 lines it is flushed. It must end by its own last line: while a row is held the source's
    cursor stays before its first line, and a reader that restarts there is a new one. So nothing may be remembered from
    one row to the next but one whole number, ``memory``, which is kept across a restart. A reader never raises.
    """

    framework: str
    marks: Sequence[bytes]
    memory: int | None = None
    """None for a reader whose rows don't depend on earlier ones."""

    @property
    def held(self) -> bool:
        """Whether an unfinished row is held."""
        return False

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The rows that this line completes."""
        raise NotImplementedError

    def flush(self) -> Sequence[MetricLine]:
        """The held row if it can stand alone; nothing is held afterwards."""
        return ()


class DictionaryLines(LineReader):
    """Reads rows that are a dictionary after their step, as a data file describes them."""

    def __init__(self, framework: str, row: DictionaryRow) -> None:
        self.framework, self.marks, self._line = framework, (row.mark.encode(),), row.line

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row of one line."""
        begin = self._line.search(line)
        found = next(dictionaries(line[begin.end() :]), None) if begin is not None else None
        if begin is None or found is None or found.start or not found.row:
            return ()
        values = numbers(found.row)
        return (MetricLine(int(begin[1]), values),) if values else ()


def readers() -> Sequence[LineReader]:
    """A new reader of each data file's ``row`` and of each ``<framework>/console.py`` (its ``READER`` class)."""
    rows = (DictionaryLines(table.name, table.row) for table in frameworks().values() if table.row is not None)
    return (*rows, *(reader() for reader in contributions("console", "READER")))


@cache
def marks(*kinds: MarkKind) -> tuple[ConsoleMark, ...]:
    """Every framework's marks of these kinds (all kinds if none is given)."""
    found = (mark for table in frameworks().values() for mark in table.marks)
    return tuple(mark for mark in found if not kinds or mark.kind in kinds)


LONGEST_ROW = 1000
"""Lines after which an unfinished row is dropped (AReaL's and ROLL's take some hundred)."""


class FrameworkRows(NamedTuple):
    """The framework of a line, and the rows it completed (none while a row is held)."""

    framework: str
    rows: Sequence[MetricLine]


class FrameworkLines:
    """One reader of each framework; the one that took the last line is tried first.

    Args:
        state: the value of ``state`` before a restart.
    """

    def __init__(self, state: Mapping[str, Scalar] = MappingProxyType({})) -> None:
        self._readers: list[LineReader] = list(readers())
        self._remember = [reader for reader in self._readers if reader.memory is not None]
        for reader in self._remember:
            reader.memory = whole(state.get(f"{reader.framework} memory")) or reader.memory
        self._marks = re.compile(b"|".join(re.escape(mark) for reader in self._readers for mark in reader.marks))
        self._holding: LineReader | None = None
        self._lines = 0

    @property
    def held(self) -> bool:
        """Whether a reader holds an unfinished row."""
        return self._holding is not None

    def state(self) -> dict[str, Scalar]:
        """The readers' memory between rows."""
        return {f"{each.framework} memory": each.memory for each in self._remember}

    def may_begin(self, line: bytes) -> bool:
        """Whether a row of any framework might begin in this line."""
        return self._marks.search(line) is not None

    def read_line(self, line: bytes) -> FrameworkRows | None:
        """The framework and rows of a line; None if no framework recognises it."""
        if self._holding is not None:
            return self._go_on(self._holding, line)
        for reader in self._readers:
            if any(mark in line for mark in reader.marks) and (taken := self._ask(reader, line)) is not None:
                return taken
        return None

    def flush(self) -> FrameworkRows | None:
        """The held row, if it can stand alone."""
        reader, self._holding = self._holding, None
        return FrameworkRows(reader.framework, reader.flush()) if reader is not None else None

    def _ask(self, reader: LineReader, line: bytes) -> FrameworkRows | None:
        rows = reader.read_line(line)
        if not rows and not reader.held:
            return None
        if reader is not self._readers[0]:
            self._readers.remove(reader)
            self._readers.insert(0, reader)
        self._holding, self._lines = (reader if reader.held else None), 0
        return FrameworkRows(reader.framework, rows)

    def _go_on(self, reader: LineReader, line: bytes) -> FrameworkRows:
        rows = list(reader.read_line(line))
        self._lines += 1
        if self._lines > LONGEST_ROW:
            rows += reader.flush()
        self._holding = reader if reader.held else None
        return FrameworkRows(reader.framework, rows)
