"""Turns the console log of a TRL or ms-swift job (stdout, stderr or both) into rows, progress and signs of trouble."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_watch.core.records import Cursor, Item
from grpo_watch.sources import rows
from grpo_watch.sources.base import Skip, SourceStats
from grpo_watch.sources.console_parser import ConsoleParser
from grpo_watch.sources.tail import Line, Tail

LONGEST_PIECE = 1 << 20
"""Bytes between two carriage returns or line ends; a row takes about 1 KB."""


class ConsoleSource:
    """Reads one console log.

    Its cursor stands before the oldest row that is held back, with the parser's state there and the number of items
    that were given since (``again``): a source that goes on from it makes those once more and passes them over.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.stats = name, SourceStats()
        state = dict(cursor.state) if cursor is not None else {}
        self._again = rows.whole(state.pop("again", 0)) or 0
        self._tail = Tail(path, roots, cursor, bars=True, max_line=LONGEST_PIECE)
        self._parser = ConsoleParser(name, segment, self.stats, state)
        self._queue: deque[Item] = deque()
        self._generation = 0
        self._mark = cursor.position if cursor is not None else 0
        self._given = 0
        self._clean = self._again == 0

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the items of all pieces that were completed."""
        yield from self._items(self._tail.read(), seen)

    def finish(self) -> Iterator[Item]:
        """Yield what the last piece and the rows held back give."""
        yield from self._items(self._tail.finish(), None)
        self._queue.extend(self._parser.flush(None))
        yield from self._give()

    def cursor(self) -> Cursor:
        """Where reading would go on so that exactly the items not yet yielded come."""
        if self._clean:
            at = self._tail.cursor(self.name)
            return Cursor(at.source, at.identity, at.position, self._parser.state())
        at = self._tail.cursor(self.name, self._mark)
        return Cursor(at.source, at.identity, at.position, {**self._parser.saved, "again": self._given})

    def close(self) -> None:
        """Free the file handle."""
        self._tail.close()

    def _items(self, lines: Iterator[Line], seen: float | None) -> Iterator[Item]:
        yield from self._give()
        for line in lines:
            if line.generation != self._generation:
                self._generation, self._again = line.generation, 0
                self._queue.extend(self._parser.flush(seen))
            self._feed(line, seen)
            if self._queue:
                yield from self._give()
        self.stats.bytes, self.stats.problem = self._tail.bytes, self._tail.problem

    def _feed(self, line: Line, seen: float | None) -> None:
        if line.too_long:
            self.stats.skip(Skip.TOO_LONG, f"byte {line.start}: {line.end - line.start} bytes without a line end")
            return
        parser = self._parser
        was_idle = parser.idle
        items = parser.feed(line.data, seen)
        if was_idle and (len(items) > 1 or not parser.idle):
            self._mark, self._given = line.start, 0
        self._clean = parser.idle and not items
        self._queue += items

    def _give(self) -> Iterator[Item]:
        while self._queue:
            item = self._queue.popleft()
            self._given += 1
            self._clean = not self._queue and self._parser.idle
            if self._again:
                self._again -= 1
            else:
                self.stats.records += 1
                yield item
        self._clean = self._parser.idle
