"""Keeps the train rows of a run for charts in bounded memory, however long the run, without losing a spike."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isfinite, nan
from threading import Lock
from typing import NamedTuple

from grpo_watch.engine.records import MetricRow
from grpo_watch.report.charts import ThinnedColumns

SPANS = 400
"""Stretches of rows kept at most. A metric takes 17 bytes of each: 40 metrics take 272 KB."""
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


class _Column:
    """One metric's lowest and highest value in each span (NaN: none), and whether the lowest came first."""

    __slots__ = ("high", "low", "rises")

    def __init__(self, length: int) -> None:
        self.low, self.high = array("d", [nan] * length), array("d", [nan] * length)
        self.rises = bytearray(length)

    def grow(self) -> None:
        """A span more, without a value."""
        self.low.append(nan)
        self.high.append(nan)
        self.rises.append(0)

    def put(self, at: int, low: float, high: float, *, rises: bool) -> None:
        """Take what later rows of a span hold."""
        below, above = not low >= self.low[at], not high <= self.high[at]  # true of NaN
        if below and above:
            self.rises[at] = rises
        elif below or above:
            self.rises[at] = above
        if below:
            self.low[at] = low
        if above:
            self.high[at] = high

    def merged(self, groups: Sequence[Sequence[int]]) -> _Column:
        """The column over groups of neighbouring spans."""
        made = _Column(len(groups))
        for at, group in enumerate(groups):
            for old in group:
                if self.low[old] == self.low[old]:
                    made.put(at, self.low[old], self.high[old], rises=bool(self.rises[old]))
        return made


