"""Turns the items of one run into records: elects the primary channel, counts attempts, normalises. Pure."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, KeysView, Sequence

from grpo_watch.engine.records import (
    TRAINED,
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
from grpo_watch.engine.window import plain_sum
from grpo_watch.frameworks.key_plan import FunctionNames
from grpo_watch.frameworks.resolver import Resolved, Resolver
from grpo_watch.pipeline.attempts import AttemptLedger, PlacedRow, SegmentOverlap
from grpo_watch.pipeline.secondary_channels import ChannelAgreement, WaitingRows

SILENT_STEPS = 10.0
"""A primary channel loses its place after this many median steps of silence while another channel continues …"""
SILENT_SECONDS = 60.0
"""… and at least this long: block-buffered logs arrive in bursts of about ten rows."""


class Assembler:
    """Turns the items of one run into records.

    Train rows are merged by attempt and step over all channels; where several channels have a step, the best-ranked one
    decides. One kind of channel is primary, the clock: a better-ranked kind takes over by itself once it has a step
    that the primary lacks, a worse one only through a ``ChannelElected`` item. Of several channels of the primary kind
    (ranks, two output streams) the first that gives a row counts; one that shares no key with it (a file for each
    metric) adds its metrics. Rows of other kinds wait until the primary has reached their step: they fill the steps
    that it lacks, also before its first row, and add missing metrics as ``supplement`` rows. A row that comes after the
    primary has passed its step only adds metrics. Evaluation scores become rows of their own stream, before the
    training row that they were logged with; scores of other channels count if they are newer.

    ``given`` counts the rows of each channel, used or not; ``agreement`` compares the channels, ``overlap`` detects two
    jobs writing at the same time, ``resolver`` maps the logged keys (``own_keys`` may be read by any thread).
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self._channels: dict[str, ChannelOpened] = {}
        self.primary: ChannelKind | None = None
        self.ledger = AttemptLedger()
        self.agreement = ChannelAgreement()
        self.given: Counter[str] = Counter()
        self.shows_end = False
        self.in_folder = True
        self._leaders: dict[tuple[ChannelKind, int], tuple[str, KeysView[str]]] = {}
        self.resolver = Resolver()
        self._carried: dict[str, tuple[int, int]] = {}
        self._scored: dict[str, tuple[int, int]] = {}
        self._begun = (0, 0)
        self._waiting = WaitingRows()
        self._last_seen: float | None = None
        self._step_times: deque[float] = deque(maxlen=21)
        self._changed = ChangedShare()
        self._interleaved_reported = False
        self.overlap = SegmentOverlap()
        self._dumps = RecentDumps()
        self._functions = FunctionNames()
        self._max_steps: int | None = None

    def feed(self, item: Item) -> Sequence[Record]:
        """Feed one item; returns the records made from it, in order."""
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

    def election(self, now: float, *, ended: bool = False) -> ChannelElected | None:
        """Return the election that is due: the primary is silent or has ended while another channel continues.

        Once a run has ended, evaluations that still wait are released by an election of the evaluation stream.
        """
        if self.primary is None or not self._waiting:
            return None
        since = next(iter(self._waiting))[1].seen if self._last_seen is None else self._last_seen
        median = sorted(self._step_times)[len(self._step_times) // 2] if self._step_times else 0.0
        if not ended and (since is None or now - since < max(SILENT_SECONDS, SILENT_STEPS * median)):
            return None
        ahead = self._waiting.beyond(self.ledger.last_step)
        ahead = [row for row in ahead if self.agreement.trusts(row.channel)] if ended else ahead
        trained = [row for row in ahead if row.stream is not Stream.EVAL]
        if not trained:
            return ChannelElected(Stream.EVAL, ahead[0].channel, "the run ended") if ended and ahead else None
        best = min(trained, key=lambda row: row.kind)
        return ChannelElected(Stream.TRAIN, best.channel, f"{self.primary.name.lower()} silent")

    def _pass(self, item: Progress | Activity | Tick | CompletionSummary | CheckpointDigest) -> Sequence[Record]:
        """Pass on items that aren't rows; checkpoints and completions also yield a gauge row."""
        if isinstance(item, CompletionSummary):
            item = self._functions.admitted(item)
        if isinstance(item, CheckpointDigest):
            name, share = "parameters_changed_ratio", self._changed.of(item)
        elif isinstance(item, CompletionSummary) and self._dumps.known_elsewhere(item):
            return ()
        elif isinstance(item, CompletionSummary) and item.stream is Stream.EVAL:
            made: list[Record] = [item]
            self._add(item.step, validated(item), made)
            return made
        elif isinstance(item, CompletionSummary):
            name, share = "completion_duplicate_ratio", duplicate_ratio(item)
        else:
            return (item,)
        return (item,) if share is None else (item, self._supplement(item.step, {name: share}, item.seen))

    def _open(self, item: ChannelOpened) -> Sequence[Record]:
        self._channels[item.channel] = item
        self.shows_end = self.shows_end or item.shows_end
        self.in_folder = item.in_folder
        return ()

    def _elect(self, item: ChannelElected) -> Sequence[Record]:
        opened = self._channels.get(item.channel)
        if item.stream is Stream.EVAL:
            return self._last_scores()
        if opened is None or opened.kind is self.primary:
            return ()
        self._change(opened.kind)
        return [record for row in self._waiting.take_all() for record in self._row(row, counted=True)]

    def _last_scores(self) -> Sequence[Record]:
        """Release waiting evaluations whose training row never comes; other rows keep waiting."""
        made: list[Record] = []
        for row in self._waiting.take_all():
            if row.stream is Stream.EVAL and row.step is not None and self.agreement.trusts(row.channel):
                self._add(row.step, row, made)
            else:
                made += self._secondary(row)
        return made

    def _change(self, kind: ChannelKind) -> None:
        self.primary = kind
        self._carried.clear()
        self.agreement.forget()
        self.ledger.change_channel()

    def _event(self, event: RunEvent) -> Sequence[Record]:
        opened = self._channels.get(event.channel)
        if event.kind is EventKind.STARTED and opened is not None and opened.kind is self._expected():
            self.ledger.restart()
        return (event,)

    def _expected(self) -> ChannelKind | None:
        """Return the primary kind, or before it is settled the best-ranked kind of the open channels."""
        if self.primary is not None:
            return self.primary
        return min((opened.kind for opened in self._channels.values()), default=None)

    def _row(self, row: RawRow, *, counted: bool = False) -> Sequence[Record]:
        self.given[row.channel] += not counted
        if row.kind is not self.primary:
            self._choose(row)
        if row.kind is not self.primary:
            return self._secondary(row)
        leader, keys = self._leaders.setdefault((row.kind, row.segment), (row.channel, row.values.keys()))
        if leader != row.channel:
            return self._secondary(row) if keys.isdisjoint(row.values) else ()
        if row.stream is not Stream.EVAL and self.ledger.completes(row):
            return self._secondary(row)
        if not self.overlap.take(row):
            return self._primary(row)
        return (*self._primary(row), _problem(row, self.overlap.problem))

    def _choose(self, row: RawRow) -> None:
        """Settle the primary with the first row; later, a better kind takes over where it continues."""
        expected = self._expected()
        if expected is None or self.primary is None:
            self.primary = row.kind if expected is None else min(expected, row.kind)
        elif row.kind < expected and row.stream is not Stream.EVAL and self._goes_on(row):
            self._change(row.kind)

    def _goes_on(self, row: RawRow) -> bool:
        last = self.ledger.last_step
        return last is None or (row.step is not None and row.step > last)

    def _primary(self, row: RawRow) -> Sequence[Record]:
        self._clock(row)
        made: list[Record] = []
        if row.stream is Stream.EVAL:
            step = row.step if row.step is not None else self.ledger.last_step or 0
            self._emit(PlacedRow(row, self.ledger.attempt, step), made)
            return made
        for entry in self.ledger.take(row):
            if self._waiting:
                self._waiting.release(self._is_of_later_segment)
                self._fill(entry, made)
            self._emit(entry, made)
        if self._waiting and self.ledger.last_step is not None:
            for step, waiting in self._waiting.before(self.ledger.last_step + 1):
                self._add(step, waiting, made)
        if self.ledger.interleaved and not self._interleaved_reported:
            self._interleaved_reported = True
            text = "two jobs write to this log: two rising sequences of steps are interleaved; give each its own file"
            made.append(_problem(row, text))
        return made

    def _clock(self, row: RawRow) -> None:
        """Track the pace of the primary, to detect its silence."""
        if row.seen is None:
            return
        if self._last_seen is not None:
            self._step_times.append(row.seen - self._last_seen)
        self._last_seen = row.seen

    def _emit(self, entry: PlacedRow, made: list[Record]) -> None:
        row = entry.row
        resolved = self.resolver.resolve(row if row.step is not None else row._replace(step=entry.step))
        if resolved.config is not None:
            made.append(resolved.config)
        if row.max_steps is not None and row.max_steps != self._max_steps:
            self._max_steps = row.max_steps
            made.append(Progress(row.channel, entry.step, row.max_steps, row.segment, row.seen))
        if resolved.scores:
            made += self._evaluation(resolved, entry)
        if resolved.stream is Stream.EVAL:
            return
        self._note_metrics(resolved, entry)
        place, values = (entry.attempt, entry.step), resolved.values
        made.append(MetricRow(self.run, Stream.TRAIN, *place, values, resolved.raw, row.time, row.seen, row.resolution))

    def _evaluation(self, resolved: Resolved, entry: PlacedRow) -> Iterator[MetricRow]:
        """Yield the row's scores, except those that another channel already gave or that are out of date.

        Rows before the first one of an attempt may be history that a resumed Trainer repeats.
        """
        row, place = entry.row, (entry.attempt, entry.step)
        primary = row.kind is self.primary
        new = {}
        for name, score in resolved.scores.items():
            known = self._scored.get(name)
            newer = known is None or place[1] > known[1] or self._begun <= place > known
            if place != known if primary else newer:
                new[name], self._scored[name] = score, place
        if new:
            yield MetricRow(self.run, Stream.EVAL, *place, new, time=row.time, seen=row.seen, resolution=row.resolution)

    def _note_metrics(self, resolved: Resolved, entry: PlacedRow) -> None:
        """Remember train rows, the first place of the attempt, and where the primary first carried each metric."""
        place = (entry.attempt, entry.step)
        if entry.attempt > self._begun[0]:
            self._begun = place
        if len(self._channels) > 1:
            self.agreement.keep(place, entry.row.channel, resolved.values, entry.row.resolution)
        if entry.row.kind is self.primary and not resolved.values.keys() <= self._carried.keys():
            for name in resolved.values:
                self._carried.setdefault(name, place)

    def _secondary(self, row: RawRow) -> Sequence[Record]:
        made: list[Record] = []
        if row.step is None:
            return made
        self._waiting.drop_misprint(row, self.ledger)
        if self._is_of_later_segment(row):
            self._waiting.add_later(row.step, row)
        elif self.ledger.last_step is None or row.step > self.ledger.last_step:
            self._waiting.add(row.step, row)
        else:
            self._add(row.step, row, made)
        return made

    def _is_of_later_segment(self, row: RawRow) -> bool:
        """Whether the row belongs to an attempt that the primary will begin with a later file of its own.

        False for the Trainer's state file, which repeats the previous attempt's history after a resume.
        """
        current = self.ledger.segment
        return (
            current is not None
            and row.segment > current
            and row.kind is not ChannelKind.TRAINER_STATE
            and any(opened.kind is self.primary and opened.segment >= row.segment for opened in self._channels.values())
        )

    def _fill(self, entry: PlacedRow, made: list[Record]) -> None:
        """Emit waiting rows for steps that the primary skipped (a killed job's buffered log, a lost file)."""
        filled: int | None = None
        for step, row in self._waiting.before(entry.step):
            if step == filled or row.stream is Stream.EVAL or not self.agreement.trusts(row.channel):
                self._add(step, row, made)
            else:
                filled = step
                self.ledger.fill(step)
                self._emit(PlacedRow(row, entry.attempt, step), made)

    def _add(self, step: int, row: RawRow, made: list[Record]) -> None:
        """Add the metrics that the step's row lacks and that the primary had not carried up to this step."""
        resolved, here = self.resolver.resolve(row), (self.ledger.attempt, step)
        made += self._evaluation(resolved, PlacedRow(row, *here))
        self.agreement.compare(here, row.channel, resolved.values, row.resolution)
        known = self.agreement.names(here)
        lacking = {
            name: value
            for name, value in resolved.values.items()
            if name not in known and self._carried.get(name, _NEVER) > here
        }
        if lacking:
            made.append(self._supplement(step, lacking, row.seen)._replace(resolution=row.resolution))

    def _supplement(self, step: int, values: dict[str, float | None], seen: float | None) -> MetricRow:
        return MetricRow(self.run, Stream.TRAIN, self.ledger.attempt, step, values, seen=seen, supplement=True)


_NEVER = (sys.maxsize, 0)


def _problem(row: RawRow, text: str) -> RunEvent:
    return RunEvent(row.channel, EventKind.SOURCE_PROBLEM, text=text, seen=row.seen)


RECENT_BATCHES = 64
"""How many batches of completions are remembered, to recognise the same batch in another channel."""


class ChangedShare:
    """Compares each checkpoint, or probe of trained weights, with one of the same kind at a lower step."""

    def __init__(self) -> None:
        self._last: dict[str, CheckpointDigest] = {}

    def of(self, digest: CheckpointDigest) -> float | None:
        """Share (0…1) of common tensors whose checksum changed; None where there is nothing to compare."""
        if not digest.complete or digest.problems or digest.kind not in TRAINED:
            return None
        before = self._last.get(digest.kind.value)
        if before is not None and digest.step == before.step:
            return None
        self._last[digest.kind.value] = digest
        if before is None or digest.step < before.step:
            return None
        common = digest.tensors.keys() & before.tensors.keys()
        if not common:
            return None
        changed = sum(digest.tensors[name].checksum != before.tensors[name].checksum for name in common)
        return changed / len(common)


class RecentDumps:
    """The newest batches of completions, and which channel gave each."""

    def __init__(self) -> None:
        self._batches: deque[tuple[tuple[int, tuple[str, ...]], str]] = deque(maxlen=RECENT_BATCHES)

    def known_elsewhere(self, summary: CompletionSummary) -> bool:
        """Whether another channel gave this batch (TRL writes it to Parquet and logs it to wandb)."""
        batch = (summary.step, tuple(group.digest for group in summary.groups))
        comparable = summary.groups and all(group.digest for group in summary.groups)
        known = dict(self._batches).get(batch, summary.channel) if comparable else summary.channel
        if known == summary.channel:
            self._batches.append((batch, summary.channel))
        return known != summary.channel


SCORES = ("acc", "score")
"""Names of the scores in verl's dump of a whole validation; tables of single batches use the functions' names."""


def validated(summary: CompletionSummary) -> RawRow:
    """Return the mean scores of a dumped validation as a log row."""
    scored = {name: [score for group in summary.groups for score in group.rewards.get(name, ())] for name in SCORES}
    known = {name: [score for score in scores if score is not None] for name, scores in scored.items()}
    means = {f"val/{name}": plain_sum(scores) / len(scores) for name, scores in known.items() if scores}
    kind = ChannelKind.TRAINER_STATE  # any channel that logs the scores takes precedence
    return RawRow(summary.channel, kind, summary.step, means, Stream.EVAL, summary.segment, seen=summary.seen)


def duplicate_ratio(summary: CompletionSummary) -> float | None:
    """Share (0…1) of non-empty completions that repeat another completion of their group; None without groups."""
    total = repeated = 0
    for group in summary.groups:
        total += group.size - group.empty
        distinct = group.unique - (group.empty > 0)
        repeated += max(0, group.size - group.empty - distinct)
    return repeated / total if total else None
