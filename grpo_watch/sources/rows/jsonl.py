"""Turns JSON-lines logs into raw rows and end markers: one line per row, or several."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import msgspec

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RawRow, RunEvent, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.guessing import OF_STEPS, guess, names_updates
from grpo_watch.sources.base import ChannelSource, Skip
from grpo_watch.sources.files.tail import SplitLine, Tail
from grpo_watch.sources.rows.layouts import NamedRuns, by_run, run_named, single_number, step_key
from grpo_watch.sources.rows.step_assembly import StepFeed

OF_TRAINING = OF_STEPS | {"reward_mean"}
"""Metrics that a row without a step must show if its writer logs events; a rollout alone would give a row per group."""
REWARD = "reward"
"""The key that makes a row with it a training row."""
LONGEST_KEY = 1_000
NAN_LINE = 1 << 20
"""Longest line parsed again for bare NaN and Infinity, which strict JSON lacks."""

_decode = msgspec.json.Decoder().decode


class TailSource(ChannelSource, ABC):
    """Reads a growing text file; a subclass turns its lines into items."""

    LONGEST, CHUNK = 8 << 20, 1 << 20
    """Longest line in bytes, and bytes per read."""

    def _begin(self, *, bars: bool = False, **_: Any) -> None:
        how: dict[str, Any] = {"bars": bars, "max_line": self.LONGEST, "chunk": self.CHUNK}
        self._tail = Tail(self._path, self._roots, self._start, **how)
        self._budget, self._generation = self._tail.turn, 0

    def _new(self, seen: float | None) -> Iterator[Item]:
        yield from self._items(self._tail.read(live=seen is not None), seen)
        self.stats.bytes, self.stats.problem = self._tail.bytes, self._tail.problem

    def _rest(self) -> Iterator[Item]:
        yield from self._items(self._tail.finish(), None)
        self.stats.bytes, self.stats.problem = self._tail.bytes, self._tail.problem

    @abstractmethod
    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        """Yield the items of the lines."""

    @property
    def held(self) -> int:
        """The inode of the open file while it has a name."""
        return self._tail.held

    def close(self) -> None:
        """Close the file."""
        self._tail.close()


class LineSource(TailSource, ABC):
    """Counts lines from 1 in each generation of the file; a subclass parses a line and keeps its own state.

    ``columns``: canonical name or ``step`` → the user's column or key.
    """

    def _begin(self, *, columns: Mapping[str, str] = MappingProxyType({}), **_: Any) -> None:
        super()._begin()
        self._columns = columns
        self._line = row_numbers.whole(self._known.get("line")) or 0
        self._recall(self._known)

    def cursor(self) -> Cursor:
        """Return where reading continues, with the state that later lines need."""
        at = self._tail.cursor(self.name)
        return Cursor(at.source, at.identity, at.position, {"line": self._line, **self._remembered()})

    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        for line in lines:
            if line.generation != self._generation:  # the file starts over: its earlier lines no longer count
                self._generation, self._line = line.generation, 0
                self._recall({})
            self._line += 1
            item = self._item(line, seen)
            if item is not None:
                yield item

    @abstractmethod
    def _item(self, line: SplitLine, seen: float | None) -> Item | None:
        """Return the item of a line; counts unusable lines."""

    @abstractmethod
    def _remembered(self) -> dict[str, Scalar]:
        """Return the state that later lines need, for the cursor."""

    @abstractmethod
    def _recall(self, state: Mapping[str, Scalar]) -> None:
        """Restore the state; empty at the beginning of a file."""

    def _skip(self, reason: Skip, detail: str) -> None:
        self.stats.skip(reason, f"line {self._line}: {detail}")


class JsonlSource(LineSource):
    """Reads one JSON-lines file: a row per line, the step in the row.

    Understands ms-swift (``"global_step/max_steps": "33/80"``), its Megatron backend (``"iteration": "7/2174"``),
    LLaMA-Factory (``current_steps``) and plain ``step``/``global_step``; lines without a step are rows only when they
    hold training metrics. verl's file logger wraps its rows (``{"step": 7, "data": {…}}``), starts its file over when a
    run resumes, and writes NaN and infinities as null, which is read as NaN.

    ``train_runtime`` marks finished training; a summary line without it, a crash.

    Of several runs distinguished by the columns ``named_by`` it reads the one named ``run``.
    """

    def _begin(self, *, run: str = "", named_by: Sequence[str] = (), **own: Any) -> None:
        self._run, self._named_by = run, named_by
        super()._begin(**own)

    def _recall(self, state: Mapping[str, Scalar]) -> None:
        self._last, self._finished = row_numbers.whole(state.get("step")), state.get("finished") is True

    def _remembered(self) -> dict[str, Scalar]:
        return {"step": self._last, "finished": self._finished}

    def _item(self, line: SplitLine, seen: float | None) -> Item | None:
        if line.data.startswith(_summaries()):
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
        if len(line.data) > LONGEST_KEY and (long := {key for key in row if len(key) > LONGEST_KEY}):
            self._skip(Skip.BAD_VALUE, f"{len(long)} keys of more than {LONGEST_KEY} characters")
            row = {key: value for key, value in row.items() if key not in long}
        if "train_runtime" in row and run_named(row, self._named_by) in {None, self._run}:
            self._finished = True
            step = row_numbers.place(row).step or self._last
            return RunEvent(self.name, EventKind.FINISHED, step, segment=self.segment, seen=seen)
        return self._row(row, seen)

    def _row(self, row: dict[str, Any], seen: float | None) -> RawRow | None:
        if self._named_by and run_named(row, self._named_by) != self._run:
            return None
        if self._columns:
            own = {column: name for name, column in self._columns.items()}
            row = {own.get(key, key): value for key, value in row.items()}
        flat, wrapped = row_numbers.unwrapped(row)
        if not wrapped and (REWARD not in flat or isinstance(flat[REWARD], dict)):
            flat = named_step(row_numbers.flat(flat))
        values, place = row_numbers.numbers(flat), row_numbers.place(flat)
        if wrapped:  # its writer (orjson) has no NaN or infinity: a null is one of them, never a missing number
            values = {key: math.nan if value is None else value for key, value in values.items()}
        if not values:
            self._skip(Skip.NOT_A_ROW, "no number in it")
            return None
        step, total, resolution = place
        if step is None and not _learns(values, of_event=not wrapped and bool(row_numbers.kinds_named(row))):
            self._skip(Skip.NO_STEP, "neither a step nor a training metric in it")
            return None
        self._last, self._finished = step or self._last, False
        stream = row_numbers.stream_of(row, values)
        logged = (self.name, ChannelKind.JSONL, step, values, stream, self.segment, total)
        return RawRow(*logged, seen=seen, resolution=resolution)

    def _summary(self, seen: float | None) -> RunEvent | None:
        if self._finished:
            return None
        text = "the job's summary was written, but no end of training before it"
        return RunEvent(self.name, EventKind.CRASH_SUMMARY, self._last, text, self.segment, seen=seen)


def _learns(values: Mapping[str, float | None], *, of_event: bool) -> bool:
    """Whether a row without a step is a training row."""
    learns = not of_event or any(guess(key.rpartition("/")[2]) in OF_TRAINING for key in values)
    return learns and (row_numbers.is_row(values) or names_updates(values))


@cache
def _summaries() -> tuple[bytes, ...]:
    """Return the beginnings of the lines that a job writes when it is over, finished or crashed."""
    return tuple(t.traces.crash_summary.encode() for t in frameworks().values() if t.traces.crash_summary)


def named_step(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row with its step under ``step``, also if it had another name that table columns may have."""
    if not row_numbers.STEP_KEYS.isdisjoint(row) or (key := step_key(row)) is None:
        return row
    return {**{name: value for name, value in row.items() if name != key}, "step": row[key]}


