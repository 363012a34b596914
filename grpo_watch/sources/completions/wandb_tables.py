"""Turns the tables of completions in a folder of wandb's (``files/media/table``) into summaries, without its log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from grpo_watch.engine.records import CompletionSummary, Stream
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_folder import CompletionFolder, Reading
from grpo_watch.sources.completions.completion_table import read_table
from grpo_watch.sources.completions.dump_result import BadDumpError, DumpResult, read_unchanged
from grpo_watch.sources.completions.summarise import Grouping, summarise_groups
from grpo_watch.sources.completions.table_file import columns_of
from grpo_watch.sources.excerpt_privacy import KeptTexts

FILE = re.compile(r"completions_(\d{1,12})_[0-9a-f]{6,64}\.table\.json")
"""wandb's name of a table that TRL and ms-swift log as ``completions``; the number is wandb's own step."""
LARGEST = 32 << 20


@dataclass(frozen=True, slots=True)
class TableGrouping(Grouping):
    """The groups of a table with the optimizer step that its own column gives."""

    step: int = 0


class WandbTablesSource(CompletionFolder):
    """Reads the tables by wandb's step, and reports each under the step in its column.

    A second, different table under one step comes from an evaluation.
    """

    def _step_of(self, name: str) -> int | None:
        found = FILE.fullmatch(name)
        return int(found[1]) if found is not None else None

    def _reading(self, path: Path, group_size: int | None) -> Reading:
        return read_table_file, (path, self._roots, group_size, self._examples)

    def _stream(self, step: int, grouping: Grouping) -> Stream:
        del grouping
        return Stream.EVAL if step == self._newest else Stream.TRAIN

    def _emit(self, step: int, grouping: Grouping, size: int, seen: float | None) -> Iterator[CompletionSummary]:
        own = grouping.step if isinstance(grouping, TableGrouping) else step
        return super()._emit(own, grouping, size, seen)


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds such a table."""
    try:
        return any(FILE.fullmatch(path.name) for path in folder.iterdir())
    except OSError:
        return False


def read_table_file(path: Path, roots: Sequence[Path], group_size: int | None, examples: KeptTexts) -> DumpResult:
    """Read one table; a top-level function of plain values, so that a worker process can run it. Never raises."""
    return read_unchanged(path, roots, lambda file: _read(file, group_size, examples=examples))


def _read(file: BinaryIO, group_size: int | None, *, examples: KeptTexts) -> TableGrouping:
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadDumpError(f"more than {LARGEST >> 20} MB", Skip.TOO_LONG)
    try:
        table = read_table(columns_of(data))
        if table is None or table.step is None or table.single:
            raise BadDumpError("no table with the columns step, prompt and completion", Skip.NOT_A_ROW)
        made = summarise_groups(table.prompts, table.completions, table.rewards, group_size, examples=examples)
    except (ValueError, RecursionError) as error:
        raise BadDumpError(str(error) or "nested too deeply") from error
    return TableGrouping(made.groups, made.reason, made.digest, made.prompts, made.odd, made.by_prompt, table.step)
