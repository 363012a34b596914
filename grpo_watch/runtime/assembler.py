"""Turns the items of one run into records: elects the primary channel, counts attempts, normalises. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.core.records import (
    Activity,
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    CheckpointDigest,
    CompletionSummary,
    EventKind,
    Item,
    MetricRow,
    Progress,
    RawRow,
    Record,
    RunConfig,
    RunEvent,
    Stream,
    Tick,
)
from grpo_watch.normalise.resolve import Resolver
from grpo_watch.runtime.ledger import Entry, Ledger
from grpo_watch.runtime.shares import ChangedShare, duplicate_ratio

BUFFERED_ROWS = 2_000
"""Rows of secondary channels kept while the primary has not reached their step (bounds memory)."""
SILENT_STEPS = 10.0
"""The primary is given up when it is silent for so many median steps while another channel goes on …"""
SILENT_SECONDS = 60.0
"""… and at least this long: block-buffered logs arrive in bursts of about ten rows."""


class Assembler:
    """One run's items in, its records out.

    Per run one channel kind is primary and gives the train and eval rows; a better-ranked kind takes over by itself
    when it shows up, a worse one only through a ``ChannelElected`` item. Rows of other kinds only add the metrics that
    the primary never carried, as ``supplement`` rows, once the primary has passed their step; a step that the primary
    skipped is filled from them when they are there before it goes on.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.channels: dict[str, ChannelOpened] = {}
        self.primary: ChannelKind | None = None
        self.ledger = Ledger()
        self.conflicts = 0
        self.shows_end = False
        self.in_folder = True
        self._leaders: dict[tuple[ChannelKind, int], str] = {}
        self.resolver = Resolver()
        self._primary_metrics: set[str] = set()
        self._waiting: deque[RawRow] = deque(maxlen=BUFFERED_ROWS)
        self._last_seen: float | None = None
        self._step_times: deque[float] = deque(maxlen=21)
        self._changed = ChangedShare()
        self._told_interleaved = False
        self._max_steps: int | None = None

    def feed(self, item: Item) -> Iterator[Record]:
        """The records that this item makes, in order."""
        if isinstance(item, RawRow):
            yield from self._row(item)
        elif isinstance(item, ChannelOpened):
            self._open(item)
        elif isinstance(item, ChannelElected):
            yield from self._elect(item)
        elif isinstance(item, RunConfig):
            self.resolver.set_config(item)
            yield item
        elif isinstance(item, RunEvent):
            yield from self._event(item)
        else:
            yield from self._pass(item)

    def election(self, now: float) -> ChannelElected | None:
        """The election that is due because the primary fell silent while another channel goes on; None mostly."""
        if self.primary is None or self._last_seen is None or not self._waiting:
            return None
        median = sorted(self._step_times)[len(self._step_times) // 2] if self._step_times else 0.0
        if now - self._last_seen < max(SILENT_SECONDS, SILENT_STEPS * median):
            return None
        last = self.ledger.last_step or 0
        ahead = [row for row in self._waiting if row.step is not None and row.step > last]
        if not ahead:
            return None
        best = min(ahead, key=lambda row: row.kind)
        return ChannelElected(Stream.TRAIN, best.channel, f"{self.primary.name.lower()} silent")

    def _pass(self, item: Progress | Activity | Tick | CompletionSummary | CheckpointDigest) -> Iterator[Record]:
        yield item
        if isinstance(item, CheckpointDigest):
            changed = self._changed.of(item)
            if changed is not None:
                yield self._supplement(item.step, {"parameters_changed_ratio": changed}, item.seen)
        elif isinstance(item, CompletionSummary) and item.stream is Stream.TRAIN:
            share = duplicate_ratio(item)
            if share is not None:
                yield self._supplement(item.step, {"completion_duplicate_ratio": share}, item.seen)

    def _open(self, item: ChannelOpened) -> None:
        self.channels[item.channel] = item
        self.shows_end = self.shows_end or item.shows_end
        self.in_folder = item.in_folder
        place = (item.kind, item.segment)
        self._leaders[place] = min(self._leaders.get(place, item.channel), item.channel)

    def _elect(self, item: ChannelElected) -> Iterator[Record]:
        opened = self.channels.get(item.channel)
        if opened is None:
            return
        self.primary = opened.kind
        waiting, self._waiting = list(self._waiting), deque(maxlen=BUFFERED_ROWS)
        for row in waiting:
            yield from self._row(row)

    def _event(self, event: RunEvent) -> Iterator[Record]:
        opened = self.channels.get(event.channel)
        if event.kind is EventKind.STARTED and opened is not None and opened.kind is self._expected():
            self.ledger.restart()
        yield event

    def _expected(self) -> ChannelKind | None:
        """The primary, or who will be it: the best-ranked channel that was opened."""
        if self.primary is not None:
            return self.primary
        return min((opened.kind for opened in self.channels.values()), default=None)

    def _row(self, row: RawRow) -> Iterator[Record]:
        expected = self._expected()
        if expected is None or row.kind < expected:
            expected = row.kind
        self.primary = expected
        if row.kind is not expected:
            yield from self._secondary(row)
        elif not self._twin(row):
            yield from self._primary(row)

    def _twin(self, row: RawRow) -> bool:
        """Whether another channel of the same kind and segment gives this run's rows already (a rank's own log)."""
        leader = self._leaders.get((row.kind, row.segment), row.channel)
        return leader != row.channel

    def _primary(self, row: RawRow) -> Iterator[Record]:
        if row.seen is not None:
            if self._last_seen is not None:
                self._step_times.append(row.seen - self._last_seen)
            self._last_seen = row.seen
        resolved_stream = row.stream or Stream.TRAIN
        if resolved_stream is not Stream.TRAIN:
            yield from self._emit(Entry(row, self.ledger.attempt, self._step_of(row)))
            return
        for entry in self.ledger.take(row):
            if self._waiting:
                yield from self._fill(entry)
            yield from self._emit(entry)
        if self._waiting:
            yield from self._catch_up()
        if self.ledger.interleaved and not self._told_interleaved:
            self._told_interleaved = True
            text = "two jobs write to this log: two rising sequences of steps are interleaved; give each its own file"
            yield RunEvent(row.channel, EventKind.SOURCE_PROBLEM, text=text, seen=row.seen)

    def _step_of(self, row: RawRow) -> int:
        return row.step if row.step is not None else self.ledger.last_step or 0

    def _emit(self, entry: Entry) -> Iterator[Record]:
        row = entry.row
        resolved = self.resolver.resolve(row if row.step is not None else replace(row, step=entry.step))
        if resolved.config is not None:
            yield resolved.config
        if row.max_steps is not None and row.max_steps != self._max_steps:
            self._max_steps = row.max_steps
            yield Progress(row.channel, entry.step, row.max_steps, row.segment, row.seen)
        if not resolved.values.keys() <= self._primary_metrics:
            self._primary_metrics.update(resolved.values)
        yield MetricRow(
            run=self.run,
            stream=resolved.stream,
            attempt=entry.attempt,
            step=entry.step,
            values=resolved.values,
            raw=resolved.raw,
            time=row.time,
            seen=row.seen,
            resolution=row.resolution,
        )

    def _secondary(self, row: RawRow) -> Iterator[Record]:
        if row.step is None or row.stream is Stream.EVAL:
            return
        if self.ledger.last_step is None or row.step > self.ledger.last_step:
            self._waiting.append(row)
            return
        yield from self._add(row)

    def _catch_up(self) -> Iterator[Record]:
        """Secondary rows whose step the primary has reached now."""
        last = self.ledger.last_step
        while self._waiting and last is not None:
            step = self._waiting[0].step
            if step is None or step > last:
                return
            yield from self._add(self._waiting.popleft())

    def _fill(self, entry: Entry) -> Iterator[Record]:
        """Steps between the primary's rows that only a secondary channel kept (a killed job's buffered log)."""
        first = self._waiting[0].step if self._waiting else None
        if first is None or first >= entry.step or entry.attempt != self.ledger.attempt or not self._primary_metrics:
            return
        gap = [row for row in self._waiting if row.step is not None and row.step < entry.step]
        for row in gap:
            self._waiting.remove(row)
            yield from self._emit(Entry(row, entry.attempt, row.step or 0))

    def _add(self, row: RawRow) -> Iterator[Record]:
        """The metrics of a secondary row that the primary never carried."""
        resolved = self.resolver.resolve(row)
        lacking = {name: value for name, value in resolved.values.items() if name not in self._primary_metrics}
        if lacking and row.step is not None:
            yield replace(self._supplement(row.step, lacking, row.seen), resolution=row.resolution)

    def _supplement(self, step: int, values: dict[str, float | None], seen: float | None) -> MetricRow:
        return MetricRow(self.run, Stream.TRAIN, self.ledger.attempt, step, values, seen=seen, supplement=True)
