"""Keeps the train rows of a replayed run as columns over its steps, for charts and comparisons."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from math import isfinite, isnan, nan

import numpy as np
from numpy.typing import NDArray

from grpo_watch.engine.records import MetricRow, Record, Stream
from grpo_watch.report.charts import PickedRows, superseded

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_ROWS = 1_000_000
"""Rows kept of one run; a run takes years to log more, and a broken log must not fill the memory."""
MOST_METRICS = 128
"""Metrics kept of one run: the canonical ones, and room for some eighty reward functions."""


class Series:
    """The rows of one run, a step of an attempt each; metrics that arrive later for a step join its row.

    ``left_out`` counts rows beyond ``MOST_ROWS``. A value that was not logged is NaN in a column; one that was logged
    as NaN or infinite is NaN too, and its row's index is listed in ``odd`` under the metric.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self.odd: dict[str, list[int]] = defaultdict(list)
        self.resolution: float | None = None
        self._rows: dict[tuple[int, int], int] = {}
        self._places = array("q")
        self._columns: dict[str, array[float]] = {}

    def observe(self, record: Record) -> None:
        """Keep a train row; for a pipeline's ``observe``."""
        if isinstance(record, MetricRow) and record.stream is Stream.TRAIN:
            self.take(record)

    def take(self, row: MetricRow) -> None:
        """Account for one row."""
        place = (row.attempt, row.step)
        index = self._rows.get(place)
        if index is None:
            if len(self._rows) >= MOST_ROWS:
                self.left_out += 1
                return
            index = self._rows[place] = len(self._rows)
            self._places.extend(place)
        if row.resolution is not None:
            self.resolution = max(self.resolution or 0.0, row.resolution)
        for name, value in row.values.items():
            if value is not None:
                self._put(name, index, value)

    def _put(self, name: str, index: int, value: float) -> None:
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) >= MOST_METRICS:
                return
            column = self._columns[name] = array("d")
        if len(column) <= index:
            column.extend([nan] * (index + 1 - len(column)))
        if isfinite(value):
            column[index] = value
        else:
            self.odd[name].append(index)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that were logged, sorted."""
        return sorted(self._columns)

    @property
    def places(self) -> tuple[Integers, Integers]:
        """Attempt and step of each row, in the order in which they came."""
        both = np.array(self._places, dtype=np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def column(self, name: str) -> Floats:
        """The values of one metric, one for each row."""
        values = np.full(len(self), nan)
        column = self._columns.get(name, array("d"))
        values[: len(column)] = column
        return values

    def odd_values(self, name: str) -> int:
        """How many values of a metric were logged as NaN or infinite."""
        return len(self.odd.get(name, ()))

    def superseded(self) -> Flags:
        """Whether a later attempt went back to each row's step or before it: what it computed was thrown away."""
        attempts, steps = self.places
        return np.array(superseded(attempts.tolist(), steps.tolist()), dtype=bool)

    def pick(self, names: Sequence[str], points: int) -> PickedRows:
        """The rows that a chart of these metrics shows."""
        attempts, steps = self.places
        columns = [self.column(name) for name in names]
        begins = np.unique(attempts, return_index=True)[1]  # these rows show what each restart discarded
        chosen = np.union1d(thinned_rows(columns, points), begins[-points:])
        shown = {name: _optional(column[chosen]) for name, column in zip(names, columns, strict=True)}
        count, untimed = len(np.unique(steps)), [None] * len(chosen)
        return PickedRows(attempts[chosen].tolist(), steps[chosen].tolist(), untimed, shown, count)


def _optional(column: Floats) -> list[float | None]:
    """The values as a list, None for NaN."""
    return [None if isnan(value) else value for value in column.tolist()]


def thinned_rows(columns: Sequence[Floats], most: int) -> Integers:
    """Indices, ascending, of at most about ``most`` rows that keep every spike of the columns.

    The rows are cut into equal stretches, and of each the lowest and the highest value of every column stay, also the
    first and the last row of all. NaN means no value. All columns have one length.
    """
    length = len(columns[0]) if columns else 0
    if length <= most:
        return np.arange(length)
    stretches = max(1, (most - 2) // (2 * len(columns)))
    width = -(-length // stretches)
    kept = {0, length - 1}
    for column in columns:
        padded = np.pad(column, (0, -length % width), constant_values=np.nan).reshape(-1, width)
        filled = ~np.isnan(padded).all(axis=1)
        begin = np.flatnonzero(filled) * width
        kept.update((begin + np.nanargmin(padded[filled], axis=1)).tolist())
        kept.update((begin + np.nanargmax(padded[filled], axis=1)).tolist())
    return np.array(sorted(kept), dtype=np.int64)
