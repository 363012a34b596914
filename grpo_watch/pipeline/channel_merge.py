"""Puts the items of all channels of a run into one order: the order in which they were logged, as far as steps tell.

Both drivers use it: ``check`` over files that are complete, the daemon over what a run holds when it is first seen.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeGuard

from grpo_watch.engine.records import (
    ChannelElected,
    CheckpointDigest,
    CompletionSummary,
    Cursor,
    EventKind,
    Item,
    Progress,
    RawRow,
    RunEvent,
    Stream,
)
from grpo_watch.pipeline.attempts import FAR
from grpo_watch.pipeline.open_run import OpenedSource
from grpo_watch.sources.base import Source

QUIET_POLLS = 2
"""A source has nothing more when so many polls in a row gave nothing (a checkpoint is looked at twice)."""

MOST_POLLS = 20
"""A log that grows faster than it is read is left to the turns that follow."""

ENDED_SECONDS = 600.0
"""While other channels continue, one with a file unchanged for this long no longer gives the run's rows: TensorBoard's
writer flushes every two minutes, and a step of GRPO may take several."""


log = logging.getLogger("grpo_watch.source")


class StoppedSource(Source):
    """Takes the place of a source that raised: gives nothing more, and keeps its place and what it counted."""

    def __init__(self, source: Source) -> None:
        self.name, self.stats = source.name, source.stats
        self._cursor = source.cursor()
        source.close()

    def poll(self, seen: float | None) -> Iterator[Item]:  # noqa: ARG002  the contract of a source
        """Nothing."""
        yield from ()

    def finish(self) -> Iterator[Item]:
        """Nothing."""
        yield from ()

    def cursor(self) -> Cursor:
        """Where it stopped."""
        return self._cursor

    def close(self) -> None:
        """It is closed."""
        return


def guarded(opened: OpenedSource, items: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """The items of a source; where it raises, it is stopped and that is reported, and other sources go on."""
    try:
        yield from items()
    except Exception as error:
        name = opened.name
        opened.stats.problem = f"{name}: the reader failed ({type(error).__name__}: {error}); please report it"
        opened.source = StoppedSource(opened.source)
        log.exception("a source failed and is no longer read", extra={"fields": {"source": name}})
        yield RunEvent(name, EventKind.SOURCE_PROBLEM, text=opened.stats.problem)


class SourceReading(Protocol):
    """How a driver reads the sources that are merged."""

    def items(self, source: OpenedSource) -> Iterator[Item | None]:
        """What a source holds, in its order; None: another process still works on the next item, ask again later."""

    def cursor(self, source: OpenedSource) -> Cursor | None:
        """Where reading the source would continue; None where reading is never resumed."""

    def ended(self, source: OpenedSource) -> bool:
        """Whether no more rows of the source are expected."""


class ReadToEnd:
    """Reads complete files: ``check``."""

    def items(self, source: OpenedSource) -> Iterator[Item | None]:
        """Everything, with what the source holds back until the input ends."""
        yield from source.source.poll(None)
        yield from source.source.finish()

    def cursor(self, source: OpenedSource) -> Cursor | None:  # noqa: ARG002  the contract of a reading
        """Reading is never resumed."""
        return None

    def ended(self, source: OpenedSource) -> bool:  # noqa: ARG002  the contract of a reading
        """All files are complete."""
        return True


class ReadSoFar:
    """Reads files that may still grow, as far as they have grown: the daemon's first pass.

    Args:
        seen: when the files were written by (Unix seconds), for the items.
        now: Unix seconds.
        waiting: whether another process works on items of the source of this name.
    """

    def __init__(self, seen: float, now: float, waiting: Callable[[str], bool]) -> None:
        self._seen, self._now, self._waiting = seen, now, waiting

    def items(self, source: OpenedSource) -> Iterator[Item | None]:
        """What is there now; configuration is never waited for."""
        quiet = polls = 0
        while (waits := not source.early and self._waiting(source.name)) or (
            quiet < QUIET_POLLS and polls < MOST_POLLS
        ):
            polls += not waits
            quiet += 1
            for item in guarded(source, partial(source.source.poll, self._seen)):
                quiet = 0
                yield item
            if source.source.unread or (quiet and not source.early and self._waiting(source.name)):
                quiet = polls = 0
                yield None

    def cursor(self, source: OpenedSource) -> Cursor | None:
        """Where a restarted daemon would continue."""
        return source.source.cursor()

    def ended(self, source: OpenedSource) -> bool:
        """Whether its file was not written for a while; False of a server's run."""
        try:
            return self._now - source.path.stat().st_mtime >= ENDED_SECONDS
        except OSError:
            return False


