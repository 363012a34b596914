"""Common parts of all trackers' sources: rows joined by step, completion tables once, a cursor between items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from grpo_watch.engine.records import (
    ChannelKind,
    CompletionSummary,
    Cursor,
    EventKind,
    Item,
    RunConfig,
    RunEvent,
    Scalar,
)
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import guess
from grpo_watch.sources.base import ChannelSource, Skip
from grpo_watch.sources.completions.completion_table import LoggedTables
from grpo_watch.sources.rows.step_assembly import StepFeed, step_of
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.framing import FileFrame, GrowingFile, Read


class TrackerSource(ChannelSource):
    """Reads logged calls in order from a file, a database or a server.

    Trackers count calls, not optimizer steps: rows are joined by the step that the framework logs. The tracker's own
    counter is used if no row names a step, and for rows without one in a run whose newest step equalled the counter
    (verl, whose validation before training logs no step).
    """

    KIND: ChannelKind

    def _begin(self, *_: Any, **own: Any) -> None:
        del own
        self._feed = StepFeed(self.name, self.KIND, self.segment, self._start)
        self._tables = LoggedTables(self.name, self._group_size, self.segment, self._known, examples=self._examples)
        self._begin_steps(self._known)
        self._config = str(self._known.get("config") or "")

    def _new_config(self, config: RunConfig | None) -> RunConfig | None:
        """Return the configuration unless it equals the last one given."""
        shown = xxhash.xxh3_64_hexdigest(repr(config).encode("utf-8", "replace"))
        if config is None or shown == self._config:
            return None
        self._config = shown
        return config

    def _rest(self) -> Iterator[Item]:
        yield from self._flush(None)

    def _flush(self, seen: float | None) -> Iterator[Item]:
        """Complete the held-back step, and yield its items."""
        self._feed.flush(self._feed.read_to, seen)
        yield from self._give()

    def _begin_steps(self, state: Mapping[str, Scalar]) -> None:
        self._keyed, self._counted = state.get("keyed") is True, state.get("counted") is True
        self._counter = OwnCounter(coarse=state.get("coarse") is True)

    def _position(self, **state: Scalar) -> tuple[int, dict[str, Scalar]]:
        """Return position and state of the cursor: the first call of the held-back step."""
        steps = {"keyed": self._keyed, "counted": self._counted, "coarse": self._counter.coarse}
        return self._feed.position({**steps, **self._tables.state(), **state})

    def _give(self) -> Iterator[Item]:
        for item in self._feed.give():
            if isinstance(item, CompletionSummary):
                self._tables.given()
            yield item

    def _values(self, row: Mapping[str, Any], where: str, *, table: bool) -> dict[str, float | None]:
        """Return the numbers of a logged call; a call with neither a number nor a table is counted."""
        values = row_numbers.numbers(row)
        if not values and not table:
            self.stats.skip(Skip.NOT_A_ROW, f"{where}: no number in it")
        return values

    def _step(self, row: Mapping[str, object], values: Mapping[str, float | None], counter: object) -> int | None:
        """Return the optimizer step of a logged call; None if it belongs to the newest step."""
        step = row_numbers.whole(row.get(self.step_column)) if self.step_column in row else step_of(row)
        counted = row_numbers.whole(counter)
        coarse = PLAIN in row and not self.step_column and self._counter.counts_more(row, values)
        if coarse and counted is not None:
            step = counted
        if step is None:
            return counted if self._counted or not self._keyed else None
        self._keyed, self._counted = True, step == counted
        return step

    def _event(self, kind: EventKind, text: str = "", step: int | None = None, seen: float | None = None) -> RunEvent:
        return RunEvent(self.name, kind, step, text, self.segment, seen=seen)


class LoggedRun(NamedTuple):
    """One of several runs in a file: its name there, and its name for people."""

    key: str
    shown: str


class TrackerFile(TrackerSource):
    """A tracker's file or database; each tracker interprets its records in ``read_record``."""

    GIVES = "metric rows, settings, end"
    """The items read from it, as shown by ``sources``."""
    SUFFIXES: tuple[str, ...]
    """Suffixes of its files' names."""

    def _begin(self, *, run: str = "", tables: bool = True) -> None:
        """Set up the reader's state.

        Args:
            run: the run's name in a file of several runs.
            tables: whether completion tables and a console's lines are read (not where another channel has them).
        """
        super()._begin()
        self._run, self._read_tables = run, tables
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Set up the state of this kind of reader."""

    @classmethod
    @abstractmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:
        """Whether a file is one of this tracker's."""

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:  # noqa: ARG003
        """Return the runs in a file that may hold several; empty for a file of one run."""
        return []

    @abstractmethod
    def read_record(self, start: int, following: int, record: Any, seen: float | None) -> None:
        """Pass on a record's content: pieces of rows to ``_feed.add``, settings and events to ``_feed.say``.

        Args:
            start: place of the record in its channel.
            following: place of the next one.
            record: the record, stored or decoded.
            seen: the driver's clock.
        """


