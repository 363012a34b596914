"""The daemon's record of each run besides the watch itself, and its state as others see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from grpo_watch.daemon.run_detail import RunDetail, unpack, unpack_sparks
from grpo_watch.daemon.run_end import RunLife
from grpo_watch.daemon.run_reader import RunReader, WatchOptions
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import ChannelStatus, RunOverview
from grpo_watch.pipeline.secondary_channels import CONFLICT
from grpo_watch.report.charts import Sparkline
from grpo_watch.sources.discovery.discover import FoundRun
from grpo_watch.store.state import slug

PAST = 100
"""Runs that ended too long ago for ``/metrics`` and stay on the page; each takes some 50 KB."""

Counts: TypeAlias = tuple[Counter[str], Counter[tuple[str, str]]]
"""Records by kind of channel, and errors by kind and reason."""
NOTHING: Counts = (Counter(), Counter())


@dataclass(slots=True)
class TrackedRun:
    """A run of the daemon. ``watch`` is None while its files are not read: it ended, or they are gone.

    ``number`` is its place in the order of first sight. ``snapshot`` is what is shown, None when nothing is (any
    more); ``written`` is the newest write when it was let go (Unix seconds). ``history`` is a packed run detail, made
    when the run ended; ``past``: that is so long ago that only the page shows it.
    """

    name: str
    number: int = 0
    snapshot: RunSnapshot | None = None
    found: FoundRun | None = None
    watch: WatchedRun | None = None
    options: WatchOptions = field(default_factory=WatchOptions)
    life: RunLife = field(default_factory=RunLife)
    written: float = 0.0
    reported: bool = False
    channels: tuple[ChannelStatus, ...] = ()
    history: bytes | None = None
    past: bool = False
    _overview: RunOverview | None = None
    _seen: tuple[object, ...] = ()
    counted: Counts = NOTHING

    def detail(self) -> RunDetail:
        """What its page shows beyond the snapshot; of a run that is not read any more, what it was at its end."""
        watch = self.watch  # the engine may let go of it meanwhile
        return unpack(self.history) if watch is None else watch.detail

    def sparks(self) -> Mapping[str, Sparkline]:
        """Its sparklines."""
        watch = self.watch
        return unpack_sparks(self.history) if watch is None else watch.recorder.sparks()

    @property
    def folder(self) -> Path | None:
        """Its own folder; None where it is on a server, or not found again since the start."""
        local = self.found is not None and not self.found.remote
        return (self.found.home or self.found.root) if self.found is not None and local else None

    def is_as(self, run: FoundRun) -> bool:
        """Whether the run is unchanged since the last discovery and all its channels are open."""
        return self.watch is not None and self.watch.reader.has_all(run)

    def overview(self) -> RunOverview | None:
        """The run as receivers and pages see it, the same object while nothing changed; None when it is not shown."""
        if self.snapshot is None:
            return None
        seen = (
            id(self.watch),
            self.watch and self.watch.reader.reads,
            self.life.ended,
            self.channels,
            self.options.labels,
        )
        if self._overview is None or self._overview.snapshot is not self.snapshot or self._seen != seen:
            self._overview, self._seen = self._view(self.snapshot), seen
        return self._overview

    def _view(self, snapshot: RunSnapshot) -> RunOverview:
        return RunOverview(
            snapshot=snapshot,
            slug=slug(self.name),
            active=self.life.ended is None,
            ended=self.life.ended,
            lost=self.life.lost,
            labels=self.options.labels,
            channels=self.channels if self.watch is None else statuses(self.watch.reader),
            folder=self.folder,
        )


def newest_past(runs: Iterable[TrackedRun]) -> list[TrackedRun]:
    """The past runs that people are still shown, the newest end first; the others free their data."""
    past = sorted((run for run in runs if run.past), key=lambda run: run.life.noted or 0.0, reverse=True)
    for run in past[PAST:]:
        run.snapshot = run.history = None
    return past[:PAST]


def identity_of(run: FoundRun) -> str:
    """What stays of a run when its name would change: its folder, its address, or the log file that is a run."""
    if run.remote:
        return run.remote
    lone = bool(run.channels) and not run.channels[0].in_folder
    path = run.channels[0].path if lone else run.root
    return str(path.absolute()).encode("utf-8", "backslashreplace").decode()


def swallowed(run: FoundRun, found: Iterable[FoundRun]) -> bool:
    """Whether the run turned out to be a part of another one (a log appeared in the folder above)."""
    return any(other.root in run.root.parents for other in found)


def statuses(reader: RunReader) -> tuple[ChannelStatus, ...]:
    """How each kind of channel of a run does: the worst of its files, the oldest reading."""
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


def counts_of(watch: WatchedRun) -> Counts:
    """What a run's sources counted."""
    records, errors = Counter[str](), Counter[tuple[str, str]]()
    conflicts = watch.pipeline.assembler.agreement.conflicts
    for source in watch.reader.channels:
        kind, stats = label(source.what), source.stats
        records[kind] += stats.records
        for reason, number in stats.skipped.items():
            errors[kind, reason.value] += number
        if conflicts and source.name in conflicts:
            errors[kind, CONFLICT] += conflicts[source.name]
    if watch.failures:
        errors["pipeline", "internal"] += watch.failures
    return records, errors


def label(what: str) -> str:
    """A kind of channel as a label value."""
    return what.replace(" ", "-")
