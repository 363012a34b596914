"""Completion tables: logged to wandb, saved as a file, or printed on a console."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import CompletionSummary, Scalar, Stream
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.dump_formats import is_reward, table_columns
from grpo_watch.sources.base import KeptTexts, Skip, SourceStats
from grpo_watch.sources.completions.completion_folder import (
    BadDumpError,
    CompletionFolder,
    DumpReader,
)
from grpo_watch.sources.completions.summarise import Grouping, digests, summaries, summarise_groups
from grpo_watch.sources.completions.text_reduction import CollectedRows
from grpo_watch.sources.rows.bars import title_step

ADVANTAGE = "advantage"
MOST_STEPS = 10**12
"""Larger step numbers are damaged; no run makes so many."""


class CompletionTable(Struct, frozen=True):
    """The rows of one dump.

    ``single`` marks one row per completion (ms-swift's Ray trainer), ``per_generation`` a schema in which several
    train batches may share a step.
    """

    step: int | None
    prompts: Sequence[object]
    completions: Sequence[object]
    rewards: Mapping[str, Sequence[object]]
    single: bool = False
    per_generation: bool = False


def read_table(row: Mapping[str, object]) -> CompletionTable | None:
    """Return the table in one decoded line of ``completions.jsonl``; None for other lines.

    ms-swift writes four schemas: columns under ``step`` per log event (HF trainer, 3.3 to 4.6), columns with
    ``messages`` per generation (3.1 and 3.2; several may share a step), columns under ``gen_step`` (Megatron), and one
    row per completion (Ray). A column whose length differs from the completions' is left out.
    """
    names = table_columns()
    step, prompts, completions = (_first(row, any_of) for any_of in (names.step, names.prompt, names.completion))
    if step is None or prompts is None or completions is None:
        return None
    if not isinstance(step, list):
        rewards = {reward_name(name): [value] for name, value in row.items() if is_reward(name, [value])}
        return CompletionTable(parse_step(step), [prompts], [completions], rewards, single=True)
    if not isinstance(prompts, list) or not isinstance(completions, list):
        return None
    rewards = {reward_name(name): column for name, column in _columns(row) if is_reward(name, column)}
    last = parse_step(step[-1]) if step else None
    return CompletionTable(last, prompts, completions, rewards, per_generation=names.per_generation in row)


def parse_step(value: object) -> int | None:
    """Return a step written as a number or a text of digits; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:  # noqa: PLR2004
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_STEPS:
        return value
    return None


def reward_name(name: str) -> str:
    """Return the name under which a column is kept: ``advantage`` for both spellings, else its own."""
    return ADVANTAGE if name in {"advantage", "advantages"} else name


def _first(row: Mapping[str, object], names: Sequence[str]) -> object:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _columns(row: Mapping[str, object]) -> list[tuple[str, list[object]]]:
    return [(name, column) for name, column in row.items() if isinstance(column, list)]


def columns_of(data: bytes) -> dict[str, list[object]]:
    """Return the columns of wandb's table file: ``{"columns": [names], "data": [row_numbers]}``, bare NaN allowed.

    Raises:
        ValueError: it is no such table (or not fully written).
    """
    table = decode(data)
    names = table.get("columns") if isinstance(table, dict) else None
    lines = table.get("data") if isinstance(table, dict) else None
    if not isinstance(names, list) or not isinstance(lines, list):
        raise ValueError("no table")  # noqa: TRY004 (content, not a caller's mistake)
    whole = [line for line in lines if isinstance(line, list) and len(line) == len(names)]
    return {str(name): [line[index] for line in whole] for index, name in enumerate(names)}


def summarised(columns: Mapping[str, object], group_size: int | None, examples: KeptTexts) -> Grouping | None:
    """Return the groups in a table's columns, with its step; None if it is no table of completions.

    Raises:
        ValueError: a conversation in it is nested too deeply.
    """
    table = read_table(columns)
    if table is None or table.single:
        return None
    try:
        found = summarise_groups(table.prompts, table.completions, table.rewards, group_size, examples=examples)
    except RecursionError as error:
        raise ValueError(f"the table of step {table.step}: nested too deeply") from error
    return replace(found, step=table.step)


def by_name(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """Turn rows into columns, with None for names that a row lacks."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def decode(data: bytes) -> Any:
    """Return the value of a JSON text, accepting bare ``NaN`` and broken UTF-8; None if it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


EDGE = "\u2502"
HEAVY = "\u2503"
RULES = ("\u250f", "\u2521", "\u251c", "\u2514")
"""First characters of the lines between rows; the last one closes the table."""
BOTTOM = "\u2570"
PROMPT, COMPLETION = "Prompt", "Completion"
MOST_LINES = 200_000
LEAST_OF_GROUP = 2


class PrintedTables:
    """Summarises the tables that TRL 0.16 to 1.16 prints (``print_prompt_completions_sample``).

    TRL may print a sample of the batch: the shown rows of a prompt are its group, and prompts shown once are ignored.
    Scores are left out: they are rounded, and may cover only part of a group. Texts are wrapped to the width of their
    column, equal ones alike.
    """

    def __init__(self, channel: str, segment: int, state: Mapping[str, Scalar], *, examples: KeptTexts) -> None:
        self._examples = examples
        self._logged = LoggedTables(channel, lambda: None, segment, state, examples=examples)
        self._step: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._columns: list[str] = []
        self._rows: list[list[str]] = []
        self._cells: list[list[str]] = []
        self._lines = 0

    @property
    def open(self) -> bool:
        """Whether a panel is open."""
        return self._step is not None

    def state(self) -> dict[str, Scalar]:
        """Return the state to keep across a restart."""
        return self._logged.made()

    def read(self, data: bytes, stats: SourceStats, seen: float | None) -> CompletionSummary | None:
        """Return the summary of the table completed by this line, else None. A bar may precede a panel's title."""
        if self._step is None:
            self._step = title_step(data)
            self._begin()
            return None
        line, self._lines = data.decode("utf-8", "replace").strip(), self._lines + 1
        if self._lines > MOST_LINES or not line.startswith((EDGE, BOTTOM)):
            self._step = None
            return None
        if line.startswith(BOTTOM):
            step, self._step = self._step, None
            found = self._grouping(step)
            return self._logged.once(step, found, stats, seen) if found is not None else None
        self._line(line[1:-1].strip())
        return None

    def _line(self, inner: str) -> None:
        if inner.startswith(HEAVY):
            names = [cell.strip() for cell in inner.strip(HEAVY).split(HEAVY)]
            self._columns = self._columns or names
        elif inner.startswith(RULES):
            self._close()
        elif inner.startswith(EDGE) and len(cells := inner[1:-1].split(EDGE)) == len(self._columns):
            self._cells.append([cell.strip() for cell in cells])

    def _close(self) -> None:
        """Finish the row above a rule: each cell joins its wrapped lines."""
        if self._cells:
            self._rows.append(["\n".join(lines).strip() for lines in zip(*self._cells, strict=True)])
        self._cells = []

    def _grouping(self, step: int) -> Grouping | None:
        """Return the groups of the rows; None for another kind of table, or if no prompt recurs."""
        if self._columns[:2] != [PROMPT, COMPLETION] or not self._rows:
            return None
        rows = CollectedRows()
        rows.extend([row[0] for row in self._rows], [row[1] for row in self._rows])
        members = [places for places in _by_prompt(self._rows).values() if len(places) >= LEAST_OF_GROUP]
        if not members:
            return None
        prompts, digest = digests(rows)
        groups = summaries(rows, members, {}, examples=self._examples)
        return Grouping(groups, "", digest, prompts, by_prompt=True, step=step)


def _by_prompt(rows: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        found.setdefault(row[0], []).append(place)
    return found


FILE = re.compile(r"completions_(\d{1,12})_[0-9a-f]{6,64}\.table\.json")
"""wandb's file name of tables that TRL and ms-swift log as ``completions``; the number is wandb's own step."""
LARGEST = 32 << 20


class WandbTablesSource(CompletionFolder):
    """Reads the tables by wandb's step, and reports each under the step in its column.

    A second, different table under one step comes from an evaluation.
    """

    def _step_of(self, name: str) -> int | None:
        found = FILE.fullmatch(name)
        return int(found[1]) if found is not None else None

    def _reader(self, path: Path) -> DumpReader:
        del path
        return read_wandb_table

    def _stream(self, step: int, grouping: Grouping) -> Stream:
        del grouping
        return Stream.EVAL if step == self._newest else Stream.TRAIN


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds such a table."""
    try:
        return any(FILE.fullmatch(path.name) for path in folder.iterdir())
    except OSError:
        return False


def read_wandb_table(file: BinaryIO, group_size: int | None, examples: KeptTexts) -> Grouping:
    """Return the groups in a table's file.

    Raises:
        BadDumpError: it is too large, half-written, or no such table.
    """
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadDumpError(f"more than {LARGEST >> 20} MB", Skip.TOO_LONG)
    try:
        found = summarised(columns_of(data), group_size, examples)
    except ValueError as error:
        raise BadDumpError(str(error)) from error
    if found is None or found.step is None:
        raise BadDumpError("no table with the columns step, prompt and completion", Skip.NOT_A_ROW)
    return found


class LoggedTables:
    """Summarises tables with the columns ``step``, ``prompt``, ``completion``, one per reward function, ``advantage``.

    TRL logs its current batch with every log event, even without a new one: a table that repeats the previous one is a
    duplicate. A second, different one under the same step comes from an evaluation.

    Args:
        channel: the source's name.
        group_size: G as configured, asked at each table; None: derived from the prompts.
        segment: order among the files of this kind.
        state: of an earlier reader (see ``state``).
        examples: how much of the texts summaries carry.
    """

    def __init__(
        self,
        channel: str,
        group_size: Callable[[], int | None],
        segment: int = 0,
        state: Mapping[str, Scalar] | None = None,
        *,
        examples: KeptTexts = KeptTexts.EXCERPT,
    ) -> None:
        self._channel, self._segment, self._examples = channel, segment, examples
        self._group_size = group_size
        self._digest = str((state or {}).get("digest") or "")
        self._step = row_numbers.whole((state or {}).get("table"))
        self._saved: tuple[str, int | None] = (self._digest, self._step)
        self._made: deque[tuple[str, int | None]] = deque()

    def given(self) -> None:
        """Note that the oldest summary made but not yet emitted is emitted now."""
        self._saved = self._made.popleft()

    def state(self) -> dict[str, Scalar]:
        """Return the state to keep across a restart, as of the last emitted summary."""
        return {"digest": self._saved[0], "table": self._saved[1]}

    def made(self) -> dict[str, Scalar]:
        """Return the state to keep as of the last summary made."""
        return {"digest": self._digest, "table": self._step}

    def summary(
        self, columns: Mapping[str, Sequence[object]], stats: SourceStats, seen: float | None, step: int | None = None
    ) -> CompletionSummary | None:
        """Return the summary of a table, given by columns; None for other tables, and for one already seen.

        Args:
            columns: the table.
            stats: counts skipped tables.
            seen: the driver's clock.
            step: the optimizer step, for tables without such a column.
        """
        try:
            complete = {"step": [step] if step is not None else None, **columns}
            table = summarised(complete, self._group_size(), self._examples)
        except ValueError as error:
            stats.skip(Skip.BAD_VALUE, str(error))
            return None
        return None if table is None or table.step is None else self.once(table.step, table, stats, seen)

    def once(
        self, step: int, grouping: Grouping, stats: SourceStats, seen: float | None, *, may_be_eval: bool = True
    ) -> CompletionSummary | None:
        """Return the summary of a table's groups; None if it repeats the previous table."""
        if grouping.digest and grouping.digest == self._digest:
            stats.skip(Skip.DUPLICATE)
            return None
        stream = Stream.EVAL if may_be_eval and step == self._step else Stream.TRAIN
        self._digest, self._step = grouping.digest, step
        self._made.append((self._digest, self._step))
        return grouping.summary(self._channel, step, stream, self._segment, seen)
