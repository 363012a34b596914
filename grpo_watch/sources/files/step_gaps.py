"""Notices from the steps of its rows that a restarted log left some out, counts them, and reports it."""

from __future__ import annotations

import logging
from pathlib import Path

from grpo_watch.engine.records import Item, RawRow, Stream
from grpo_watch.sources.base import Skip, SourceStats

MOST_FILES = 1_000
"""Files of one log whose steps are remembered."""

log = logging.getLogger("grpo_watch.source")


class Missing:
    """Follows the steps of one log. A gap inside a file is the job's own; one where the file changes may be a loss.

    Args:
        path: the log.
        stats: what counts the rows that may be lost, under ``Skip.LOST``.
    """

    def __init__(self, path: Path, stats: SourceStats) -> None:
        self._path, self._stats = path, stats
        self._last: int | None = None
        self._first: int | None = None
        self._read: list[tuple[int, int]] = []
        self._pace = 0
        self._left: int | None = None

    def restarted(self, left: int = 0) -> None:
        """Another file begins, or the same from its beginning; so many items of the one before are still to come."""
        self._left = left
        if self._first is not None and self._last is not None:
            self._read = [*self._read, (self._first, self._last)][-MOST_FILES:]

    def look(self, item: Item) -> None:
        """Take the next item; the steps between the last two rows of a file say how far apart its rows are."""
        first = self._left == 0
        if self._left:
            self._left -= 1
        if not isinstance(item, RawRow) or item.step is None or item.stream is Stream.EVAL:
            return
        gone = item.step - self._last if self._last is not None else 0
        if first:
            self._left = None
            self._first = item.step
            if self._pace and gone > self._pace and (lost := (item.step - self._reached() - 1) // self._pace) > 0:
                self._tell(item.step, lost)
        elif gone > 0:
            self._pace = gone
        self._first = item.step if self._first is None else self._first
        self._last = item.step

    def _reached(self) -> int:
        """Up to which step the files so far go on from the last one: numbered parts may come in any order."""
        at = self._last or 0
        for first, last in sorted(self._read):
            at = max(at, last) if first <= at + self._pace else at
        return at

    def _tell(self, step: int, count: int) -> None:
        between = f"between the steps {self._last} and {step} the file was replaced; {count} rows may be lost"
        self._stats.skip(Skip.LOST, between, count)
        log.warning("rows may be lost", extra={"fields": {"file": str(self._path), "reason": between}})
