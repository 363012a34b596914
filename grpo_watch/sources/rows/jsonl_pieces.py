"""Turns a JSON-lines log with several lines per step, or one for each number, into one complete row per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import ChannelKind, Cursor, Item
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.files.tail import SplitLine, Tail
from grpo_watch.sources.rows.jsonl import decode
from grpo_watch.sources.rows.layouts import single_number
from grpo_watch.sources.rows.step_feed import StepFeed

TIME = "time"
"""When the line was written, Unix seconds."""


class JsonlPiecesSource(Source):
    """Puts the lines of a step together; a step is complete when a line of another one comes.

    prime-rl appends to the file after a resume. What it repeats of steps that were given already is passed over and
    counted; so is what comes late of a step. Values that are not finite it leaves out: the metric is absent then.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.stats = name, SourceStats()
        self._tail = Tail(path, roots, cursor)
        self._feed = StepFeed(name, ChannelKind.JSONL, segment, cursor)
        self._generation = 0
        self.step_column = ""

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the rows of steps that are complete."""
        yield from self._items(self._tail.read(live=seen is not None), seen)

    def finish(self) -> Iterator[Item]:
        """Yield the newest step as far as it came."""
        yield from self._items(self._tail.finish(), None)
        self._feed.flush(self._feed.read_to)
        yield from self._give()

    def cursor(self) -> Cursor:
        """Where reading would continue: before the first line of the step that is not complete."""
        position, state = self._feed.position({})
        at = self._tail.cursor(self.name, position)
        return Cursor(at.source, at.identity, at.position, state)

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

    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        for line in lines:
            if line.generation != self._generation:
                self._generation = line.generation
                self._feed.restart(line.start)
            self._take(line, seen)
            self._feed.read_to = line.end
            yield from self._give()
        self.stats.bytes, self.stats.problem = self._tail.bytes, self._tail.problem

    def _take(self, line: SplitLine, seen: float | None) -> None:
        if line.too_long:
            self.stats.skip(Skip.TOO_LONG, f"byte {line.start}: {line.end - line.start} bytes")
            return
        if not line.data.strip():
            return
        row: Mapping[str, Any] | None = decode(line.data)
        if row is None:
            self.stats.skip(Skip.NOT_JSON, f"byte {line.start}: no JSON object")
            return
        row = single_number(row) or row
        values, step = row_numbers.numbers(row), row_numbers.place(row).step
        if self.step_column in row:
            step = row_numbers.whole(row[self.step_column])
        time = values.pop(TIME, None)
        if step is None or not values:
            self.stats.skip(Skip.NO_STEP if values else Skip.NOT_A_ROW, f"byte {line.start}")
            return
        before = self._feed.late
        self._feed.add(line.start, step, values, time, seen)
        if self._feed.late > before:
            self.stats.skip(Skip.DUPLICATE, f"byte {line.start}: step {step} was complete already")

    def _give(self) -> Iterator[Item]:
        for item in self._feed.give():
            self.stats.records += 1
            yield item
