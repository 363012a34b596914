"""Gives the lines of a console to the readers of single frameworks and finds the one that knows a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from grpo_watch.engine.records import Scalar
from grpo_watch.frameworks.line_reader import LineReader, MetricLine, readers
from grpo_watch.frameworks.row_numbers import whole

LONGEST_ROW = 1000
"""Lines after which a row that does not end is given up (AReaL's and ROLL's take some hundred)."""


class FrameworkRows(NamedTuple):
    """Whose line it was, and the rows it completed (none while a row is held)."""

    framework: str
    rows: Sequence[MetricLine]


class FrameworkLines:
    """One reader of each framework. The one that took a line last is asked first.

    Args:
        state: what ``state`` gave before a restart.
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
        """What the readers remember from one row to the next."""
        return {f"{each.framework} memory": each.memory for each in self._remember}

    def may_begin(self, line: bytes) -> bool:
        """Whether a row of any framework might begin in this line."""
        return self._marks.search(line) is not None

    def feed(self, line: bytes) -> FrameworkRows | None:
        """What a line gives; None when it is of no framework here."""
        if self._holding is not None:
            return self._go_on(self._holding, line)
        for reader in self._readers:
            if any(mark in line for mark in reader.marks) and (taken := self._ask(reader, line)) is not None:
                return taken
        return None

    def flush(self) -> FrameworkRows | None:
        """What is held, if it can stand as it is."""
        reader, self._holding = self._holding, None
        return FrameworkRows(reader.framework, reader.flush()) if reader is not None else None

    def _ask(self, reader: LineReader, line: bytes) -> FrameworkRows | None:
        rows = reader.feed(line)
        if not rows and not reader.held:
            return None
        if reader is not self._readers[0]:
            self._readers.remove(reader)
            self._readers.insert(0, reader)
        self._holding, self._lines = (reader if reader.held else None), 0
        return FrameworkRows(reader.framework, rows)

    def _go_on(self, reader: LineReader, line: bytes) -> FrameworkRows:
        rows = list(reader.feed(line))
        self._lines += 1
        if self._lines > LONGEST_ROW:
            rows += reader.flush()
        self._holding = reader if reader.held else None
        return FrameworkRows(reader.framework, rows)
