"""Turns the console log of a job (stdout, stderr or both) into rows, progress and signs of trouble."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Cursor, EventKind, Item, Progress, RawRow, RunEvent, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, SourceStats
from grpo_watch.sources.completions.completion_table import PrintedTables
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.console.step_placement import lengths_at_end
from grpo_watch.sources.files.reading import opened
from grpo_watch.sources.files.tail import SplitLine
from grpo_watch.sources.rows.fields import PrintedField, fields_of
from grpo_watch.sources.rows.jsonl import TailSource
from grpo_watch.sources.rows.own_lines import may_show

ENDING = 64 << 10
"""Bytes at the end of a plain log that hold the trainer's summary."""
MOST_REPEATS = 16
"""Consecutive repeats after which a line without items is skipped until another line comes: waiting logs and
decompression bombs hold millions of them. Failures that it stands for are still counted."""


class _RestartPoint(Struct):
    """A place to continue from, the parser's state there, and the number of items emitted since."""

    place: Cursor
    state: Mapping[str, Scalar]
    given: int = 0

    def cursor(self) -> Cursor:
        at = self.place
        return Cursor(at.source, at.identity, at.position, {**self.state, "again": self.given})


class ConsoleSource(TailSource):
    """Reads one console log.

    With ``tables``, printed completion tables are read too. ``columns``: canonical metric (or ``step``) → its name in
    the lines.

    The cursor points at the oldest held-back row, with the parser's state there and the number of items emitted since
    (``again``): after a restart, these are rebuilt and skipped. When another file follows (rotation), the old file's
    held-back rows come first, and the cursor stays in the old file until then. If the old file is gone (truncated in
    place), a kill between these few items loses the rest.
    """

    LONGEST = 1 << 20
    """Longest piece between two carriage returns or line ends, in bytes; a row takes about 1 KB."""

    def _begin(self, *, tables: bool = False, columns: Mapping[str, str] = MappingProxyType({}), **_: Any) -> None:
        super()._begin(bars=True)
        state = dict(self._known)
        self._again = row_numbers.whole(state.pop("again", 0)) or 0
        texts = PrintedTables(self.name, self.segment, state, examples=self._examples) if tables else None
        self._parser = ConsoleParser(self.name, self.segment, self.stats, state, texts, columns)
        if self._start is None:
            with suppress(OSError, SourceError), opened(self._path, self._roots) as log:  # reported at reading
                begin = max(0, os.fstat(log).st_size - ENDING)
                self._parser.steps.lengths = lengths_at_end(os.pread(log, ENDING, begin))
        self._queue: deque[Item] = deque()
        self._mark = _RestartPoint(self._start or self._tail.cursor(self.name), state, self._again)
        self._left, self._leaving = self._mark, 0
        self._clean = self._again == 0
        self._same: bytes | None = None
        self._times = 0
        self._adds: Counter[str] = Counter()

    def _rest(self) -> Iterator[Item]:
        yield from super()._rest()
        self._queue.extend(self._parser.flush(None))
        yield from self._give()

    def cursor(self) -> Cursor:
        """Return the place from which reading yields exactly the remaining items."""
        if self._clean:
            at = self._tail.cursor(self.name)
            return Cursor(at.source, at.identity, at.position, self._parser.state())
        return (self._left if self._leaving else self._mark).cursor()

    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        yield from self._give()
        for line in lines:
            if line.generation != self._generation:
                self._leave(line, seen)
            self._feed(line, seen)
            if self._queue:
                yield from self._give()

    def _leave(self, line: SplitLine, seen: float | None) -> None:
        """Handle the first line of a new file: the old file's held-back items come first."""
        self._generation = line.generation
        self._queue.extend(self._parser.flush(seen))
        self._left, self._leaving = self._mark, len(self._queue)
        self._again = self._again if self._leaving else 0
        self._mark = _RestartPoint(self._tail.before(self.name, line), self._parser.state())

    def _feed(self, line: SplitLine, seen: float | None) -> None:
        if line.too_long:
            self.stats.skip(Skip.TOO_LONG, f"byte {line.start}: {line.end - line.start} bytes without a line end")
            return
        parser, same = self._parser, line.data == self._same
        if same and self._times > MOST_REPEATS:
            for metric, count in self._adds.items():
                parser.failed[metric] += count
            return
        was_idle, failed = parser.idle, parser.failed.copy() if same else parser.failed
        items = parser.feed(line.data, seen)
        nothing = was_idle and parser.idle and not items
        self._times = self._times + 1 if nothing and same else 0
        self._adds = parser.failed - failed
        self._same = line.data if nothing else None
        if was_idle and (len(items) > 1 or not parser.idle):
            self._mark = _RestartPoint(self._tail.before(self.name, line), parser.saved)
        self._clean = parser.idle and not items
        self._queue += items

    def _give(self) -> Iterator[Item]:
        while self._queue:
            item, repeated = self._queue.popleft(), self._again > 0
            self._count()
            self._clean = not self._queue and self._parser.idle
            if not repeated:
                yield item
        self._clean = self._parser.idle

    def _count(self) -> None:
        self._again = max(0, self._again - 1)
        if not self._leaving:
            self._mark.given += 1
            return
        self._left.given += 1
        self._leaving -= 1
        if not self._leaving:
            self._again = 0


