"""The details of one run beyond its snapshot: rows for charts, batches (bounded, and storable), and its channels."""

from __future__ import annotations

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import isnan, nan
from threading import Lock
from typing import Any, TypeAlias

from grpo_watch.daemon.run_reader import RunReader
from grpo_watch.engine.record_parts import GroupSummary
from grpo_watch.engine.records import CompletionSummary, MetricRow, Record, Stream
from grpo_watch.frameworks.resolver import Resolver
from grpo_watch.metrics.daemon_snapshot import ChannelStatus
from grpo_watch.pipeline.secondary_channels import CONFLICT
from grpo_watch.report.charts import Sparkline, sparks
from grpo_watch.report.series import LIVE_NUMBERS, LIVE_ROWS, Series, ThinnedColumns

BATCHES = 8
GROUPS = 64
POSITIONS = 64
"""Most batches kept, groups of each, and completions of each group: at most 32 KB per run."""
LISTED_GROUPS, LISTED_EACH, LISTED_SCORES = 8, 16, 5
"""Groups per batch in the table of completions, completions per group, and reward columns: 25 KB per run."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """The first completions of one group. ``lengths`` are unsigned, ``scores`` floats (NaN: not scored), of 32 bits.

    ``shown`` holds the beginnings of the prompt and of each completion; empty unless the settings ask for them.
    """

    lengths: bytes
    scores: Mapping[str, bytes] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    def length_column(self) -> list[int]:
        """The length of each completion, in characters or tokens."""
        return array("I", self.lengths).tolist()

    def score_columns(self) -> dict[str, list[float | None]]:
        """Each reward function's values, and the advantages."""
        columns = {name: array("f", data) for name, data in self.scores.items()}
        return {name: [None if isnan(value) else value for value in column] for name, column in columns.items()}


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch: which texts of each group are equal, numbered by first appearance.

    ``groups`` and ``completions`` count the whole batch, ``repeated`` the completions that repeat another of their
    group; ``patterns`` are those of the first ``GROUPS`` groups and ``POSITIONS`` places, ``listed`` the rows of the
    first ``LISTED_GROUPS``. ``reason`` says why groups are unknown.
    """

    step: int
    groups: int
    completions: int
    repeated: int
    patterns: tuple[bytes, ...]
    reason: str = ""
    listed: tuple[ListedGroup, ...] = ()


def view_of(summary: CompletionSummary) -> BatchView:
    """The view of a batch, cut to the limits."""
    return BatchView(
        step=summary.step,
        groups=len(summary.groups),
        completions=sum(group.size for group in summary.groups),
        repeated=sum(group.size - group.unique for group in summary.groups),
        patterns=tuple(
            bytes(number & 0xFF for number in group.pattern[:POSITIONS]) for group in summary.groups[:GROUPS]
        ),
        reason="" if summary.complete else summary.reason,
        listed=tuple(_listed(group) for group in summary.groups[:LISTED_GROUPS]),
    )


def _listed(group: GroupSummary) -> ListedGroup:
    lengths = array("I", (min(length, 0xFFFFFFFF) for length in group.lengths[:LISTED_EACH]))
    scores = {
        name: array("f", (nan if value is None else value for value in values[:LISTED_EACH])).tobytes()
        for name, values in islice(group.rewards.items(), LISTED_SCORES)
    }
    return ListedGroup(lengths.tobytes(), scores, group.shown)


STORED_ROWS = 1_000
"""Approximate number of rows kept of an ended run."""
_MARK = b"close-up 1\n"
_SIZE = 4


@dataclass(frozen=True, slots=True)
class RunDetail:
    """The details at one moment, for other threads. ``keys`` maps metrics to the run's own names for them."""

    series: Series = field(default_factory=Series)
    batches: tuple[BatchView, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)


class RunDetailRecorder:
    """Records the details of one run from every record that the engine is fed."""

    def __init__(self) -> None:
        self.series, self._lock = Series(LIVE_NUMBERS, LIVE_ROWS), Lock()
        self.batches: tuple[BatchView, ...] = ()
        """The newest training batches, oldest first; a batch dumped again for its step replaces the earlier one."""
        self.resolver: Resolver | None = None
        """Resolves the run's own keys."""
        self._drawn: tuple[int, dict[str, Sparkline]] = (0, {})

    def observe(self, record: Record) -> None:
        """Take a record into account."""
        if isinstance(record, MetricRow):
            with self._lock:
                self.series.take(record)
        elif isinstance(record, CompletionSummary) and record.stream is Stream.TRAIN:
            others = (view for view in self.batches if view.step != record.step)
            self.batches = (*others, view_of(record))[-BATCHES:]

    def detail(self) -> RunDetail:
        """The current details; any thread may call it."""
        keys = {} if self.resolver is None else self.resolver.own_keys
        with self._lock:
            return RunDetail(self.series.copy(), self.batches, keys)

    def sparks(self) -> dict[str, Sparkline]:
        """The sparklines, recomputed after a new row; any thread may call it."""
        taken = self.series.taken
        if self._drawn[0] != taken:
            self._drawn = (taken, sparks(self.detail().series))
        return self._drawn[1]