MOST_AHEAD = 2_000
"""Items looked at for the next row of a channel that is not the only one: an error stream may hold bars alone."""


WITH_STEP = (RawRow, CompletionSummary, CheckpointDigest, RunEvent, Progress)
"""Items that may know their step."""


class MergeLane:
    """One source with a look-ahead. ``cursor`` covers exactly the items taken, not those looked at.

    ``step`` is that of the newest item looked at that has one; ``blocked`` says that the next item is being worked out
    by another process.
    """

    def __init__(self, source: OpenedSource, reading: SourceReading) -> None:
        self.source = source
        self.step = 0
        self.blocked = self._exhausted = False
        self._reading, self._items = reading, reading.items(source)
        self._ahead: deque[tuple[Cursor | None, Item]] = deque()

    def look(self) -> Item | None:
        """The next item; None where there is none, or none yet."""
        if not self._ahead and not self._look_on():
            return None
        item = self._ahead[0][1]
        step = item.step if isinstance(item, WITH_STEP) else None
        if step is not None and step - self.step > FAR and _is_train_row(item):  # a misprint, if the next goes back
            step = min(row.step or step for row in self.rows_ahead(2, MOST_AHEAD))
        self.step = self.step if step is None else step
        return item

    def take(self) -> Item:
        """The item that ``look`` gave."""
        return self._ahead.popleft()[1]

    def rest(self) -> Iterator[Item | None]:
        """All that is left, without looking ahead; None while blocked."""
        while self._ahead:
            yield self._ahead.popleft()[1]
        yield from self._items
        self._exhausted = True

    def before(self, step: int) -> Iterator[Item | None]:
        """The items before the first train row of this step or a later one; None while blocked."""
        while True:
            item = self.look()
            if item is None and not self.blocked:
                return
            if item is not None and _is_train_row(item) and self.step >= step:
                return
            yield self.take() if item is not None else None

    def rows_ahead(self, count: int = 1, most: int | None = None) -> list[RawRow]:
        """So many of the train rows that come next, or all there are (reads up to them, or so many items at most)."""
        rows = [item for _, item in self._ahead if _is_train_row(item)][:count]
        while len(rows) < count and (most is None or len(self._ahead) < most) and self._look_on():
            newest = self._ahead[-1][1]
            rows += [newest] if _is_train_row(newest) else []
        return rows

    @property
    def ended(self) -> bool:
        """Whether all was taken."""
        return self._exhausted and not self._ahead

    def cursor(self) -> Cursor | None:
        """Where reading would continue after the items taken."""
        return self._ahead[0][0] if self._ahead else self._reading.cursor(self.source)

    def _look_on(self) -> bool:
        """Look at one item more; whether there was one."""
        if self._exhausted:
            return False
        before = self._reading.cursor(self.source)
        try:
            item = next(self._items)
        except StopIteration:
            self._exhausted, self.blocked = True, False
            return False
        self.blocked = item is None
        if item is not None:
            self._ahead.append((before, item))
        return item is not None


