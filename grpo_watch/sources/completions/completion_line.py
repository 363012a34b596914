"""Turns one line of ``completions.jsonl`` into a batch's groups or a single row, here or in another process."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import xxhash

from grpo_watch.errors import SourceError
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_table import CompletionTable, read_table
from grpo_watch.sources.completions.summarise import Grouping, summarise_groups
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.files.reading import open_regular


@dataclass(frozen=True, slots=True)
class CompletionLine:
    """What one line gave: a batch's groups, a single row, why it is passed over, or nothing where it is blank.

    ``step`` is -1 where the line names none.
    """

    step: int = -1
    grouping: Grouping | None = None
    row: CompletionTable | None = None
    skip: Skip | None = None
    may_be_eval: bool = False


def read_line(data: bytes, group_size: int | None, examples: KeptTexts) -> CompletionLine:
    """Read one line; a top-level function of plain values, so that a worker process can run it."""
    if not data or data.isspace():
        return CompletionLine()
    row = decode(data)
    if row is None:
        return CompletionLine(skip=Skip.NOT_JSON)
    table = read_table(row) if isinstance(row, dict) else None
    if table is None or table.step is None:
        return CompletionLine(skip=Skip.NOT_A_ROW if table is None else Skip.NO_STEP)
    if table.single:
        return CompletionLine(table.step, row=table)
    try:
        groups = summarise_groups(table.prompts, table.completions, table.rewards, group_size, examples=examples)
    except RecursionError:  # a conversation nested beyond sense
        return CompletionLine(table.step, skip=Skip.BAD_VALUE)
    return CompletionLine(table.step, groups, may_be_eval=not table.per_generation)


class LineSpan(NamedTuple):
    """Where a line lies: another process reads it itself in a fifth of the time that sending it takes."""

    path: Path
    roots: tuple[Path, ...]
    start: int
    size: int
    checksum: int


def piece_of(path: Path, roots: tuple[Path, ...], start: int, data: bytes) -> LineSpan:
    """The place of a line that was read from there."""
    return LineSpan(path, roots, start, len(data), xxhash.xxh3_64_intdigest(data))


def read_piece(piece: LineSpan, group_size: int | None, examples: KeptTexts) -> CompletionLine | None:
    """Read the line that lies there; None where another one does by now (rotated, rewritten)."""
    try:
        descriptor = open_regular(piece.path, piece.roots)
    except (SourceError, OSError):
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), piece.size, piece.start)
    if xxhash.xxh3_64_intdigest(data) != piece.checksum:
        return None
    return read_line(data, group_size, examples)


def decode(data: bytes) -> Any:
    """The value in a JSON line, bare ``NaN`` and broken UTF-8 allowed; None when it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
