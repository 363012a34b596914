"""Reads lines of a framework's own rows many at a time, as long as they differ in nothing but their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grpo_watch.engine.records import Item
from grpo_watch.frameworks.line_reader import LineLayout
from grpo_watch.sources.console.collector_prefixes import Envelope
from grpo_watch.sources.console.parser import ConsoleParser

LAYOUTS = 16
"""Key sets that are remembered; a log has one or two."""


class _KnownLayout(NamedTuple):
    """What a collector puts before each row (Ray does), and how the row is read."""

    before: bytes
    read: LineLayout


class AlikeLines:
    """Knows the lines that the parser's reader took before; everything else is left to the parser."""

    def __init__(self, parser: ConsoleParser) -> None:
        self._parser = parser
        self._layouts: list[_KnownLayout] = []

    def take(self, lines: Sequence[bytes], start: int) -> tuple[list[Item], int]:
        """The items of the lines from one index on, and the index of the first that must be read by the parser."""
        items: list[Item] = []
        if not self._parser.between_rows:
            return items, start
        for index in range(start, len(lines)):
            line = lines[index]
            if line and not self._take(line, items):
                self._learn(line)
                return items, index
        return items, len(lines)

    def _take(self, line: bytes, items: list[Item]) -> bool:
        for index, (before, read) in enumerate(self._layouts):
            row = read(line[len(before) :]) if line.startswith(before) else None
            if row is not None:
                items += self._parser.take_row(row)
                if index:
                    self._layouts.insert(0, self._layouts.pop(index))
                return True
        return False

    def _learn(self, line: bytes) -> None:
        """Remember how a line looks, if it is a row: the next one may look alike."""
        envelope = Envelope()
        pieces = envelope.take(line)
        if len(pieces) != 1 or envelope.rank or not line.endswith(bare := pieces[0]):
            return
        read = self._parser.layout(bare)
        if read is not None:
            self._layouts = [_KnownLayout(line[: len(line) - len(bare)], read), *self._layouts[: LAYOUTS - 1]]
