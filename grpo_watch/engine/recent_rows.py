"""The newest train rows of a run (the last few whole, older ones packed), and the run's pace."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from statistics import median
from typing import NamedTuple, cast

from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import NOTHING, MetricRow

RECENT = 512
"""Rows kept."""
WHOLE = 32
"""Rows kept whole, as most rules use them. A row of forty metrics takes 4 KB, packed 0.6 KB."""


class _Packed(NamedTuple):
    """A row without ``raw``; ``numbers`` are its values in the order of ``names``, which rows share."""

    row: MetricRow
    names: tuple[str, ...]
    numbers: array[float]

    def unpacked(self) -> MetricRow:
        return self.row._replace(values=dict(zip(self.names, self.numbers, strict=True)))


class RecentRows:
    """At most 512 rows, oldest first. Rows before the last 32 have lost ``raw``, their keys as logged."""

    def __init__(self) -> None:
        self._whole: deque[MetricRow] = deque()
        self._older: deque[_Packed | MetricRow] = deque(maxlen=RECENT - WHOLE)
        self._names: tuple[str, ...] = ()

    def append(self, row: MetricRow) -> None:
        """Add the newest row; beyond 512, the oldest one is dropped."""
        self._whole.append(row)
        if len(self._whole) > WHOLE:
            self._older.append(self._pack(self._whole.popleft()))

    def _pack(self, row: MetricRow) -> _Packed | MetricRow:
        names, numeric = tuple(row.values), cast("Iterable[float]", row.values.values())
        try:
            numbers = array("d", numeric)
        except TypeError:  # a null
            return row._replace(raw=NOTHING)
        if names != self._names:
            self._names = names
        bare = MetricRow(*row[:4], NOTHING, NOTHING, *row[6:])
        return _Packed(bare, self._names, numbers)

    def newest(self, count: int) -> list[MetricRow]:
        """The newest ``count`` rows (32 at most) as they came, oldest first; fewer if there are fewer."""
        return list(self._whole)[-count:]

    def step_back(self, metric: str, count: int) -> int | None:
        """The step of the ``count``-th newest row with the metric, or of the oldest one; None if no row has it."""
        steps = (row.step for row in reversed(self) if row.values.get(metric) is not None)
        return next(iter(deque(islice(steps, count), maxlen=1)), None)

    def __len__(self) -> int:
        return len(self._older) + len(self._whole)

    def __iter__(self) -> Iterator[MetricRow]:
        return chain(map(_unpacked, self._older), self._whole)

    def __reversed__(self) -> Iterator[MetricRow]:
        """The rows, newest first, unpacked on demand."""
        return chain(reversed(self._whole), map(_unpacked, reversed(self._older)))


def _unpacked(row: _Packed | MetricRow) -> MetricRow:
    return row.unpacked() if isinstance(row, _Packed) else row


WINDOW_ROWS = 50


class Pace:
    """Median seconds per optimizer step, and the longest wait for a row, over the last rows.

    The time between two attempts is left out. Prefers the logged step time, then the producer's clock, then arrival
    times (which come in bursts when a log is block-buffered, so that their median may be near zero: callers keep a
    floor).
    """

    def __init__(self) -> None:
        self.logged: deque[float] = deque(maxlen=WINDOW_ROWS)
        self.clocked: deque[float] = deque(maxlen=WINDOW_ROWS)
        self.waits: deque[float] = deque(maxlen=WINDOW_ROWS)
        self._last: tuple[int, float] | None = None
        self._before = (0, 0)

    def add_row(self, row: MetricRow) -> None:
        """Take one train row of the primary channel."""
        clock = row.time if row.time is not None else row.seen
        step, seconds = row.step, number(row, "step_seconds")
        known, before = self._before
        self._before = (row.attempt, step)
        steps = step - before if row.attempt == known else 0
        if seconds is not None and seconds > 0:
            self.logged.append(seconds)
            self.waits.append(seconds * max(1, steps))
        if clock is None:
            return
        if self._last is not None and steps > 0 and clock > self._last[1]:
            self.clocked.append((clock - self._last[1]) / steps)
            self.waits.append(clock - self._last[1])
        self._last = (step, clock)

    def median(self) -> float | None:
        """Seconds per optimizer step; None until known."""
        times = self.logged or self.clocked
        return median(times) if times else None

    def longest_wait(self) -> float:
        """Seconds of the longest wait between two rows of the window; 0 until known.

        Rows that generate take many times longer than rows that reuse a batch (41 times in a real run of ms-swift 4.6.0
        with two iterations), and a row may cover ``logging_steps`` steps.
        """
        return max(self.waits, default=0.0)


def duration(seconds: float) -> str:
    """Seconds in words: ``45 seconds``, ``12 minutes``, ``3 hours``, ``2 days``."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} second{'' if f'{seconds:.0f}' == '1' else 's'}"
