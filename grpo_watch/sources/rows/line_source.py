"""What sources of growing text files share, and those that make at most one item of each line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from grpo_watch.engine.records import Cursor, Item, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Source, SourceStats
from grpo_watch.sources.files.step_gaps import Missing
from grpo_watch.sources.files.tail import SplitLine, Tail


class TailSource(Source, ABC):
    """Reads a text file that grows; a subclass sets ``_tail``."""

    _tail: Tail

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget."""
        return self._tail.unread

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere."""
        return self._tail.held

    def close(self) -> None:
        """Free the file handle."""
        self._tail.close()


class LineSource(TailSource, ABC):
    """Counts lines from 1 in each generation of the file; a subclass reads a line and keeps what must be kept."""

    def __init__(self, name: str, tail: Tail, segment: int, cursor: Cursor | None) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._tail, self._generation = tail, 0
        self._missing = Missing(tail.path, self.stats)
        self._line = row_numbers.whole(cursor.state.get("line")) or 0 if cursor is not None else 0

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the items of all lines that were completed."""
        yield from self._items(self._tail.read(live=seen is not None), seen)

    def finish(self) -> Iterator[Item]:
        """Yield the item of a last line that has no end."""
        yield from self._items(self._tail.finish(), None)

    def cursor(self) -> Cursor:
        """Where reading would continue, and what later lines need of those before."""
        at = self._tail.cursor(self.name)
        return Cursor(at.source, at.identity, at.position, {"line": self._line, **self._remembered()})

    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        for line in lines:
            self._follow(line.generation)
            self._line += 1
            item = self._item(line, seen)
            if item is not None:
                self.stats.records += 1
                self._missing.look(item)
                yield item
        self.stats.bytes, self.stats.problem = self._tail.bytes, self._tail.problem

    def _follow(self, generation: int) -> None:
        """Start over where the file did."""
        if generation != self._generation:
            self._generation, self._line = generation, 0
            self._forget()
            self._missing.restarted()

    @abstractmethod
    def _item(self, line: SplitLine, seen: float | None) -> Item | None:
        """The item of a line; counts what it can't use."""

    @abstractmethod
    def _remembered(self) -> dict[str, Scalar]:
        """What later lines need of those so far, for the cursor."""

    @abstractmethod
    def _forget(self) -> None:
        """The file starts over: its earlier lines no longer count."""
