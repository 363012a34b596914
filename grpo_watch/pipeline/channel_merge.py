"""Puts the items of all channels of a run into one order: the order in which they were logged, as far as steps tell.

Used by ``check`` over complete files, and by the daemon over files that grow.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple, TypeGuard

from grpo_watch.engine.records import (
    ChannelElected,
    ChannelKind,
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
from grpo_watch.pipeline.assembler import Assembler
from grpo_watch.pipeline.attempts import FAR, AttemptLedger
from grpo_watch.pipeline.open_run import OpenedSource
from grpo_watch.sources.base import Source

QUIET_POLLS = 2
"""A source is exhausted after this many polls in a row without items (a checkpoint is looked at twice)."""

MOST_POLLS = 20
"""Polls of one turn; a log that grows faster than it is read continues in later turns."""

ENDED_SECONDS = 600.0
"""While other channels continue, a file unchanged for this many seconds at the first pass counts as ended:
TensorBoard's writer flushes every two minutes, and a step of GRPO may take several."""


log = logging.getLogger("grpo_watch.source")


class StoppedSource(Source):
    """Replaces a source that raised: gives no more items, and keeps its cursor and counts."""

    def __init__(self, source: Source) -> None:
        self.name, self.stats = source.name, source.stats
        self._cursor = source.cursor()
        source.close()

    def poll(self, seen: float | None) -> Iterator[Item]:  # noqa: ARG002  the contract of a source
        """Yield nothing."""
        yield from ()

    def cursor(self) -> Cursor:
        """Return where it stopped."""
        return self._cursor


