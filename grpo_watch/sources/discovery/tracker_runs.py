"""Splits what a tracker keeps in one place into runs: a trackio database, or a folder with nothing but wandb's logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from grpo_watch.errors import SourceError
from grpo_watch.sources.discovery.grouping import FoundPart, RunDraft
from grpo_watch.sources.discovery.sniff import ChannelContent
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.trackers import wandb_log, wandb_record
from grpo_watch.sources.trackers.trackio import run_names

LOOKED_AT = 1 << 20
"""Bytes at the beginning and at the end of a log in which a row of its history is looked for."""
TIME = "_timestamp"
MARK = "#"
"""Between a trackio database and a run's name, in the name of its channel."""


class LogSpan(NamedTuple):
    """When the first and the newest row of a log were written (Unix seconds)."""

    first: float
    last: float


class WandbFolders:
    """Remembers what the logs hold, so that asking again costs one ``stat`` per log."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], LogSpan | None]] = {}

    def runs(self, draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
        """The draft itself, or a draft per id of wandb's if two ids were written at the same time.

        One after the other they are the attempts of one run: a job that is resumed without an id gets another one.
        """
        logs = [part for part in draft.parts if part.what is ChannelContent.WANDB_OFFLINE]
        if len({_id(part) for part in logs}) < 2 or any(not _of_wandb(part) for part in draft.parts):  # noqa: PLR2004
            return [draft]
        spans = {part: span for part in logs if (span := self._span(part.path, roots)) is not None}
        ordered = sorted(spans.items(), key=lambda item: item[1])
        if not any(
            _id(one) != _id(two) and two_at.first < one_at.last for (one, one_at), (two, two_at) in pairwise(ordered)
        ):
            return [draft]
        return list(_per_id(draft, logs))

    def _span(self, path: Path, roots: Sequence[Path]) -> LogSpan | None:
        try:
            info = path.stat()
            state = (info.st_size, info.st_mtime_ns)
            held = self._known.get(path)
            if held is None or held[0] != state:
                held = self._known[path] = (state, span_of(path, roots))
        except (OSError, SourceError):
            return None
        return held[1]


def span_of(path: Path, roots: Sequence[Path]) -> LogSpan | None:
    """When a log was written; None where its beginning or its end has no row.

    Raises:
        SourceError: it lies outside the roots or is no regular file.
        OSError: it can't be read.
    """
    with os.fdopen(open_regular(path, roots), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        tail = max(0, size - LOOKED_AT) // wandb_log.BLOCK * wandb_log.BLOCK

        def read(offset: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, offset)

        first = next((time for start, time in _times(read, 0) if start < LOOKED_AT), None)
        last = max((time for _, time in _times(read, tail)), default=None)
    return LogSpan(first, last) if first is not None and last is not None else None


def _times(read: Callable[[int, int], bytes], start: int) -> Iterator[tuple[int, float]]:
    """Place and time of each row from a block's beginning on."""
    for frame in wandb_log.frames(read, start):
        try:
            record = wandb_record.decode(frame.payload)
        except ValueError:
            continue
        time = record.row.get(TIME) if isinstance(record, wandb_record.WandbHistory) else None
        if isinstance(time, float):
            yield frame.start, time


def _id(part: FoundPart) -> str:
    return part.path.stem.removeprefix("run-")


def _of_wandb(part: FoundPart) -> bool:
    return part.what in {ChannelContent.WANDB_OFFLINE, ChannelContent.WANDB_TABLES} or part.from_wandb


def _per_id(draft: RunDraft, logs: Sequence[FoundPart]) -> Iterator[RunDraft]:
    """Each id with the consoles that lie beside its logs, named like the first of its folders."""
    for _, own in groupby(sorted(logs, key=lambda part: (_id(part), str(part.path))), key=_id):
        parts = list(own)
        folders = [part.folder for part in parts]
        beside = [part for part in draft.parts if part.from_wandb and part.path.parent.parent in folders]
        yield RunDraft(draft.root, [*parts, *beside], lone=folders[0].name)


def per_run(draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
    """A draft per run in its databases; the one run of a database next to other channels is the run of these."""
    databases = [part for part in draft.parts if part.what is ChannelContent.TRACKIO]
    if not databases:
        return [draft]
    others = [part for part in draft.parts if part not in databases]
    named = [replace(part, job=name) for part in databases for name in run_names(part.path, roots)]
    if len(named) == 1 and others:
        return [replace(draft, parts=[*others, *named])]
    rest = [replace(draft, parts=others)] if others else []
    return [*rest, *(replace(draft, parts=[part], lone=part.job or "") for part in named)]


def channel_name(relative: str, part: FoundPart) -> str:
    """The name of a run's channel: the file's and the run's."""
    return f"{relative}{MARK}{part.job}"


def run_name(channel: str) -> str:
    """The run's name in the name of its channel."""
    return channel.partition(f".db{MARK}")[2]
