"""Turns the items of one run into records: elects the primary channel, counts attempts, normalises. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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

    def feed(self, item: Item) -> Sequence[Record]:
        """The records that this item makes, in order."""
        if isinstance(item, RawRow):
            return self._row(item)
        if isinstance(item, ChannelOpened):
            return self._open(item)
        if isinstance(item, ChannelElected):
            return self._elect(item)
        if isinstance(item, RunConfig):
            self.resolver.set_config(item)
            return (item,)
        return self._event(item) if isinstance(item, RunEvent) else self._pass(item)

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

    def _pass(self, item: Progress | Activity | Tick | CompletionSummary | CheckpointDigest) -> Sequence[Record]:
        """Anything else goes on as it is; checkpoints and completions also make a gauge."""
        if isinstance(item, CheckpointDigest):
            name, share = "parameters_changed_ratio", self._changed.of(item)
        elif isinstance(item, CompletionSummary) and item.stream is Stream.TRAIN:
            name, share = "completion_duplicate_ratio", duplicate_ratio(item)
        else:
            return (item,)
        return (item,) if share is None else (item, self._supplement(item.step, {name: share}, item.seen))

    def _open(self, item: ChannelOpened) -> Sequence[Record]:
        self.channels[item.channel] = item
        self.shows_end = self.shows_end or item.shows_end
        self.in_folder = item.in_folder
        place = (item.kind, item.segment)
        self._leaders[place] = min(self._leaders.get(place, item.channel), item.channel)
        return ()

    def _elect(self, item: ChannelElected) -> Sequence[Record]:
        opened = self.channels.get(item.channel)
        if opened is None:
            return ()
        self.primary = opened.kind
        waiting, self._waiting = list(self._waiting), deque(maxlen=BUFFERED_ROWS)
        return [record for row in waiting for record in self._row(row)]

    def _event(self, event: RunEvent) -> Sequence[Record]:
        opened = self.channels.get(event.channel)
        if event.kind is EventKind.STARTED and opened is not None and opened.kind is self._expected():
            self.ledger.restart()
        return (event,)

    def _expected(self) -> ChannelKind | None:
        """The primary, or who will be it: the best-ranked channel that was opened."""
        if self.primary is not None:
            return self.primary
        return min((opened.kind for opened in self.channels.values()), default=None)

    def _row(self, row: RawRow) -> Sequence[Record]:
        expected = self._expected()
        if expected is None or row.kind < expected:
            expected = row.kind
        self.primary = expected
        if row.kind is not expected:
            return self._secondary(row)
        return () if self._twin(row) else self._primary(row)

    def _twin(self, row: RawRow) -> bool:
        """Whether another channel of the same kind and segment gives this run's rows already (a rank's own log)."""
        leader = self._leaders.get((row.kind, row.segment), row.channel)
        return leader != row.channel

    def _primary(self, row: RawRow) -> Sequence[Record]:
        self._clock(row)
        made: list[Record] = []
        if row.stream not in {None, Stream.TRAIN}:
            step = row.step if row.step is not None else self.ledger.last_step or 0
            self._emit(Entry(row, self.ledger.attempt, step), made)
            return made
        for entry in self.ledger.take(row):
            if self._waiting:
                self._fill(entry, made)
            self._emit(entry, made)
        if self._waiting:
            self._catch_up(made)
        if self.ledger.interleaved and not self._told_interleaved:
            self._told_interleaved = True
            text = "two jobs write to this log: two rising sequences of steps are interleaved; give each its own file"
            made.append(RunEvent(row.channel, EventKind.SOURCE_PROBLEM, text=text, seen=row.seen))
        return made

    def _clock(self, row: RawRow) -> None:
        """Remember how fast the primary goes, to know when it is silent."""
        if row.seen is None:
            return
        if self._last_seen is not None:
            self._step_times.append(row.seen - self._last_seen)
        self._last_seen = row.seen

    def _emit(self, entry: Entry, made: list[Record]) -> None:
        row = entry.row
        resolved = self.resolver.resolve(row if row.step is not None else replace(row, step=entry.step))
        if resolved.config is not None:
            made.append(resolved.config)
        if row.max_steps is not None and row.max_steps != self._max_steps:
            self._max_steps = row.max_steps
            made.append(Progress(row.channel, entry.step, row.max_steps, row.segment, row.seen))
        if not resolved.values.keys() <= self._primary_metrics:
            self._primary_metrics.update(resolved.values)
        made.append(
            MetricRow(
                self.run,
                resolved.stream,
                entry.attempt,
                entry.step,
                resolved.values,
                resolved.raw,
                row.time,
                row.seen,
                row.resolution,
            )
        )

    def _secondary(self, row: RawRow) -> Sequence[Record]:
        made: list[Record] = []
        if row.step is None or row.stream is Stream.EVAL:
            return made
        if self.ledger.last_step is None or row.step > self.ledger.last_step:
            self._waiting.append(row)
        else:
            self._add(row, made)
        return made

    def _catch_up(self, made: list[Record]) -> None:
        """Secondary rows whose step the primary has reached now."""
        last = self.ledger.last_step
        while self._waiting and last is not None:
            step = self._waiting[0].step
            if step is None or step > last:
                return
            self._add(self._waiting.popleft(), made)

    def _fill(self, entry: Entry, made: list[Record]) -> None:
        """Steps between the primary's rows that only a secondary channel kept (a killed job's buffered log)."""
        first = self._waiting[0].step if self._waiting else None
        if first is None or first >= entry.step or entry.attempt != self.ledger.attempt or not self._primary_metrics:
            return
        gap = [row for row in self._waiting if row.step is not None and row.step < entry.step]
        for row in gap:
            self._waiting.remove(row)
            self._emit(Entry(row, entry.attempt, row.step or 0), made)

    def _add(self, row: RawRow, made: list[Record]) -> None:
        """The metrics of a secondary row that the primary never carried."""
        resolved = self.resolver.resolve(row)
        lacking = {name: value for name, value in resolved.values.items() if name not in self._primary_metrics}
        if lacking and row.step is not None:
            made.append(self._supplement(row.step, lacking, row.seen)._replace(resolution=row.resolution))

    def _supplement(self, step: int, values: dict[str, float | None], seen: float | None) -> MetricRow:
        return MetricRow(self.run, Stream.TRAIN, self.ledger.attempt, step, values, seen=seen, supplement=True)
