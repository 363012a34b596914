"""Reads completions that are appended to one JSON-lines file, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_watch.engine.records import CompletionSummary, Cursor, Item
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_table import (
    CompletionTable,
    LoggedTables,
    by_name,
    decode,
    read_table,
    summarised,
)
from grpo_watch.sources.completions.summarise import Grouping, group
from grpo_watch.sources.completions.text_reduction import CollectedRows
from grpo_watch.sources.files.tail import SplitLine
from grpo_watch.sources.rows.jsonl import TailSource

MAX_LINE = 32 << 20
"""Most bytes of a line; 512 completions of 8,000 tokens are about 16 MB."""
CHUNK = 512 << 10
"""Bytes read at once. A line is a whole batch, often megabytes; joining pieces that fit into the processor's cache
takes half the time of pieces of that size."""
MAX_HELD = 65_536
"""Most held rows of one step if each completion is a line of its own."""


@dataclass(slots=True)
class _Held:
    """Single rows of one step, with reduced texts, and the cursor before the first of them."""

    step: int
    before: Cursor
    seen: float | None
    rows: CollectedRows = field(default_factory=CollectedRows)
    rewards: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, table: CompletionTable) -> None:
        self.rows.add(table.prompts[0], table.completions[0])
        self.rewards.append({name: values[0] for name, values in table.rewards.items()})


class CompletionsJsonlSource(TailSource):
    """Reads the four schemas of ms-swift (see ``completion_table.read_table``).

    A table that repeats the previous one (ms-swift does not clear its buffer: the copy at the end of training, steps
    that reuse a generation) is counted as a duplicate and not emitted. ms-swift writes the completions of an evaluation
    into the same file without marking them: a second, different table under the same step is taken for evaluation, as a
    log event writes only one table of training per step. An evaluation logged under its own step can't be distinguished
    from training.
    """

    LONGEST, CHUNK = MAX_LINE, CHUNK

    def _begin(self, **_: Any) -> None:
        super()._begin()
        self._read_to = self._start or self._tail.cursor(self.name)
        known = {"digest": self._known.get("digest"), "table": self._known.get("step")}
        self._tables = LoggedTables(self.name, self._group_size, self.segment, known, examples=self._examples)
        self._held: _Held | None = None

    def _rest(self) -> Iterator[Item]:
        yield from super()._rest()
        yield from self._release()

    def cursor(self) -> Cursor:
        """Where reading continues: before the held rows, if any."""
        at = self._held.before if self._held is not None else self._read_to
        made = self._tables.made()
        return replace(at, state={"digest": made["digest"], "step": made["table"]})

    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        for line in lines:
            before, self._read_to = self._read_to, self._tail.cursor(self.name)
            where = f"line at byte {line.start}"
            if line.too_long:
                self.stats.skip(Skip.TOO_LONG, f"{where}: longer than {MAX_LINE >> 20} MiB")
            else:
                yield from self._read_line(line.data, where, before, seen)

    def _read_line(self, data: bytes, where: str, before: Cursor, seen: float | None) -> Iterator[Item]:
        if not data or data.isspace():
            return
        row = decode(data)
        table = read_table(row) if isinstance(row, dict) else None
        if table is None or table.step is None:
            no_row = Skip.NOT_JSON if row is None else Skip.NOT_A_ROW
            self.stats.skip(no_row if table is None else Skip.NO_STEP, where)
        elif table.single:
            yield from self._hold(table, table.step, before, seen)
        else:  # a whole batch: the single rows before it are complete
            yield from self._release()
            try:
                found = summarised(row, self._group_size(), self._examples)
            except ValueError:
                self.stats.skip(Skip.BAD_VALUE, f"step {table.step}: nested too deeply")
                return
            if found is not None:
                yield from self._emit(found, table.step, seen, may_be_eval=not table.per_generation)

    def _hold(self, table: CompletionTable, step: int, before: Cursor, seen: float | None) -> Iterator[Item]:
        done: _Held | None = None
        if self._held is None or self._held.step != step or len(self._held.rows) >= MAX_HELD:
            done, self._held = self._held, _Held(step, before, seen)
        try:
            self._held.add(table)
        except RecursionError:
            self.stats.skip(Skip.BAD_VALUE, f"step {step}: nested too deeply")
        yield from self._flush(done)

    def _release(self) -> Iterator[Item]:
        """Yield the items of the held single rows."""
        held, self._held = self._held, None
        yield from self._flush(held)

    def _flush(self, held: _Held | None) -> Iterator[Item]:
        if held is not None:
            grouping = group(held.rows, by_name(held.rewards), self._group_size(), examples=self._examples)
            yield from self._emit(grouping, held.step, held.seen)

    def _emit(
        self, grouping: Grouping, step: int, seen: float | None, *, may_be_eval: bool = False
    ) -> Iterator[CompletionSummary]:
        summary = self._tables.once(step, grouping, self.stats, seen, may_be_eval=may_be_eval)
        yield from () if summary is None else (summary,)