def guarded(opened: OpenedSource, items: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """Yield the items of a source; if it raises, stop it and report that, so that other sources continue."""
    try:
        yield from items()
    except Exception as error:
        name = opened.name
        opened.stats.problem = f"{name}: the reader failed ({type(error).__name__}: {error}); please report it"
        opened.source = StoppedSource(opened.source)
        log.exception("a source failed and is no longer read", extra={"fields": {"source": name}})
        yield RunEvent(name, EventKind.SOURCE_PROBLEM, text=opened.stats.problem)


def reading_order(source: OpenedSource) -> tuple[bool, bool, int, int, str]:
    """Sort key of sources: configuration first, then rows by rank and segment, then the rest."""
    return (not source.early, source.kind is None, source.kind or 0, source.segment, source.name)


class LiveReading(NamedTuple):
    """How the daemon reads files that may still grow; times are Unix seconds.

    ``seen``: when the files were last written, for the items. With ``waiting`` (whether another process works on items
    of the run) they are read to their end: a run's first pass. Without it, one poll reads the new items.
    """

    now: float
    seen: float
    waiting: Callable[[], bool] | None = None


def _items(source: OpenedSource, live: LiveReading | None, *, followed: bool) -> Iterator[Item | None]:
    """Yield the source's items in order; None: another process still works on the next item, ask again later.

    A source ``followed`` by a later segment is over, so its last row waits for no more values of its step.
    """
    if live is None:
        yield from _bounded(source)
    elif live.waiting is None:
        yield from guarded(source, partial(source.source.poll, live.seen))
    else:
        yield from _so_far(source, live.seen, lambda: not source.early and live.waiting is not None and live.waiting())
        if followed:
            yield from guarded(source, source.source.finish)


MOST_ROWS = 250_000
"""Rows of one channel that `check` judges, a minute and a half on one core. A job logs some thousand.

The report names channels with more rows; the daemon reads them all, in turns with its other runs.
"""


def _bounded(source: OpenedSource) -> Iterator[Item]:
    left = MOST_ROWS
    for read in (partial(source.source.poll, None), source.source.finish):
        for item in read():
            left -= isinstance(item, RawRow)
            if left < 0:
                source.stats.problem = f"only its first {MOST_ROWS:,} rows are judged; `grpo-watch run` judges all"
                return
            yield item


def _so_far(source: OpenedSource, seen: float, waiting: Callable[[], bool]) -> Iterator[Item | None]:
    quiet = polls = 0
    while (waits := waiting()) or (quiet < QUIET_POLLS and polls < MOST_POLLS):
        polls += not waits
        quiet += 1
        for item in guarded(source, partial(source.source.poll, seen)):
            quiet = 0
            yield item
        if source.source.unread or (quiet and waiting()):
            quiet = polls = 0
            yield None


MOST_AHEAD = 2_000
"""Items read ahead for the next row when a run has several channels: an error stream may hold bars alone."""


WITH_STEP = (RawRow, CompletionSummary, CheckpointDigest, RunEvent, Progress)
"""Item types that may have a step."""


Place = tuple[bool, int, int, int, int]
"""Sort key of an item: later segments last, then by step, rows first, better channels first."""


class MergeLane:
    """One source with a look-ahead. ``cursor`` covers the items taken, not those read ahead.

    ``step`` is the newest step of its items, ``rows`` whether a training row came, ``given`` the number of items taken;
    ``blocked``: another process works on the next item. Before its first row, the ledger gives the run's progress.
    """

    def __init__(
        self, source: OpenedSource, live: LiveReading | None, place: int, ledger: AttemptLedger, *, followed: bool
    ) -> None:
        self.source, self.place = source, place
        self._row, self._pace = ledger.last_step, ledger.pace
        self.step = self.given = 0
        self.blocked = self.rows = self._exhausted = False
        self._live, self._items = live, _items(source, live, followed=followed)
        self._ahead: deque[tuple[Cursor | None, Item]] = deque()

    def look(self) -> Item | None:
        """Return the next item without taking it; None if there is none (yet)."""
        return self._ahead[0][1] if self._ahead or self._look_on() else None

    def take(self) -> Item:
        """Take the item that ``look`` returned."""
        item = self._ahead.popleft()[1]
        self.given += 1
        if _is_train_row(item) and item.step is not None:
            gone = 0 if self._row is None else self.step - self._row
            self._row, self._pace = self.step, gone if gone > 0 else self._pace
        return item

    def note_step(self, item: Item | None) -> int | None:
        """Return the step of the next item, or of the row after it if that shows the step to be a misprint."""
        step = item.step if isinstance(item, WITH_STEP) else None
        if step is None:
            return None
        most = (self._row or 0) + FAR * self._pace
        if step > most and item is not None and _is_train_row(item):
            then = (row.step or 0 for row in self.rows_ahead(2, MOST_AHEAD)[1:])
            step = next((after for after in then if (self._row or 0) < after <= most), step)
        self.step = step
        return step

    def rows_ahead(self, count: int = 1, most: int | None = None) -> list[RawRow]:
        """Return up to ``count`` upcoming train rows, reading ahead to them (at most ``most`` items)."""
        rows = [item for _, item in self._ahead if _is_train_row(item)][:count]
        while len(rows) < count and (most is None or len(self._ahead) < most) and self._look_on():
            newest = self._ahead[-1][1]
            rows += [newest] if _is_train_row(newest) else []
        return rows

    @property
    def ended(self) -> bool:
        """Whether all items were taken."""
        return self._exhausted and not self._ahead

    def cursor(self) -> Cursor | None:
        """Where reading continues after the items taken; None for complete files."""
        return self._ahead[0][0] if self._ahead else self._read_to()

    def _read_to(self) -> Cursor | None:
        return self.source.source.cursor() if self._live is not None else None

    def _look_on(self) -> bool:
        """Read one more item ahead; returns whether there was one."""
        if self._exhausted:
            return False
        before = self._read_to()
        try:
            item = next(self._items)
        except StopIteration:
            self._exhausted, self.blocked = True, False
            return False
        self.blocked = item is None
        if item is not None:
            self._ahead.append((before, item))
            self.rows = self.rows or _is_train_row(item)
        return item is not None


class ChannelMerge:
    """Merges the items of a run's sources: by step, and within a step rows before completions, checkpoints and events.

    Configuration comes first. Of rows with the same step the better channel's comes first; an item without a step
    follows its predecessor. Items of later segments (a resume's files) wait until the primary, the kind that the
    assembler takes rows from, reaches that segment. The channel that begins earliest is elected first, and once the
    primary's files have ended, the channel with the next step; better channels take over by themselves.

    Args:
        sources: the opened channels.
        assembler: takes each item before the next one is asked for.
        live: how they are read; None: as complete files.
    """

    def __init__(self, sources: Sequence[OpenedSource], assembler: Assembler, live: LiveReading | None = None) -> None:
        self._assembler, self._live = assembler, live
        ordered = sorted(sources, key=reading_order)
        newest = {source.kind: source.segment for source in ordered if source.kind is not None}
        followed = [source.kind is not None and source.segment < newest[source.kind] for source in ordered]
        self.lanes = [
            MergeLane(source, live, place, assembler.ledger, followed=followed[place])
            for place, source in enumerate(ordered)
        ]
        self._order: list[tuple[Place, MergeLane]] = []
        """A heap of the lanes by the place of their next item, or an earlier place."""
        self._at = 0
        self._in: int | None = None
        """Step and segment of the primary's newest row."""
        self._renews = False
        self._primary: ChannelKind | None = None
        self._segment: int | None = None
        """The primary's current segment; None if it has only one, or none is left."""

    def cursors(self) -> dict[str, Cursor]:
        """Where each source continues after the items given out; empty for complete files."""
        places = {lane.source.name: lane.cursor() for lane in self.lanes}
        return {name: place for name, place in places.items() if place is not None}

    def items(self) -> Iterator[Item | None]:
        """Yield the items in order; None: another process works on the next one, ask again later."""
        for lane in self.lanes:
            while lane.source.early and (lane.look() is not None or lane.blocked):
                yield lane.take() if lane.look() is not None else None
        first = self._begin()
        if first is not None and self._assembler.primary is None:
            yield ChannelElected(Stream.TRAIN, first.source.name, "best channel with rows")
        fresh, turned = [lane for lane in self.lanes if not lane.source.early], True
        elected: set[MergeLane] = set()  # since the last item; the assembler may take another channel back
        while fresh or self._order:
            ready: list[MergeLane] = []
            blocked = False
            for lane in fresh:
                begun = lane.rows
                if lane.look() is not None:
                    ready.append(lane)
                    turned = turned or lane.rows is not begun
                else:
                    blocked, turned = blocked or lane.blocked, True
            if blocked:
                yield None
                continue
            self._place_all(ready, turned=turned)
            fresh, turned = [], False
            ahead = self._order[0][1] if self._order else None
            if ahead is not None and ahead not in elected and self._goes_on(ahead):
                elected.add(ahead)
                name = ahead.source.name
                yield ChannelElected(Stream.TRAIN, name, "continues where better channels ended")
            elif self._order:
                fresh = [heappop(self._order)[1]]
                elected.clear()
                item = fresh[0].take()
                yield item
                self._note(item, fresh[0])

    def _begin(self) -> MergeLane | None:
        """Return the channel that begins earliest, the best of several; None if no row comes."""
        found: list[tuple[MergeLane, RawRow]] = []
        for kind in sorted({lane.source.kind for lane in self.lanes if lane.source.kind is not None}):
            most = MOST_AHEAD if found else None
            mine = [lane for lane in self.lanes if lane.source.kind is kind and not lane.source.early]
            rows = [(lane, row) for lane in mine for row in lane.rows_ahead(most=most)]
            found += sorted(rows, key=lambda each: each[1].segment)
        if not found:
            return None
        best, row = found[0]
        begins = {lane: first.step for lane, first in found if first.step is not None and first.segment <= row.segment}
        return best if row.step is None else min(begins, key=begins.__getitem__)

    def _note(self, item: Item, lane: MergeLane) -> None:
        """Note the primary's place; lanes are placed again where it went back or on to a later file."""
        if isinstance(item, RawRow) and item.step is not None and item.kind is self._assembler.primary:
            self._renews = self._renews or lane.step < self._at or self._in != lane.source.segment
            self._at, self._in = lane.step, lane.source.segment

    def _place_all(self, fresh: Sequence[MergeLane], *, turned: bool) -> None:
        """Place the lanes whose next item is new, or all if needed; ``turned``: one gave its first row, or ended."""
        primary = self._assembler.primary
        if turned or primary is not self._primary:
            rows = [lane for lane in self.lanes if lane.rows and lane.source.kind is primary]
            left = [lane.source.segment for lane in rows if not lane.ended]
            segment = min(left) if left and len({lane.source.segment for lane in rows}) > 1 else None
            self._renews = self._renews or (primary, segment) != (self._primary, self._segment)
            self._primary, self._segment = primary, segment
        if self._renews:
            fresh = [*fresh, *(lane for _, lane in self._order)]
            self._renews, self._order = False, []
        for lane in fresh:
            heappush(self._order, (self._place(lane), lane))
        while self._order and self._order[0][0][1] < self._at:  # items waiting for the primary wait for its newest step
            before, lane = self._order[0]
            place = self._place(lane)
            if place == before:
                break
            heapreplace(self._order, (place, lane))

    def _place(self, lane: MergeLane) -> Place:
        item = lane.look()
        step = lane.note_step(item)
        clock = lane.rows and lane.source.kind is self._primary
        begun = self._segment if clock or self._in is None else self._in
        later = self._segment is not None and begun is not None and lane.source.segment > begun
        if isinstance(item, RawRow) and step is not None and not (clock and step < self._at):
            return later, step, 0, item.kind, lane.place
        if clock:  # an attempt begins after all items of the previous one; bars of downloads have steps of their own
            return later, self._at, 2, 0, lane.place
        return later, lane.step, 1, 0, lane.place

    def _goes_on(self, lane: MergeLane) -> bool:
        """Whether its next row lies beyond those of the ended primary."""
        item, primary = lane.look(), self._assembler.primary
        if item is None or not _is_train_row(item) or item.kind is primary:
            return False
        last = self._assembler.ledger.last_step
        if last is None or item.step is None or item.step <= last or not self._assembler.agreement.trusts(item.channel):
            return False
        before = (other for other in self.lanes if other.source.kind is primary)
        return all((each.ended or not each.rows) and self._has_ended(each.source) for each in before)

    def _has_ended(self, source: OpenedSource) -> bool:
        """Whether no more rows are expected: complete files, and at the first pass files not written for a while.

        Later on, silence decides: a file server's clock may be far behind.
        """
        if self._live is None or self._live.waiting is None:
            return self._live is None
        try:
            return self._live.now - source.path.stat().st_mtime >= ENDED_SECONDS
        except OSError:  # a run on a server
            return False


def _is_train_row(item: Item) -> TypeGuard[RawRow]:
    return isinstance(item, RawRow) and item.stream is not Stream.EVAL
