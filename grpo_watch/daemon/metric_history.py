"""Keeps the rows of a run for charts in bounded memory, however long the run, without losing a spike."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import isfinite, nan
from threading import Lock
from typing import NamedTuple

from grpo_watch.engine.records import MetricRow
from grpo_watch.report.charts import ThinnedColumns

SPANS = 400
"""Stretches of rows kept at most. A metric takes 16 bytes of each: 40 metrics take 256 KB."""
NEWEST = 64
"""The newest rows, up to twice as many, are kept as they are."""
METRICS = 128
"""Metrics kept of one run: the canonical ones, and room for some eighty reward functions."""


class RowSpan(NamedTuple):
    """A stretch of rows of one attempt: first and last step, how many."""

    attempt: int
    first: int
    last: int
    rows: int


class MetricHistory:
    """The rows of one run, thinned as they come: of each stretch of rows every metric keeps its extremes.

    ``take`` is called by the engine, all else by any thread. ``taken`` counts the calls: while it stays, all stays.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._fresh: dict[tuple[int, int], Mapping[str, float | None]] = {}
        self._spans: list[RowSpan] = []
        self._columns: dict[str, array[float]] = {}
        """By metric its two extremes in each span, in the order in which they came; NaN where it has none."""
        self._odd: Counter[str] = Counter()
        self._stride, self._rows = 1, 0
        self.taken = 0

    def take(self, row: MetricRow) -> None:
        """Account for a row; one that comes late for its step adds to it, or takes its place among the others.

        Evaluations and dumps may be read ahead of the rows of training, or behind them.
        """
        place = (row.attempt, row.step)
        with self._lock:
            self.taken += 1
            known = self._fresh.get(place)
            if known is not None:
                self._fresh[place] = {**known, **row.values}
            elif self._spans and place <= (self._spans[-1].attempt, self._spans[-1].last):
                at = self._span_of(*place)
                if at is not None:
                    self._put(at, row.values)
            else:
                self._rows += 1
                late = bool(self._fresh) and place < next(reversed(self._fresh))
                self._fresh[place] = row.values
                if late:
                    self._fresh = dict(sorted(self._fresh.items()))
                if len(self._fresh) >= 2 * NEWEST:
                    for older in list(self._fresh)[:-NEWEST]:
                        self._append(*older, self._fresh.pop(older))

    def recent(self, name: str, points: int) -> list[float]:
        """The newest values of one metric, oldest first; rows without a value are passed over."""
        thinned = self.thinned((name,))
        return [value for value in thinned.columns.get(name, ()) if value is not None][-points:]

    def thinned(self, only: Collection[str] = ()) -> ThinnedColumns:
        """The rows as columns: of each stretch its first and last step, of each metric there the two extremes.

        ``only``: the metrics that are wanted; empty for all.
        """
        with self._lock:
            spans, fresh, odd = list(self._spans), dict(self._fresh), self._odd.copy()
            slots = [slot for at, span in enumerate(spans) for slot in range(2 * at, 2 * at + min(span.rows, 2))]
            known = {*self._columns, *(name for values in fresh.values() for name in values)}
            names = sorted(known & {*only} if only else known)[:METRICS]
            none = array("d", [nan]) * (2 * len(spans))
            old = {name: [self._columns.get(name, none)[slot] for slot in slots] for name in names}
        odd.update(
            name for row in fresh.values() for name, value in row.items() if value is not None and not isfinite(value)
        )
        ends = [(span.attempt, step) for span in spans for step in (span.first, span.last)[: span.rows]]
        ends += fresh
        return ThinnedColumns(
            attempts=[attempt for attempt, _ in ends],
            steps=[step for _, step in ends],
            columns={
                name: [*map(_finite, old[name]), *(_finite(row.get(name)) for row in fresh.values())] for name in names
            },
            odd=dict(odd),  # asdict makes another Counter of a Counter, of pairs
            rows=self._rows,
            stride=self._stride,
        )

    def _span_of(self, attempt: int, step: int) -> int | None:
        """The stretch that holds a step; where none does, the next one of its attempt, which then begins there."""
        after = bisect_left(self._spans, (attempt, step), key=lambda span: (span.attempt, span.last))
        span = self._spans[after]
        if span.attempt != attempt:
            return None
        if step < span.first:
            self._rows += 1
            self._spans[after] = span._replace(first=step, rows=span.rows + 1)
        return after

    def _append(self, attempt: int, step: int, values: Mapping[str, float | None]) -> None:
        """Add a row to the newest span; begin another one where that is full or of another attempt."""
        if not self._spans or self._spans[-1].attempt != attempt or self._spans[-1].rows >= self._stride:
            if len(self._spans) >= SPANS:
                self._halve()
                self._append(attempt, step, values)
                return
            self._spans.append(RowSpan(attempt, step, step, 0))
            for column in self._columns.values():
                column.extend((nan, nan))
        self._spans[-1] = self._spans[-1]._replace(last=step, rows=self._spans[-1].rows + 1)
        self._put(len(self._spans) - 1, values)

    def _put(self, at: int, values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            if value is None:
                continue
            if not isfinite(value):
                self._odd[name] += 1
                continue
            column = self._columns.get(name)
            if column is None:
                if len(self._columns) >= METRICS:
                    continue
                column = self._columns[name] = array("d", [nan]) * (2 * len(self._spans))
            first, second = column[2 * at : 2 * at + 2]
            if not (first <= value <= second or second <= value <= first):
                column[2 * at : 2 * at + 2] = _extremes((first, second, value))

    def _halve(self) -> None:
        """Merge neighbouring spans two by two; those of different attempts only where many restarts leave no choice."""
        self._stride *= 2
        groups = _pairs(self._spans, apart=True)
        if len(groups) > SPANS // 4 * 3:
            groups = _pairs(self._spans, apart=False)
        for name, column in self._columns.items():
            merged = array("d")
            for group in groups:
                merged.extend(_extremes(column[2 * group[0] : 2 * group[-1] + 2]))
            self._columns[name] = merged
        self._spans = [_joined([self._spans[at] for at in group]) for group in groups]


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _extremes(values: Sequence[float]) -> array[float]:
    """The lowest and the highest, in the order in which they came; NaN means no value."""
    known = [value for value in values if value == value] or [nan]  # noqa: PLR0124  NaN differs from itself
    low, high = min(known), max(known)
    return array("d", (low, high) if known.index(low) <= known.index(high) else (high, low))


def _pairs(spans: Sequence[RowSpan], *, apart: bool) -> list[list[int]]:
    """Neighbours two by two; ``apart``: never two of different attempts."""
    groups: list[list[int]] = []
    for at, span in enumerate(spans):
        alone = bool(groups) and len(groups[-1]) == 1
        if alone and not (apart and spans[groups[-1][0]].attempt != span.attempt):
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


def _joined(spans: Sequence[RowSpan]) -> RowSpan:
    first, last = spans[0], spans[-1]
    begin = first if first.attempt == last.attempt else last  # of two attempts the later one's steps
    return RowSpan(last.attempt, begin.first, last.last, sum(span.rows for span in spans))
