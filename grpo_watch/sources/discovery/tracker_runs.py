"""Splits what a tracker keeps in one place into runs: a database, or a folder with only wandb's or SwanLab's logs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.errors import SourceError
from grpo_watch.sources.discovery.grouping import FoundPart, RunDraft
from grpo_watch.sources.discovery.sniff import ChannelContent
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.swanlab import SwanlabSource
from grpo_watch.sources.trackers.tracker_files import reader
from grpo_watch.sources.trackers.tracker_source import BlockLog, LoggedRun
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource

LOOKED_AT = 1 << 20
"""Bytes at the beginning and at the end of a log in which a row of its history is looked for."""
RUN = re.compile(r"\.(?:db|sqlite)#(.+)", re.DOTALL)
DATABASES = frozenset({ChannelContent.TRACKIO, ChannelContent.MLFLOW})
"""Files that hold several runs."""
BLOCK_LOGS: Mapping[ChannelContent, type[BlockLog]] = {
    ChannelContent.WANDB_OFFLINE: WandbOfflineSource,
    ChannelContent.SWANLAB: SwanlabSource,
}


class LogSpan(NamedTuple):
    """When the first and the newest row of a log were written (Unix seconds)."""

    first: float
    last: float


class LogFolders:
    """Remembers what the logs hold, so that asking again costs one ``stat`` per log."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Stamp, LogSpan | None]] = {}

    def runs(self, draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
        """The draft itself, or a draft per id of the tracker's if two ids were written at the same time.

        One after the other they are the attempts of one run: a job that is resumed without an id gets another one.
        """
        logs = [part for part in draft.parts if part.what in BLOCK_LOGS]
        others = [part for part in draft.parts if part not in logs and not _of_wandb(part)]
        if len({_id(part) for part in logs}) < 2 or len({part.what for part in logs}) > 1 or others:  # noqa: PLR2004
            return [draft]
        spans = {part: span for part in logs if (span := self._span(part, roots)) is not None}
        ordered = sorted(spans.items(), key=lambda item: item[1])
        if not any(
            _id(one) != _id(two) and two_at.first < one_at.last for (one, one_at), (two, two_at) in pairwise(ordered)
        ):
            return [draft]
        return list(_per_id(draft, logs))

    def _span(self, part: FoundPart, roots: Sequence[Path]) -> LogSpan | None:
        path, state = part.path, stamp(part.path)
        held = self._known.get(path)
        if state is not None and (held is None or held[0] != state):
            with suppress(OSError, SourceError):
                held = self._known[path] = (state, span_of(path, BLOCK_LOGS[part.what], roots))
        return held[1] if held is not None else None


def span_of(path: Path, tracker: type[BlockLog], roots: Sequence[Path]) -> LogSpan | None:
    """When a log was written; None where its beginning or its end has no row.

    Raises:
        SourceError: it lies outside the roots or is no regular file.
        OSError: it can't be read.
    """
    with os.fdopen(open_regular(path, roots), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        tail = max(0, size - LOOKED_AT) // framing.BLOCK * framing.BLOCK

        def read(offset: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, offset)

        first = next((time for start, time in _times(tracker, read, 0) if start < LOOKED_AT), None)
        last = max((time for _, time in _times(tracker, read, tail)), default=None)
    return LogSpan(first, last) if first is not None and last is not None else None


def _times(tracker: type[BlockLog], read: framing.Read, start: int) -> Iterator[tuple[int, float]]:
    """Place and time of each row from a block's beginning on."""
    for frame in tracker.frames(read, start):
        try:
            time = tracker.time_of(tracker.decode(frame.payload))
        except ValueError:
            continue
        if time is not None:
            yield frame.start, time


def _id(part: FoundPart) -> str:
    if part.what is ChannelContent.SWANLAB:  # before 0.8 only its folder's name has it
        return part.folder.name.rpartition("-")[2]
    return part.path.stem.removeprefix("run-")


def _of_wandb(part: FoundPart) -> bool:
    return part.what is ChannelContent.WANDB_TABLES or part.from_wandb


def _per_id(draft: RunDraft, logs: Sequence[FoundPart]) -> Iterator[RunDraft]:
    """Each id with the consoles that lie beside its logs, named like the first of its folders."""
    for _, own in groupby(sorted(logs, key=lambda part: (_id(part), str(part.path))), key=_id):
        parts = list(own)
        folders = [part.folder for part in parts]
        beside = [part for part in draft.parts if part.from_wandb and part.path.parent.parent in folders]
        yield RunDraft(draft.root, [*parts, *beside], lone=folders[0].name)


def per_run(draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
    """A draft per run in its databases; the only runs of databases next to other channels are the run of these."""
    databases = [part for part in draft.parts if part.what in DATABASES]
    if not databases:
        return [draft]
    others = [part for part in draft.parts if part not in databases]
    held = {part: _runs(part, roots) for part in databases}
    named = [(replace(part, job=run.key), run.shown) for part, runs in held.items() for run in runs]
    if others and named and all(len(runs) <= 1 for runs in held.values()):
        return [replace(draft, parts=[*others, *(part for part, _ in named)])]
    rest = [replace(draft, parts=others)] if others else []
    return [*rest, *(replace(draft, parts=[part], lone=shown) for part, shown in named)]


def _runs(part: FoundPart, roots: Sequence[Path]) -> list[LoggedRun]:
    tracker = reader(part.what.value)
    return tracker.runs(part.path, roots) if tracker is not None else []


def run_name(channel: str) -> str:
    """The run's name in the name of its channel."""
    found = RUN.search(channel)
    return found[1] if found is not None else ""
