"""Splits a table or a JSON document that holds several runs into a run each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.sources.discovery.grouping import FoundPart, RunDraft
from grpo_watch.sources.discovery.sniff import ChannelContent
from grpo_watch.sources.files.reading import real_path
from grpo_watch.sources.rows.decoded import parts_in
from grpo_watch.sources.rows.document import whole_text
from grpo_watch.sources.rows.layouts import runs_of
from grpo_watch.sources.rows.pieces import LARGEST, pieces_in
from grpo_watch.sources.tables.text_table import LOOKED_AT, arms_of

MARK = "#"
FEWEST = 2
"""Files of one run that are put together."""


def per_arm(draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
    """A draft for each run in the tables and documents of a draft; what holds one run stays where it is."""
    split, parts = _joined(draft, roots)
    rest: list[FoundPart] = []
    for part in parts:
        names = _names(part, roots)
        rest += [] if names else [part]
        for name in names:
            lone = f"{part.path.name}{MARK}{name}"
            split.append(RunDraft(draft.root, [replace(part, job=name)], lone=lone))
    if not split:
        return [replace(draft, parts=rest)] if rest or not draft.parts else []
    return [*([replace(draft, parts=rest)] if rest else []), *split]


def _joined(draft: RunDraft, roots: Sequence[Path]) -> tuple[list[RunDraft], list[FoundPart]]:
    """Files that hold a step or a metric each as one channel of each run, and the other parts.

    A table of one metric that has no other beside it stays a table; one file of one step is no run.
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
    """The runs in a file of one step or metric, each with the step or the metric."""
    table = part.what is ChannelContent.TABLE and part.path.suffix in {".csv", ".tsv"} and part.job is None
    if not table and part.what is not ChannelContent.ROW_PIECES:
        return []
    with suppress(OSError, SourceError):
        text = whole_text(part.path, (*roots, real_path(part.path).parent), LARGEST)
        pieces = pieces_in(part.path, text) if text is not None else {}
        names = {run: {key for row in rows for key in row} - {"step"} for run, rows in pieces.items() if rows}
        return [(run, keys.pop() if len(keys) == 1 else str(part.path)) for run, keys in names.items()]
    return []


def arm_name(channel: str) -> str:
    """The run's name in the name of its channel; empty for the only one."""
    return channel.partition(MARK)[2]


def channel_name(relative: str, part: FoundPart) -> str:
    """The name of a run's channel: the file's and the run's."""
    return f"{relative}{MARK}{part.job}" if part.job else relative


def _names(part: FoundPart, roots: Sequence[Path]) -> tuple[str, ...]:
    document = part.what is ChannelContent.JSON_DOCUMENT
    table = part.what is ChannelContent.TABLE and part.path.suffix in {".csv", ".tsv"}
    if part.job is not None or not (document or table):
        return ()
    with suppress(OSError, SourceError):
        text = whole_text(part.path, (*roots, real_path(part.path).parent), LOOKED_AT)
        if text is not None:
            return runs_of(parts_in(text, part.path.name)) if document else arms_of(text).names
    return ()
