"""Turns a JSON-lines metric log (ms-swift's ``logging.jsonl`` and its like) into raw rows and end markers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RawRow, RunEvent, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.guessing import names_updates
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.tail import SplitLine, Tail
from grpo_watch.sources.rows.line_source import LineSource
from grpo_watch.sources.tables.table_rows import step_key

REWARD = "reward"
"""A row that has it says by itself what it is."""
NAN_LINE = 1 << 20
"""Longest line that is read again for bare NaN and Infinity, which strict JSON has not."""

_decode = msgspec.json.Decoder().decode


class JsonlSource(LineSource):
    """Reads one JSON-lines file: a row per line, the step in the row.

    Understands ms-swift (``"global_step/max_steps": "33/80"``), its Megatron backend (``"iteration": "7/2174"``),
    LLaMA-Factory (``current_steps``) and plain ``step``/``global_step``; lines without a step are rows only when they
    hold training metrics. verl's file logger wraps its rows (``{"step": 7, "data": {…}}``), starts its file over when
    a run resumes, and writes NaN and infinities as null, which is read as NaN.

    ``train_runtime`` means that training finished; a summary line without it, that it crashed. ``columns`` maps the
    keys of a file of unknown origin (canonical name or ``step`` → key).
    """

    def __init__(
        self,
        name: str,
        path: Path,
        roots: Sequence[Path],
        segment: int = 0,
        cursor: Cursor | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, Tail(path, roots, cursor), segment, cursor)
        self._own = {column: name for name, column in (columns or {}).items()}
        state = cursor.state if cursor is not None else {}
        self._last = row_numbers.whole(state.get("step"))
        self._finished = state.get("finished") is True
        traces = [table.traces for table in frameworks().values()]
        self._summaries = tuple(each.crash_summary.encode() for each in traces if each.crash_summary)

    def _remembered(self) -> dict[str, Scalar]:
        return {"step": self._last, "finished": self._finished}

    def _forget(self) -> None:
        self._last, self._finished = None, False

    def _item(self, line: SplitLine, seen: float | None) -> Item | None:
        if line.data.startswith(self._summaries):
            return self._summary(seen)
        if line.too_long:
            self._skip(Skip.TOO_LONG, f"{line.end - line.start} bytes")
            return None
        if not line.data or line.data.isspace():
            return None
        row = decode(line.data)
        if row is None:
            self._skip(Skip.NOT_JSON, "no JSON object")
            return None
        if "train_runtime" in row:
            self._finished = True
            return RunEvent(
                self.name,
                EventKind.FINISHED,
                row_numbers.place(row).step or self._last,
                segment=self.segment,
                seen=seen,
            )
        return self._row(row, seen)

    def _row(self, row: dict[str, Any], seen: float | None) -> RawRow | None:
        if self._own:
            row = {self._own.get(key, key): value for key, value in row.items()}
        flat, wrapped = row_numbers.unwrapped(row)
        if not wrapped and (REWARD not in flat or isinstance(flat[REWARD], dict)):
            flat = named_step(row_numbers.flat(flat))
        values, place = row_numbers.numbers(flat), row_numbers.place(flat)
        if wrapped:  # its writer (orjson) has no NaN or infinity: a null is one of them, never a missing number
            values = {key: math.nan if value is None else value for key, value in values.items()}
        if not values:
            self._skip(Skip.NOT_A_ROW, "no number in it")
            return None
        if place.step is None and not (row_numbers.is_row(values) or names_updates(values)):
            self._skip(Skip.NO_STEP, "neither a step nor a training metric in it")
            return None
        self._last, self._finished = place.step or self._last, False
        return RawRow(
            channel=self.name,
            kind=ChannelKind.JSONL,
            step=place.step,
            values=values,
            stream=row_numbers.stream_of(row, values),
            segment=self.segment,
            max_steps=place.max_steps,
            seen=seen,
            resolution=place.resolution,
        )

    def _summary(self, seen: float | None) -> RunEvent | None:
        if self._finished:
            return None
        text = "the job's summary was written, but no end of training before it"
        return RunEvent(self.name, EventKind.CRASH_SUMMARY, self._last, text, self.segment, seen=seen)

    def _skip(self, reason: Skip, detail: str) -> None:
        self.stats.skip(reason, f"line {self._line}: {detail}")


def named_step(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with its step under ``step``, where it has one under another name that a table's column may have too."""
    if not row_numbers.STEP_KEYS.isdisjoint(row) or (key := step_key(row)) is None:
        return row
    return {**{name: value for name, value in row.items() if name != key}, "step": row[key]}


def decode(data: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; bare NaN and Infinity are understood; None for anything else."""
    try:
        row = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        row = _decode_nan(data)
    return row if isinstance(row, dict) else None


def _decode_nan(data: bytes) -> Any:
    """Python's reader takes NaN, Infinity and numbers out of range; it is only asked about lines that are refused."""
    if len(data) > NAN_LINE:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
