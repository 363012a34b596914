"""Orders the numbered entries of a folder (dumps, checkpoints) for reading, and remembers what was read."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from grpo_watch.engine.records import Cursor, Scalar


class SweepEntry(NamedTuple):
    """The current state of a numbered entry: its newest modification time in ns, and a mark of rewrites."""

    stamp: int
    signature: Hashable


class Sweep:
    """Reads in passes; in each pass by rising step. An entry that is rewritten is read again in the next pass.

    A cursor holds three numbers: all entries modified up to ``floor`` were read; of those modified up to ``ceiling``
    (the pass under way) the ones up to ``position`` (a step). So a restart neither loses nor repeats an entry.
    """

    def __init__(self, cursor: Cursor | None) -> None:
        state: Mapping[str, Scalar] = cursor.state if cursor is not None else {}
        self._position = cursor.position if cursor is not None else -1
        self._floor, self._ceiling = _number(state, "floor"), _number(state, "ceiling")
        self._restored = (self._floor, self._ceiling, self._position)
        self._seen: dict[int, Hashable] = {}
        self._queue: deque[int] = deque()
        self._open: set[int] = set()

    def plan(self, entries: Mapping[int, SweepEntry]) -> bool:
        """Begin the next pass; False when entries are left for a later one (a pass is under way)."""
        if self._queue or self._open:
            return False
        new = {step: entry for step, entry in entries.items() if not self._is_read(step, entry)}
        rest = {step: entry for step, entry in new.items() if entry.stamp <= self._ceiling}
        cut_short = self._floor < self._ceiling and bool(rest)  # by a restart: finish that pass first
        new, left = (rest, len(new) > len(rest)) if cut_short else (new, False)
        self._ceiling = max([self._ceiling, *(entry.stamp for entry in new.values())])
        self._queue.extend(sorted(new))
        if not new:
            self._floor = self._ceiling
        return not left

    def next(self) -> int | None:
        """The next step to read, or None; every step given out must come back by ``done``."""
        if not self._queue:
            return None
        step = self._queue.popleft()
        self._open.add(step)
        return step

    def done(self, step: int, signature: Hashable | None) -> None:
        """A step was dealt with; None instead of its signature has it tried again in the next pass."""
        self._open.discard(step)
        self._position = step
        if signature is not None:
            self._seen[step] = signature
        if not self._queue and not self._open:
            self._floor = self._ceiling

    def cursor(self, source: str, state: Mapping[str, Scalar]) -> Cursor:
        """Covers exactly the steps that are done."""
        return Cursor(source, "", self._position, {"floor": self._floor, "ceiling": self._ceiling, **state})

    def _is_read(self, step: int, entry: SweepEntry) -> bool:
        if step in self._seen:
            return self._seen[step] == entry.signature
        floor, ceiling, position = self._restored
        return entry.stamp <= floor or (entry.stamp <= ceiling and step <= position)


def _number(state: Mapping[str, Scalar], name: str) -> int:
    value = state.get(name)
    return value if isinstance(value, int) else -1
