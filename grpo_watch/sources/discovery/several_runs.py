"""Splits files and folders with several runs (tables, documents, databases, a tracker's folders) by run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from math import isclose
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import STEPS
from grpo_watch.sources.discovery.channels import TRACKERS, ChannelContent
from grpo_watch.sources.discovery.grouping import FoundPart, RunDraft, job_name
from grpo_watch.sources.files.decompress import beginning
from grpo_watch.sources.files.reading import open_regular, real_path
from grpo_watch.sources.rows.document import parts_in, whole_text
from grpo_watch.sources.rows.html_tables import HTML, TableParser
from grpo_watch.sources.rows.jsonl import decode, runs_in
from grpo_watch.sources.rows.layouts import MARK, NAMES_RUN, RUN_COLUMNS, runs_of
from grpo_watch.sources.rows.pieces import LARGEST, pieces_in
from grpo_watch.sources.rows.tables import LOOKED_AT, arms_of, grid, keys_of, row_of
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.database import DatabaseSource
from grpo_watch.sources.trackers.tracker_source import BlockLog, LoggedRun

SPAN_LOOKED_AT = 1 << 20
"""Bytes at the beginning and at the end of a log that are searched for a row of its history."""
FIRST_LOOKED_AT = 1 << 16
"""Bytes at the beginning in which a log of several runs names one; only then its end is read."""
DATABASES = frozenset(what for what, one in TRACKERS if issubclass(one, DatabaseSource) and ".db" in one.SUFFIXES)
"""Files that hold several runs."""
BLOCK_LOGS = {what: one for what, one in TRACKERS if issubclass(one, BlockLog)}


class LogSpan(NamedTuple):
    """When the first and the newest row of a log were written (Unix seconds)."""

    first: float
    last: float


class LogFolders:
    """Remembers the time spans of logs, so that another look costs one ``stat`` per log."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Stamp, LogSpan | None]] = {}

    def runs(self, draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
        """Return the draft itself, or a draft per tracker id if two ids were written at the same time.

        Successive ids are attempts of one run: a job resumed without an id gets a new one.
        """
        logs = [part for part in draft.parts if part.what in BLOCK_LOGS]
        own = [part for part in draft.parts if part.what is ChannelContent.WANDB_TABLES or part.from_wandb]
        others = [part for part in draft.parts if part not in logs and part not in own]
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
    """Return when a log was written; None if its beginning or its end has no row.

    Raises:
        SourceError: it lies outside the roots or is no regular file.
        OSError: it can't be read.
    """
    with os.fdopen(open_regular(path, roots), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        tail = max(0, size - SPAN_LOOKED_AT) // framing.BLOCK * framing.BLOCK

        def read(offset: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, offset)

        first = next((time for start, time in _times(tracker, read, 0) if start < SPAN_LOOKED_AT), None)
        last = max((time for _, time in _times(tracker, read, tail)), default=None)
    return LogSpan(first, last) if first is not None and last is not None else None


def _times(tracker: type[BlockLog], read: framing.Read, start: int) -> Iterator[tuple[int, float]]:
    """Yield place and time of each row from a block's beginning on."""
    for frame in tracker.frames(read, start):
        try:
            time = tracker.time_of(tracker.decode(frame.payload))
        except ValueError:
            continue
        if time is not None:
            yield frame.start, time


def _id(part: FoundPart) -> str:
    if part.what is ChannelContent.SWANLAB:  # before 0.8 only its folder's name has the id
        return part.folder.name.rpartition("-")[2]
    return part.path.stem.removeprefix("run-")


def _per_id(draft: RunDraft, logs: Sequence[FoundPart]) -> Iterator[RunDraft]:
    """Yield a draft per id with the consoles beside its logs, named like the first of its folders."""
    for _, own in groupby(sorted(logs, key=lambda part: (_id(part), str(part.path))), key=_id):
        parts = list(own)
        folders = [part.folder for part in parts]
        beside = [part for part in draft.parts if part.from_wandb and part.path.parent.parent in folders]
        yield RunDraft(draft.root, [*parts, *beside], lone=folders[0].name)


def per_run(draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
    """Return a draft per run in its databases; runs of single-run databases join the channels next to them."""
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
    return part.what.tracker.runs(part.path, roots) if part.what.tracker is not None else []


FEWEST = 2
"""Fewest files of one run that are joined."""
OF_ANY = frozenset(
    {"loss", "eval_loss", "epoch", "grad_norm", "learning_rate", "mean_token_accuracy", "entropy", "num_tokens", *STEPS}
)
"""Metrics that tables of supervised fine-tuning show."""
ROUNDING = 1e-3


class _Shown(Struct):
    """A table's metrics, whether one is a reward, and the loss by step."""

    keys: set[str] = field(default_factory=set)
    rewarded: bool = False
    losses: dict[int, float] = field(default_factory=dict)

    @property
    def supervised(self) -> bool:
        """Whether its columns are those of supervised fine-tuning."""
        return bool(self.losses) and self.keys <= OF_ANY

    def contradicts(self, other: _Shown) -> bool:
        """Whether both show a loss, but different ones."""
        shared = self.losses.keys() & other.losses.keys()
        same = bool(shared) and all(
            isclose(self.losses[step], other.losses[step], rel_tol=ROUNDING, abs_tol=ROUNDING) for step in shared
        )
        return bool(other.losses) and not same


def without_others(draft: RunDraft, roots: Sequence[Path]) -> RunDraft:
    """Drop tables with a loss and no reward next to a table with both, and another loss.

    Tables of one metric each are kept together, and so are copies of a table. A notebook cell's printed text goes with
    its table. Dropped tables are listed in the ``problem`` of a remaining one.
    """
    tables = [part for part in draft.parts if part.what is ChannelContent.TABLE and part.job is None]
    if len(tables) < 2:  # noqa: PLR2004 (a table next to another)
        return draft
    shown = {part: _shown(part.path, roots) for part in tables}
    rewarded = [part for part in tables if shown[part].rewarded]
    aside = [
        part
        for part in tables
        if shown[part].supervised and any(shown[part].contradicts(shown[other]) for other in rewarded)
    ]
    return _without(draft, aside, rewarded[0]) if aside else draft


def _without(draft: RunDraft, aside: Sequence[FoundPart], kept: FoundPart) -> RunDraft:
    jobs = {job_name(part.path.stem) for part in aside}
    gone = [
        *aside,
        *(part for part in draft.parts if part.what is ChannelContent.CONSOLE and job_name(part.path.name) in jobs),
    ]
    names = ", ".join(sorted(part.path.name for part in gone))
    problem = f"of another training, with a loss and no reward: {names} left aside"
    parts = [replace(part, problem=problem) if part is kept else part for part in draft.parts if part not in gone]
    return replace(draft, parts=parts)


def _shown(path: Path, roots: Sequence[Path]) -> _Shown:
    shown = _Shown()
    with suppress(OSError, SourceError):
        text = _text(path, roots, LOOKED_AT) or ""
        html = path.name.endswith(HTML)
        tables = [(one.header, one.lines) for one in TableParser(text).tables] if html else [grid(text)]
        for header, lines in tables:
            keys = keys_of(header, {})
            shown.keys |= set(keys)
            shown.rewarded |= any(guess(key) == "reward_mean" for key in keys)
            rows = (row_of(keys, cells) for cells in lines)
            shown.losses |= {
                row.step: loss for row in rows if row.step is not None and (loss := row.values.get("loss")) is not None
            }
    return shown


Named: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"
"""The names of the runs in a file, and the columns with these names."""


def per_arm(draft: RunDraft, roots: Sequence[Path], known: dict[Path, tuple[int, Named]]) -> list[RunDraft]:
    """Return a draft for each run in a draft's tables and documents; files with one run stay where they are.

    ``known`` caches the results for files larger than the inspected part, with their inode.
    """
    split, parts = _joined(draft, roots)
    rest: list[FoundPart] = []
    for part in parts:
        names, named_by = _known_names(part, roots, known)
        rest += [] if names else [part]
        for name in names:
            lone = f"{part.path.name}{MARK}{name}"
            split.append(RunDraft(draft.root, [replace(part, job=name, named_by=named_by)], lone=lone))
    if not split:
        return [replace(draft, parts=rest)] if rest or not draft.parts else []
    return [*([replace(draft, parts=rest)] if rest else []), *split]


def _joined(draft: RunDraft, roots: Sequence[Path]) -> tuple[list[RunDraft], list[FoundPart]]:
    """Join files of one step or metric into one channel per run; returns the drafts and the other parts.

    A lone table of one metric stays a table; a single file of one step is no run.
    """
    found: dict[str, dict[str, list[FoundPart]]] = {}
    for part in draft.parts:
        for run, metric in _pieces(part, roots):
            found.setdefault(run, {}).setdefault(metric, []).append(part)
    runs = {run: metrics for run, metrics in found.items() if len(metrics) >= FEWEST}
    if any(len(parts) > 1 for metrics in runs.values() for parts in metrics.values()):
        runs = {}
    taken = {part for metrics in runs.values() for parts in metrics.values() for part in parts}
    rest = [part for part in draft.parts if part not in taken and part.what is not ChannelContent.ROW_PIECES]
    if not runs:
        return [], rest
    folder = min((part.folder for part in taken), key=lambda path: len(path.parts))
    folder = folder if len({part.folder for part in taken}) == 1 else folder.parent
    if len(runs) == 1:
        run = next(iter(runs))
        return [], [*rest, FoundPart(ChannelContent.ROW_PIECES, folder, folder, job=run or None)]
    split = [FoundPart(ChannelContent.ROW_PIECES, folder, folder, job=run) for run in runs]
    return [RunDraft(draft.root, [part], lone=f"{folder.name}{MARK}{part.job}") for part in split], rest


def _pieces(part: FoundPart, roots: Sequence[Path]) -> list[tuple[str, str]]:
    """Return the runs in a file of one step or metric, each with the step or the metric."""
    table = part.what is ChannelContent.TABLE and part.path.suffix in {".csv", ".tsv"} and part.job is None
    if not table and part.what is not ChannelContent.ROW_PIECES:
        return []
    with suppress(OSError, SourceError):
        text = _text(part.path, roots, LARGEST)
        pieces = pieces_in(part.path, text) if text is not None else {}
        names = {run: {key for row in rows for key in row} - {"step"} for run, rows in pieces.items() if rows}
        return [(run, keys.pop() if len(keys) == 1 else str(part.path)) for run, keys in names.items()]
    return []


def _known_names(part: FoundPart, roots: Sequence[Path], known: dict[Path, tuple[int, Named]]) -> Named:
    """Return ``_names``, cached once the file has outgrown the inspected part."""
    with suppress(OSError):
        status = part.path.stat()
        if part.job is not None or status.st_size < LOOKED_AT:
            return _names(part, roots)
        if part.path not in known or known[part.path][0] != status.st_ino:
            known[part.path] = status.st_ino, _names(part, roots)
        return known[part.path][1]
    return (), ()


def _names(part: FoundPart, roots: Sequence[Path]) -> Named:
    """Return the runs in a file with several, and the columns that name them."""
    document = part.what is ChannelContent.JSON_DOCUMENT
    table = part.what is ChannelContent.TABLE and part.path.suffix in {".csv", ".tsv"}
    lines = part.what is ChannelContent.JSONL
    if part.job is not None or not (document or table or lines):
        return (), ()
    with suppress(OSError, SourceError):
        if document:
            text = _text(part.path, roots, LOOKED_AT)
            return (runs_of(parts_in(text, part.path.name)) if text is not None else ()), ()
        if table:
            arms = arms_of(_first_lines(part.path, roots))
            return arms.names, arms.named_by
        if _may_hold_runs(part.path, roots):
            named = runs_in(_first_lines(part.path, roots))
            return tuple(named.rows), named.columns
    return (), ()


def _may_hold_runs(path: Path, roots: Sequence[Path]) -> bool:
    """Whether the first and the last rows of a log's inspected beginning name different runs."""
    with os.fdopen(open_regular(path, (*roots, real_path(path).parent)), "rb") as file:
        first = file.read(FIRST_LOOKED_AT)
        if not NAMES_RUN.search(first):
            return False
        size = min(LOOKED_AT, os.fstat(file.fileno()).st_size)
        file.seek(max(len(first), size - SPAN_LOOKED_AT))
        last = file.read(max(0, size - file.tell()))
        rows = filter(None, map(decode, (first + b"\n" + last).splitlines()))
        names = [{key: str(value) for key, value in row.items() if key.strip().lower() in RUN_COLUMNS} for row in rows]
        return len({tuple(one.values()) for one in names if one}) > 1


def _first_lines(path: Path, roots: Sequence[Path]) -> str:
    """Return the whole lines of a file's beginning that are searched for runs; later growth changes nothing."""
    data = beginning(path, (*roots, real_path(path).parent), LOOKED_AT)
    data = data[: data.rfind(b"\n") + 1] if len(data) == LOOKED_AT else data
    return data.decode("utf-8", "replace")


def _text(path: Path, roots: Sequence[Path], largest: int) -> str | None:
    return whole_text(path, (*roots, real_path(path).parent), largest)
