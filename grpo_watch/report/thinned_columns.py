"""The thinned rows of a run as columns: what charts, sparklines and the API's series are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_watch.report.charts import PickedRows


@dataclass(frozen=True, slots=True)
class ThinnedColumns:
    """Columns of one length, in the order in which the rows came; steps go back where an attempt begins.

    ``times`` are Unix seconds (None: unknown); ``columns`` hold None where there is no value; ``odd`` counts values
    that are no numbers, by metric. ``rows`` were logged, and a point of an old part stands for ``stride`` of them.
    """

    attempts: Sequence[int] = ()
    steps: Sequence[int] = ()
    times: Sequence[float | None] = ()
    columns: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    odd: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    stride: int = 1

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that were logged, sorted."""
        return sorted(self.columns)

    def pick(self, names: Sequence[str], _points: int) -> PickedRows:
        """All points: they are few already."""
        columns = {name: self.columns[name] for name in names}
        return PickedRows(self.attempts, self.steps, self.times, columns, self.rows)

    def odd_values(self, name: str) -> int:
        """How many values of a metric were logged as NaN or infinite."""
        return self.odd.get(name, 0)

    def series(self) -> dict[str, list[Any]]:
        """``step`` and each metric, lists of one length; None where there is no value."""
        return {"step": list(self.steps), **{name: list(self.columns[name]) for name in self.metrics}}