class ChannelMerge:
    """All items of the sources of a run, one after the other.

    The primary channel (the best-ranked with rows) is the clock: an item of another channel comes when the primary has
    reached its step, and just before the first later primary row, so that steps which the primary lacks can be filled.
    Channels of the primary kind without rows (a job's error stream, say) follow that clock as well. Before
    the primary's first step a channel that begins earlier is the clock, and once the primary has ended, one that has
    later steps: the best-ranked of those. Configuration comes first.

    ``cursors`` may be taken while ``safe``: no item was taken from a source that was not given out.

    Args:
        sources: the opened channels.
        reading: how they are read.
        trusts: whether a channel of this name may be the clock after the first one.
    """

    def __init__(self, sources: Sequence[OpenedSource], reading: SourceReading, trusts: Callable[[str], bool]) -> None:
        self._reading, self._trusts = reading, trusts
        self._clock: Sequence[MergeLane] = ()
        self._last: int | None = None
        self._early = [MergeLane(source, reading) for source in sources if source.early]
        self._lanes = [MergeLane(source, reading) for source in sources if not source.early]
        self.safe = True

    def cursors(self) -> dict[str, Cursor]:
        """Where each source would continue after the items given out; empty where reading is never resumed."""
        places = {lane.source.name: lane.cursor() for lane in (*self._early, *self._lanes)}
        return {name: place for name, place in places.items() if place is not None}

    def items(self) -> Iterator[Item | None]:
        """The items in order; None: another process works on the next one, ask again later."""
        for lane in self._early:
            yield from lane.rest()
        yield from self._rows(self._lanes, None)
        while primary := self._going_on():
            yield ChannelElected(Stream.TRAIN, primary[0].source.name, "continues where better channels ended")
            yield from self._follow(primary, None)
        for lane in self._lanes:
            yield from lane.rest()

    def _rows(self, lanes: Sequence[MergeLane], until: int | None) -> Iterator[Item | None]:
        """The rows of the best of some channels, up to a step, after those of channels that begin before it."""
        primary = _best(lanes, lambda lane: _begins(lane, until))
        if not primary:
            return
        others = [lane for lane in lanes if lane not in primary and lane.source.segment <= primary[0].source.segment]
        first = primary[0].rows_ahead()
        if first and first[0].step is not None:
            yield from self._rows(others, first[0].step)
        yield ChannelElected(Stream.TRAIN, primary[0].source.name, "best channel with rows")
        yield from self._follow(primary, until)

    def _going_on(self) -> list[MergeLane]:
        """The best channels with rows beyond the last step, where the clock before has ended."""
        last = self._last
        if last is None or not all(self._reading.ended(lane.source) for lane in self._clock):
            return []
        return _best(self._lanes, lambda lane: self._trusts(lane.source.name) and _begins(lane, None, last))

    def _follow(self, primary: Sequence[MergeLane], until: int | None) -> Iterator[Item | None]:
        """The items of the primary before a step, with those of other channels in their places."""
        sides = [lane for lane in self._lanes if lane not in primary]
        chained = len({lane.source.segment for lane in primary}) > 1
        self._clock = primary
        for lane in primary:
            for item in lane.rest() if until is None else lane.before(until):
                self._last = item.step if isinstance(item, RawRow) else self._last
                sides[:] = [side for side in sides if not side.ended]
                if sides and isinstance(item, RawRow) and item.step is not None:
                    last_segment = lane.source.segment if chained else None
                    yield from self._before(item.step, lane.source.segment, sides)
                    self.safe = True
                    yield item
                    yield from self._reached(item.step, last_segment, sides)
                else:
                    yield item

    def _before(self, step: int, segment: int, sides: Sequence[MergeLane]) -> Iterator[Item | None]:
        """Items of other channels that lie before a primary row, which has been read and not been given out."""
        self.safe = False
        for side in sides:
            yield from _wait(side)
            while side.look() is not None and side.source.segment <= segment and side.step < step:
                yield side.take()
                yield from _wait(side)

    @staticmethod
    def _reached(step: int, last_segment: int | None, sides: Sequence[MergeLane]) -> Iterator[Item | None]:
        """Items of other channels whose step the primary has reached; ``last_segment``: none of later ones."""
        for side in sides:
            yield from _wait(side)
            while side.look() is not None and side.step <= step:
                if last_segment is not None and side.source.segment > last_segment:
                    break
                yield side.take()
                yield from _wait(side)


def _wait(side: MergeLane) -> Iterator[None]:
    while side.look() is None and side.blocked:
        yield None


def _best(lanes: Sequence[MergeLane], chosen: Callable[[MergeLane], bool]) -> list[MergeLane]:
    """The chosen ones of the best-ranked kind that has any, by segment; the others are not asked."""
    for kind in sorted({lane.source.kind for lane in lanes if lane.source.kind is not None}):
        found = [lane for lane in lanes if lane.source.kind is kind and chosen(lane)]
        if found:
            return sorted(found, key=lambda lane: lane.source.segment)
    return []


def _begins(lane: MergeLane, until: int | None, after: int | None = None) -> bool:
    """Whether a train row comes; with bounds, whether the next one lies before the one step and after the other."""
    if lane.ended:
        return False
    if until is None and after is None:
        return bool(lane.rows_ahead())
    rows = lane.rows_ahead(most=MOST_AHEAD)
    step = rows[0].step if rows else None
    return step is not None and (until is None or step < until) and (after is None or step > after)


def _is_train_row(item: Item) -> TypeGuard[RawRow]:
    return isinstance(item, RawRow) and item.stream is not Stream.EVAL
