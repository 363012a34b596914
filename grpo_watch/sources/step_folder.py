"""Reads numbered entries of a folder (dumps, checkpoints) by rising step, and tracks those already read."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from grpo_watch.engine.records import Cursor, Item, Scalar
from grpo_watch.sources.base import ChannelSource, Future, Skip


class SweepEntry(NamedTuple):
    """The current state of a numbered entry: its newest modification time in ns, and a mark of rewrites."""

    stamp: int
    signature: Hashable


class Sweep:
    """Plans passes by rising step. A rewritten entry is read again in the next pass.

    A cursor holds three numbers: all entries modified up to ``floor`` were read; of those modified up to ``ceiling``
    (the pass under way) the ones up to ``position`` (a step). A restart thus neither loses nor repeats an entry.
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
        """Begin the next pass; False if a pass is under way, or entries are left for a later one."""
        if self._queue or self._open:
            return False
        new = {step: entry for step, entry in entries.items() if not self._is_read(step, entry)}
        rest = {step: entry for step, entry in new.items() if entry.stamp <= self._ceiling}
        cut_short = self._floor < self._ceiling and bool(rest)  # by a restart: finish the pass first
        new, left = (rest, len(new) > len(rest)) if cut_short else (new, False)
        self._ceiling = max([self._ceiling, *(entry.stamp for entry in new.values())])
        self._queue.extend(sorted(new))
        if not new:
            self._floor = self._ceiling
        return not left

    def next(self) -> int | None:
        """Return the next step to read, or None; each returned step must be passed to ``done``."""
        if not self._queue:
            return None
        step = self._queue.popleft()
        self._open.add(step)
        return step

    def done(self, step: int, signature: Hashable | None) -> None:
        """Mark a step as done; with None instead of its signature it is retried in the next pass."""
        self._open.discard(step)
        self._position = step
        if signature is not None:
            self._seen[step] = signature
        if not self._queue and not self._open:
            self._floor = self._ceiling

    def cursor(self, source: str, state: Mapping[str, Scalar]) -> Cursor:
        """Return a cursor of exactly the steps that are done."""
        return Cursor(source, "", self._position, {"floor": self._floor, "ceiling": self._ceiling, **state})

    def _is_read(self, step: int, entry: SweepEntry) -> bool:
        if step in self._seen:
            return self._seen[step] == entry.signature
        floor, ceiling, position = self._restored
        return entry.stamp <= floor or (entry.stamp <= ceiling and step <= position)


def _number(state: Mapping[str, Scalar], name: str) -> int:
    value = state.get(name)
    return value if isinstance(value, int) else -1


class DeferredWork:
    """Work that runs when its result is requested."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.result = partial(function, *arguments)

    def done(self) -> bool:
        """Always True: the result may be requested at any time."""
        return True


class EntryResult(Struct, frozen=True, kw_only=True):
    """The result of one entry. ``failure``: why it can't be used, in one line; a ``gone`` entry is no failure."""

    skip: Skip | None = None
    failure: str = ""
    gone: bool = False


class StepFolder(ChannelSource):
    """Reads a folder's entries, one per step, by rising step; rewritten entries are read again.

    An unusable entry is retried once, and counted if it fails again; one that is too large is counted at once, as each
    try costs as much.
    """

    AT_ONCE = 4
    """Pieces of work submitted at once; without ``submit`` one, so that nothing is decided earlier than needed."""

    def _begin(self, **_: Any) -> None:
        self._sweep, self._under_way = Sweep(self._start), deque[tuple[int, Future]]()
        self._failed: dict[int, tuple[Hashable, EntryResult]] = {}
        self._refusal = ""

    @abstractmethod
    def _listed(self, seen: float | None) -> Mapping[int, SweepEntry]:
        """Return the readable entries, by step.

        Raises:
            OSError: the folder can't be listed.
        """

    @abstractmethod
    def _read(self, step: int) -> None:
        """Begin the work for a step (``_work``); a missing entry is done."""

    @abstractmethod
    def _collect(self, step: int, result: Any, seen: float | None) -> Iterator[Item]:
        """Yield the items of a result, or of an exception in its place."""

    def _count(self, result: EntryResult) -> None:
        self.stats.skip(result.skip or Skip.UNREADABLE, result.failure)
        if result.skip is Skip.OUTSIDE:
            self._refusal = self.stats.problem = result.failure

    def _rest(self) -> Iterator[Item]:
        yield from self._advance(None, wait=True)
        self._sweep.plan(self._entries(None))
        yield from self._advance(None, wait=True)
        for _, result in self._failed.values():
            self._count(result)
        self._failed.clear()

    def _entries(self, seen: float | None) -> Mapping[int, SweepEntry]:
        try:
            entries = self._listed(seen)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.stats.problem = f"{self._path}: can't be listed: {error.strerror or error}"
            return {}
        self.stats.problem = self._refusal
        return entries

    def _work(self, step: int, function: Callable[..., Any], *arguments: Any, first: bool = False) -> None:
        """Begin a piece of work; ``first``: its result comes before those of earlier pieces."""
        future = (self._submit or DeferredWork)(function, *arguments)
        (self._under_way.appendleft if first else self._under_way.append)((step, future))

    def _advance(self, seen: float | None, *, wait: bool) -> Iterator[Item]:
        most = self.AT_ONCE if self._submit is not None else 1
        while True:
            while len(self._under_way) < most and (step := self._sweep.next()) is not None:
                self._read(step)
            if not self._under_way or not (wait or self._under_way[0][1].done()):
                return
            step, future = self._under_way.popleft()
            try:
                result = future.result()
            except Exception as error:  # noqa: BLE001  a dead worker process must not end the watch
                result = error
            yield from self._collect(step, result, seen)

    def _done(self, step: int, signature: Hashable, result: EntryResult) -> bool:
        """Note the result of an entry; False if it is retried."""
        before = self._failed.pop(step, None)
        stays = result.skip is Skip.TOO_LONG or (before is not None and before[0] == signature)
        again = result.gone or (result.skip is not None and not stays)
        self._sweep.done(step, None if again else signature)
        if result.skip is not None and stays:
            self._count(result)
        elif result.skip is not None:
            self._failed[step] = signature, result
        return not again
