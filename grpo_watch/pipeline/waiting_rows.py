"""Keeps the rows of secondary channels, by step, until the primary channel has reached them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from grpo_watch.engine.records import ChannelKind, RawRow

BUFFERED_ROWS = 2_000
"""Rows kept of each list; the newest stay (bounds memory)."""

Placed = tuple[int, RawRow]
"""A row and its step."""


class WaitingRows:
    """Rows whose step the primary has not reached, and rows of segments that it has not begun."""

    def __init__(self) -> None:
        self._rows: list[Placed] = []
        self._later: list[Placed] = []

    def __bool__(self) -> bool:
        return bool(self._rows or self._later)

    def __iter__(self) -> Iterator[Placed]:
        """All of them: by step, the better channel first; those of later segments at the end."""
        yield from self._rows
        yield from self._later

    def add(self, step: int, row: RawRow) -> None:
        """Let a row wait for its step."""
        insort(self._rows, (step, row), key=_place)
        del self._rows[:-BUFFERED_ROWS]

    def add_later(self, step: int, row: RawRow) -> None:
        """Let a row wait for its segment."""
        self._later.append((step, row))
        del self._later[:-BUFFERED_ROWS]

    def release(self, still_later: Callable[[RawRow], bool]) -> None:
        """Let rows wait for their step whose segment has begun."""
        if self._later:
            later, self._later = self._later, []
            for step, row in later:
                (self.add_later if still_later(row) else self.add)(step, row)

    def before(self, step: int) -> Iterator[Placed]:
        """Take out the rows before a step, in order."""
        while self._rows and self._rows[0][0] < step:
            yield self._rows.pop(0)

    def beyond(self, last: int | None) -> list[RawRow]:
        """The rows after the last step, and those of later segments."""
        return [row for step, row in self._rows if last is None or step > last] + [row for _, row in self._later]

    def take_all(self) -> list[RawRow]:
        """Take out all."""
        rows = [row for _, row in self]
        self._rows, self._later = [], []
        return rows


def _place(placed: Placed) -> tuple[int, ChannelKind, str]:
    step, row = placed
    return step, row.kind, row.channel
