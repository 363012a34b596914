"""What is known of runs from outside: who they are, how their channels do, and what these counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from grpo_watch.daemon.run_reader import RunReader
from grpo_watch.metrics.daemon_snapshot import ChannelStatus
from grpo_watch.pipeline.secondary_channels import CONFLICT
from grpo_watch.sources.discovery.discover import FoundRun

Counts: TypeAlias = tuple[Counter[str], Counter[tuple[str, str]]]
"""Records by kind of channel, and errors by kind and reason."""
NOTHING: Counts = (Counter(), Counter())


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


def counts_of(reader: RunReader, conflicts: Mapping[str, int], failures: int) -> Counts:
    """What a run's sources counted; ``conflicts`` between channels by source, ``failures`` to judge an item."""
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