def pack(detail: RunDetail) -> bytes:
    """Serialise a run detail; its sparklines come first and can be read without the rest."""
    lines = {metric: asdict(spark) for metric, spark in sparks(detail.series).items()}
    front = zlib.compress(json.dumps(lines).encode(), 3)
    whole = {
        "thinned": asdict(detail.series.pick(detail.series.metrics, STORED_ROWS)),
        "batches": [asdict(batch) for batch in detail.batches],
        "keys": dict(detail.keys),
    }
    rest = zlib.compress(json.dumps(whole, default=_text).encode(), 3)
    return _MARK + len(front).to_bytes(_SIZE, "big") + front + rest


def unpack(packed: bytes | None) -> RunDetail:
    """Return the run detail that ``pack`` serialised; an empty one if the format is another."""
    if not packed or not packed.startswith(_MARK):
        return RunDetail()
    _, rest = _parts(packed)
    stored = json.loads(zlib.decompress(rest))
    stored["thinned"].pop("stride", None)  # of an older version
    return RunDetail(
        Series.of(ThinnedColumns(**stored["thinned"])),
        tuple(BatchView(**_batch(each)) for each in stored["batches"]),
        stored.get("keys", {}),
    )


def unpack_sparks(packed: bytes | None) -> dict[str, Sparkline]:
    """Return the sparklines of a packed run detail."""
    if not packed or not packed.startswith(_MARK):
        return {}
    front, _ = _parts(packed)
    return {metric: Sparkline(**spark) for metric, spark in json.loads(zlib.decompress(front)).items()}


def _parts(packed: bytes) -> tuple[bytes, bytes]:
    begin = len(_MARK) + _SIZE
    end = begin + int.from_bytes(packed[len(_MARK) : begin], "big")
    return packed[begin:end], packed[end:]


def _batch(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a batch; one that an older version stored lists no completions."""
    listed = (
        ListedGroup(b64decode(each["lengths"]), {n: b64decode(v) for n, v in each["scores"].items()}, (*each["shown"],))
        for each in stored.get("listed", ())
    )
    return {**stored, "patterns": tuple(map(b64decode, stored["patterns"])), "listed": tuple(listed)}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(type(value).__name__)


Counts: TypeAlias = tuple[Counter[str], Counter[tuple[str, str]]]
"""Records by kind of channel, and errors by kind and reason."""
NOTHING: Counts = (Counter(), Counter())


def statuses(reader: RunReader) -> tuple[ChannelStatus, ...]:
    """The status of each kind of channel of a run: the worst of its files, the oldest reading."""
    kinds: dict[str, list[tuple[str, float | None]]] = {}
    for source in reader.channels:
        read_at = reader.read_at.get(source.name)
        kinds.setdefault(label(source.what), []).append((source.stats.problem, read_at))
    return tuple(
        ChannelStatus(
            source=kind,
            up=not any(problem for problem, _ in channels),
            read_at=min((at for _, at in channels if at is not None), default=None),
            problem=next((problem for problem, _ in channels if problem), ""),
        )
        for kind, channels in kinds.items()
    )


def counts_of(reader: RunReader, conflicts: Mapping[str, int], failures: int) -> Counts:
    """A run's counts of records and errors; ``conflicts`` between channels by source, ``failures`` to judge an item."""
    records, errors = Counter[str](), Counter[tuple[str, str]]()
    for source in reader.channels:
        kind, stats = label(source.what), source.stats
        records[kind] += stats.records
        for reason, number in stats.skipped.items():
            errors[kind, reason.value] += number
        if source.name in conflicts:
            errors[kind, CONFLICT] += conflicts[source.name]
    if failures:
        errors["pipeline", "internal"] += failures
    return records, errors


def label(what: str) -> str:
    """A kind of channel as a label value."""
    return what.replace(" ", "-")