class FramedLog(TrackerFile):
    """A growing log, read record by record; see ``TrackerFile``."""

    KIND = ChannelKind.WANDB

    @staticmethod
    @abstractmethod
    def frames(read: Read, start: int, *, ended: bool = False) -> Iterator[FileFrame]:
        """Yield the records from ``start``; one that is still being written is awaited."""

    @staticmethod
    @abstractmethod
    def decode(payload: bytes) -> Any:
        """Decode a record for ``read_record``.

        Raises:
            ValueError: it can't be decoded.
        """

    def _refused(self) -> str:
        """Return why the file is no such log; empty if it is one, or may become one."""
        return ""

    def _fault(self) -> str:
        """Return why nothing can be read at the current position (after the last search); empty if more may come."""
        return ""

    def _open(self) -> None:
        self._file = GrowingFile(self._path, self._roots, self._start)

    def _state(self) -> dict[str, Scalar]:
        """Return the state to keep across a restart."""
        return {}

    def _before(self, seen: float | None) -> Iterator[Item]:  # noqa: ARG002
        """Yield items due before the next record."""
        yield from ()

    def _start_over(self) -> None:
        """Start over with another file."""

    def _new(self, seen: float | None) -> Iterator[Item]:
        yield from self._read(seen, ended=False)

    def _rest(self) -> Iterator[Item]:
        yield from self._read(None, ended=True)
        yield from super()._rest()

    def cursor(self) -> Cursor:
        """The cursor of the first record of the held-back step."""
        return self._file.cursor(self.name, *self._position(**self._state()))

    @property
    def held(self) -> int:
        """The inode of the open file while it has a name."""
        return self._file.held

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, seen: float | None, *, ended: bool) -> Iterator[Item]:
        yield from self._give()
        yield from self._before(seen)
        fault = ""
        if self._file.ready(self._feed.read_to):
            if self._file.restarted:
                self._feed.restart()
                self._begin_steps({})
                self._start_over()
            fault = self._refused()
            self._budget.begin(self._feed.read_to, live=seen is not None)
            for frame in () if fault else self.frames(self._file.read, self._feed.read_to, ended=ended):
                self._feed.read_to = frame.end
                self._decoded(frame, seen)
                if self._feed.waits:
                    yield from self._give()
                if self._budget.ends(frame.end):
                    break
            yield from self._give()
            fault = fault or self._fault()
        self.stats.bytes, self.stats.problem = self._file.bytes, self._file.problem or fault

    def _decoded(self, frame: FileFrame, seen: float | None) -> None:
        if frame.damage:
            self.stats.skip(Skip.UNREADABLE, f"byte {frame.start}: {frame.damage}")
            return
        try:
            record = self.decode(frame.payload)
        except ValueError as error:
            self.stats.skip(Skip.BAD_VALUE, f"byte {frame.start}: no record: {error}")
            return
        self.read_record(frame.start, frame.end, record, seen)


class BlockLog(FramedLog):
    """A log in blocks, as written by wandb's and SwanLab's clients."""

    HEADERS: tuple[bytes, ...]
    """First bytes of its files."""
    frames = staticmethod(framing.block_frames)

    @staticmethod
    @abstractmethod
    def time_of(record: Any) -> float | None:
        """Return when a decoded row was logged (Unix seconds); None for other records."""

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:  # noqa: ARG003
        """Whether a file is named like such a log; it may still be empty."""
        return path.name.endswith(cls.SUFFIXES)

    def _refused(self) -> str:
        sound = framing.begins(self._file.read, *self.HEADERS)
        return "" if sound else f"{self._path}: not such a log (its first bytes are others)"


def iso_seconds(text: object) -> float | None:
    """Return Unix seconds of an ISO time; UTC if it names no zone."""
    try:
        time = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return (time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)).timestamp()


PLAIN = "step"
"""The key that users log beside their metrics; prefixed ones are a trainer's own and trusted."""
AGAIN = 2
"""Metrics repeated with other values under one step that make it another row."""


class OwnCounter:
    """Watches rows with a plain ``step``: an own loop may log several rows per step (one per micro-batch).

    ``coarse`` turns true at the first row that repeats the metrics of the row before under the same step.
    """

    def __init__(self, *, coarse: bool = False) -> None:
        self.coarse = coarse
        self._step: object = None
        self._values: dict[str, float | None] = {}

    def counts_more(self, row: Mapping[str, object], values: Mapping[str, float | None]) -> bool:
        """Whether the step of this row, or of an earlier one, is coarser than rows."""
        step = row.get(PLAIN)
        if self.coarse or step is None:
            return self.coarse
        if step != self._step:
            self._step, self._values = step, dict(values)
            return False
        again = (key for key, value in values.items() if key in self._values and value != self._values[key])
        self.coarse = sum(guess(key) is not None for key in again) >= AGAIN
        self._values.update(values)
        return self.coarse
