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
from grpo_watch.sources.tables.runs_in_table import LOOKED_AT, arms_of

MARK = "#"


def per_arm(draft: RunDraft, roots: Sequence[Path]) -> list[RunDraft]:
    """A draft for each run in the tables and documents of a draft; what holds one run stays where it is."""
    split: list[RunDraft] = []
    rest: list[FoundPart] = []
    for part in draft.parts:
        names = _names(part, roots)
        rest += [] if names else [part]
        for name in names:
            lone = f"{part.path.name}{MARK}{name}"
            split.append(RunDraft(draft.root, [replace(part, job=name)], lone=lone))
    if not split:
        return [draft]
    return [*([replace(draft, parts=rest)] if rest else []), *split]


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