def decode(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line, accepting bare NaN and Infinity; None for anything else."""
    try:
        row = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        row = None
        with suppress(ValueError, RecursionError):  # Python's reader takes NaN, Infinity and numbers out of range
            row = json.loads(data) if len(data) <= NAN_LINE else None
    return row if isinstance(row, dict) else None


TIME = "time"
"""The key of a line's time in Unix seconds."""


class JsonlPiecesSource(TailSource):
    """Joins the lines of a step; a step is complete when a line of another step comes.

    prime-rl appends to the file after a resume. Its repeated steps and late lines are skipped and counted. It omits
    values that are not finite: the metric is absent then.
    """

    def _begin(self, **_: Any) -> None:
        super()._begin()
        self._feed = StepFeed(self.name, ChannelKind.JSONL, self.segment, self._start)

    def _rest(self) -> Iterator[Item]:
        yield from super()._rest()
        self._feed.flush(self._feed.read_to)
        yield from self._feed.give()

    def cursor(self) -> Cursor:
        """Where reading continues: before the first line of the incomplete step."""
        position, state = self._feed.position({})
        at = self._tail.cursor(self.name, position)
        return Cursor(at.source, at.identity, at.position, state)

    def _items(self, lines: Iterator[SplitLine], seen: float | None) -> Iterator[Item]:
        for line in lines:
            if line.generation != self._generation:
                self._generation = line.generation
                self._feed.restart(line.start)
            self._take(line, seen)
            self._feed.read_to = line.end
            yield from self._feed.give()

    def _take(self, line: SplitLine, seen: float | None) -> None:
        if line.too_long:
            self.stats.skip(Skip.TOO_LONG, f"byte {line.start}: {line.end - line.start} bytes")
            return
        if not line.data.strip():
            return
        row: Mapping[str, Any] | None = decode(line.data)
        if row is None:
            self.stats.skip(Skip.NOT_JSON, f"byte {line.start}: no JSON object")
            return
        row = single_number(row) or row
        values, step = row_numbers.numbers(row), row_numbers.place(row).step
        if self.step_column in row:
            step = row_numbers.whole(row[self.step_column])
        time = values.pop(TIME, None)
        if step is None or not values:
            self.stats.skip(Skip.NO_STEP if values else Skip.NOT_A_ROW, f"byte {line.start}")
            return
        before = self._feed.late
        self._feed.add(line.start, step, values, time, seen)
        if self._feed.late > before:
            self.stats.skip(Skip.DUPLICATE, f"byte {line.start}: step {step} was complete already")


def runs_in(text: str) -> NamedRuns:
    """Return the runs in one file of JSON lines; empty if it holds only one."""
    rows = [named_step(row) for line in text.splitlines() if (row := decode(line.encode())) is not None]
    return by_run([row for row in rows if row_numbers.place(row).step is not None])


FEWEST = 4
"""Fewest lines with rising steps; files of single completions have several lines per step."""


def rewards_by_step(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether enough rows name a step and a reward (by its words), and the steps rise strictly."""
    rewarded = [row for row in rows if any(guess(key) == "reward_mean" for key in row_numbers.flat(row))]
    steps = [step for row in rewarded if (step := row_numbers.place(row).step) is not None]
    return len(steps) >= FEWEST and all(earlier < later for earlier, later in pairwise(steps))


def in_pieces(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a step's metrics are spread over several lines: one named number on each, or a part of the metrics."""
    singles = [single_number(row) for row in rows[:3]]
    if len(singles) > 1 and all(one is not None and any(map(guess, one)) for one in singles):
        return True
    pairs = [
        (one, two)
        for one, two in pairwise(map(row_numbers.flat, rows))
        if row_numbers.place(one).step == row_numbers.place(two).step
    ]
    metrics = [({key for key in one if guess(key)}, {key for key in two if guess(key)}) for one, two in pairs]
    if len(pairs) < FEWEST - 2 or any(not (one and two) or one & two for one, two in metrics):
        return False
    return all(
        row_numbers.stream(row) is None and row_numbers.place(row).step is not None for pair in pairs for row in pair
    )
