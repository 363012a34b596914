"""A thinned record of a run's metrics over its steps, for charts: at most a few hundred points however long the run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

POINTS = 600


class History:
    """Keeps every row until there are too many, then every second one, and so on; the newest row is always there."""

    def __init__(self) -> None:
        self._points: list[tuple[int, Mapping[str, float | None]]] = []
        self._stride, self._count = 1, 0

    def note(self, step: int, values: Mapping[str, float | None]) -> None:
        """Account for one row."""
        if self._points and (self._count - 1) % self._stride:
            self._points.pop()  # the newest point stood only for itself
        self._points.append((step, dict(values)))
        self._count += 1
        if len(self._points) > POINTS:
            newest = self._points[-1:] if len(self._points) % 2 == 0 else []
            self._points = self._points[::2] + newest
            self._stride *= 2

    def recent(self, name: str, points: int) -> list[float]:
        """The newest values of one metric, oldest first; rows without a value are passed over."""
        values = (row.get(name) for _, row in self._points[-2 * points :])
        return [value for value in values if value is not None][-points:]

    def series(self) -> dict[str, list[Any]]:
        """``step`` and each metric, lists of one length; None where a row had no value."""
        points = tuple(self._points)
        names = sorted({name for _, values in points for name in values})
        columns: dict[str, list[Any]] = {"step": [step for step, _ in points]}
        return columns | {name: [values.get(name) for _, values in points] for name in names}


def pack(series: Mapping[str, list[Any]]) -> bytes:
    """A series as few bytes."""
    return zlib.compress(json.dumps(series).encode(), 3)


def unpack(packed: bytes) -> dict[str, list[Any]]:
    """The series that ``pack`` was given."""
    series: dict[str, list[Any]] = json.loads(zlib.decompress(packed))
    return series