DEATHS = frozenset({EventKind.TRACEBACK, EventKind.KILLED, EventKind.CONFIG_ERROR})
SCORES = re.compile(rb"reward|return|score|correct|accura|success|solved", re.IGNORECASE)
NO_SCORE = re.compile("length|token|time|loss", re.IGNORECASE)
"""Matches names that are no score: ``avg_response_length_correct``."""
ENOUGH = 20
"""Rows after which a text is recognised; a framework's first row names it."""


class LogSigns(NamedTuple):
    """Signs in a piece of a log: rows, their framework, the first error that ends the job, and whether more follows.

    ``begun``: it also shows a beginning or an end of training; ``bars``: training bars.
    """

    rows: Sequence[RawRow] = ()
    framework: str = ""
    death: str = ""
    begun: bool = False
    bars: bool = False


def signs_of(text: bytes, columns: Mapping[str, str] = MappingProxyType({})) -> LogSigns:
    """Parse a piece of a log as a console; ``columns`` as in ``ConsoleSource``."""
    parser, rows, death = ConsoleParser("", 0, SourceStats(), {}, None, columns), list[RawRow](), ""
    begun = bars = False
    pieces: Iterator[bytes | None] = chain(re.split(rb"[\r\n]+", text), (None,))
    for piece in pieces:
        for item in parser.feed(piece, None) if piece is not None else parser.flush(None):
            if isinstance(item, RawRow):
                rows.append(item)
            elif isinstance(item, RunEvent) and item.kind in DEATHS:
                death = death or item.text
            begun = begun or isinstance(item, RunEvent)
            bars = bars or isinstance(item, Progress)
        if len(rows) >= ENOUGH or (rows and parser.framework):
            break
    return LogSigns(rows, parser.framework, death, begun, bars)


def lone_score(text: bytes) -> str:
    """Return the score that most often stands alone on a line, if it gives rows as the reward; else empty.

    Evaluations print such scores too, so the user must decide.
    """
    alone = [found for line in text.splitlines() if (found := _alone(line)) is not None]
    values = Counter(name for name, _ in {(one.name, one.text) for one in alone})
    changing = Counter(one.name for one in alone if values[one.name] > 1)
    name = next((name for name, _ in changing.most_common(1)), "")
    return name if name and len(signs_of(text, {"reward_mean": name}).rows) > 1 else ""


def _alone(line: bytes) -> PrintedField | None:
    fields = fields_of(line.decode("utf-8", "replace")) if may_show(line) and SCORES.search(line) is not None else []
    return fields[0] if len(fields) == 1 and NO_SCORE.search(fields[0].name) is None else None