class MetricHistory:
    """The rows of one run, thinned as they come: of each stretch of rows every metric keeps its extremes.

    ``take`` is called by the engine, all else by any thread. ``taken`` counts the calls: while it stays, all stays.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._fresh: dict[tuple[int, int], Mapping[str, float | None]] = {}
        self._spans: list[RowSpan] = []
        self._columns: dict[str, _Column] = {}
        self._odd: dict[str, int] = {}
        self._stride, self._rows = 1, 0
        self._last = (0, -1)
        self.taken = 0

    def take(self, row: MetricRow) -> None:
        """Account for a row of the train stream; one that comes late for its step adds to it."""
        place = (row.attempt, row.step)
        with self._lock:
            self.taken += 1
            known = self._fresh.get(place)
            if known is not None:
                self._fresh[place] = {**known, **row.values}
            elif place > self._last:
                self._rows += 1
                self._last = place
                self._fresh[place] = row.values
                if len(self._fresh) >= 2 * NEWEST:
                    self._fold()
            else:
                self._add(place, row.values)

    def recent(self, name: str, points: int) -> list[float]:
        """The newest values of one metric, oldest first; rows without a value are passed over."""
        thinned = self.thinned((name,))
        return [value for value in thinned.columns.get(name, ()) if value is not None][-points:]

    def thinned(self, only: Collection[str] = ()) -> ThinnedColumns:
        """The rows as columns: of each stretch its first and last step, of each metric there the two extremes.

        ``only``: the metrics that are wanted; empty for all.
        """
        with self._lock:
            spans, fresh = list(self._spans), dict(self._fresh)
            pairs = [span.rows > 1 for span in spans]
            known = {*self._columns, *(name for values in fresh.values() for name in values)}
            names = sorted(known & {*only} if only else known)[:METRICS]
            columns = {name: [*self._old(name, pairs), *_values(name, fresh.values())] for name in names}
            odd = dict(self._odd)
        for values in fresh.values():
            for name, value in values.items():
                if value is not None and not isfinite(value):
                    odd[name] = odd.get(name, 0) + 1
        ends = [end for span, pair in zip(spans, pairs, strict=True) for end in _ends(span, pair=pair)]
        ends += fresh
        return ThinnedColumns(
            attempts=[attempt for attempt, _ in ends],
            steps=[step for _, step in ends],
            columns=columns,
            odd=odd,
            rows=self._rows,
            stride=self._stride,
        )

    def _old(self, name: str, pairs: Sequence[bool]) -> Iterator[float | None]:
        """The values of one metric in the spans."""
        column = self._columns.get(name)
        for at, pair in enumerate(pairs):
            low, high = (nan, nan) if column is None else (column.low[at], column.high[at])
            if low != low:  # noqa: PLR0124  NaN
                yield from (None, None) if pair else (None,)
            elif pair:
                yield from (low, high) if column is not None and column.rises[at] else (high, low)
            else:
                yield high

    def _fold(self) -> None:
        """Put the older half of the rows kept as they are into spans."""
        folded = list(self._fresh.items())[: len(self._fresh) - NEWEST]
        for place, _ in folded:
            del self._fresh[place]
        while folded:
            room = self._room(folded[0][0][0])
            attempt = folded[0][0][0]
            piece = [(step, row) for (of, step), row in folded[:room] if of == attempt]
            self._extend(attempt, piece)
            folded = folded[len(piece) :]

    def _room(self, attempt: int) -> int:
        """How many rows the newest span takes; begins a new one where it is full or of another attempt."""
        if self._spans and self._spans[-1].attempt == attempt and self._spans[-1].rows < self._stride:
            return self._stride - self._spans[-1].rows
        if len(self._spans) >= SPANS:
            self._halve()
            return self._room(attempt)
        self._spans.append(RowSpan(attempt, 0, 0, 0))
        for column in self._columns.values():
            column.grow()
        return self._stride

    def _extend(self, attempt: int, piece: Sequence[tuple[int, Mapping[str, float | None]]]) -> None:
        """Add rows of one attempt, in order, to the newest span."""
        at, span = len(self._spans) - 1, self._spans[-1]
        first = span.first if span.rows else piece[0][0]
        self._spans[-1] = RowSpan(attempt, first, piece[-1][0], span.rows + len(piece))
        for name in dict.fromkeys(name for _, row in piece for name in row):
            values = [value for _, row in piece if (value := row.get(name)) is not None]
            self._put(at, name, values)

    def _put(self, at: int, name: str, values: list[float]) -> None:
        finite = values if isfinite(sum(values)) else [value for value in values if isfinite(value)]
        if len(finite) < len(values):
            self._odd[name] = self._odd.get(name, 0) + len(values) - len(finite)
        if not finite:
            return
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) >= METRICS:
                return
            column = self._columns[name] = _Column(len(self._spans))
        low, high = min(finite), max(finite)
        column.put(at, low, high, rises=finite.index(low) <= finite.index(high))

    def _add(self, place: tuple[int, int], values: Mapping[str, float | None]) -> None:
        """Add what comes late to the span that holds its step, if one does."""
        attempt, step = place
        for at in range(len(self._spans) - 1, -1, -1):
            span = self._spans[at]
            if span.attempt == attempt and span.first <= step <= span.last:
                for name, value in values.items():
                    if value is not None:
                        self._put(at, name, [value])
                return
            if span.attempt < attempt:
                return

    def _halve(self) -> None:
        """Merge neighbouring spans two by two; those of different attempts only where many restarts leave no choice."""
        self._stride *= 2
        groups = _pairs(self._spans, apart=True)
        if len(groups) > SPANS // 4 * 3:
            groups = _pairs(self._spans, apart=False)
        self._columns = {name: column.merged(groups) for name, column in self._columns.items()}
        self._spans = [_joined([self._spans[at] for at in group]) for group in groups]


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


def _ends(span: RowSpan, *, pair: bool) -> Iterator[tuple[int, int]]:
    yield span.attempt, span.first
    if pair:
        yield span.attempt, span.last


def _values(name: str, rows: Iterable[Mapping[str, float | None]]) -> Iterator[float | None]:
    for row in rows:
        value = row.get(name)
        yield value if value is not None and isfinite(value) else None
