"""A metric that was logged for many rows has disappeared: null, or no longer in the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import MetricRow, Reading


class Layouts:
    """``times`` a metric was logged and the number of the ``last`` row that had it, up to the last ``fold``.

    Rows are counted by the set of their keys (``layouts``: how often, and the last row), and folded into counts by key
    when somebody asks: a tenth of the work.
    """

    __slots__ = ("last", "layouts", "rows", "times", "whole")

    def __init__(self) -> None:
        self.rows = 0
        self.whole: tuple[str, ...] = ()
        self.times: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        self.layouts: dict[tuple[str, ...], list[int]] = {}

    def take(self, values: Mapping[str, float | None]) -> bool:
        """Count a row; whether it holds every metric that was ever logged, as of the last fold."""
        self.rows += 1
        layout = tuple(values)
        if None in values.values():
            layout = tuple(key for key in layout if values[key] is not None)
        counted = self.layouts.get(layout)
        if counted is None:
            counted = self.layouts[layout] = [0, 0]
        counted[0] += 1
        counted[1] = self.rows
        return layout == self.whole

    def elsewhere(self, keys: Iterable[str]) -> None:
        """Another channel still has these."""
        self.last.update((key, self.rows) for key in keys if key in self.last)

    @property
    def single(self) -> bool:
        """Whether all rows since the last fold had the same keys."""
        return len(self.layouts) == 1

    def fold(self) -> None:
        """Bring ``times``, ``last`` and ``whole`` up to now."""
        newest = max(self.layouts, key=lambda layout: self.layouts[layout][1])
        for layout, (times, last) in self.layouts.items():
            for key in layout:
                self.times[key] += times
                self.last[key] = max(last, self.last.get(key, 0))
        self.whole = newest if len(newest) == len(self.last) else ()
        self.layouts.clear()


class MetricVanished(Detector):
    """Compares how long a metric has been absent with its usual interval, every tenth row."""

    explained_by = ("non-finite-metric", "reward-not-finite")

    needs = (("loss",), ("reward_mean",), ("grad_norm",))
    known: int = param(20, "rows that must have carried the metric before", minimum=3)
    absent: int = param(20, "fewest rows without it", minimum=3)
    gaps: float = param(5.0, "the same, as a multiple of its usual interval", minimum=1)

    def setup(self) -> None:
        """Nothing seen."""
        self.seen = Layouts()
        self.steps: dict[str, int] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Note what a train row carries; a supplement only shows that another channel still logs a metric."""
        values, seen = record.values, self.seen
        if record.supplement:
            seen.elsewhere(key for key, value in values.items() if value is not None)
            return SILENT
        if "loss" not in values and "reward_mean" not in values and "grad_norm" not in values:
            return SILENT
        whole, enough = seen.take(values), seen.rows >= self.known + self.absent
        in_order = whole and seen.single and not self.steps and enough
        if seen.rows % 10:
            return SILENT
        if in_order:
            return QUIET  # nothing is missing, so folding can wait
        seen.fold()
        return self._judge(record.step) if enough else no_data(NotYet("too few rows yet"))

    def _judge(self, step: int) -> Iterable[Reading]:
        rows, seen = self.seen.rows, self.seen
        gone = [key for key, last in seen.last.items() if rows - last >= self.absent and self._usual(key, last)]
        for key in list(self.steps):
            if key not in gone:
                del self.steps[key]
        for key in gone:
            self.steps.setdefault(key, step - (rows - seen.last[key] - 1))
        if not gone:
            return QUIET
        absent = rows - max(seen.last[key] for key in gone)
        return breach(
            value=float(absent),
            message=f"{', '.join(sorted(gone)[:6])}: no longer logged, for {absent} rows",
            evidence={"metrics": ", ".join(sorted(gone)), "rows_without": absent, "last_row": rows - absent},
            first_step=min(self.steps.values()),
            immediate=True,
        )

    def _usual(self, key: str, last: int) -> bool:
        """Whether the metric came often enough for this absence to be unusual."""
        times = self.seen.times[key]
        return times >= self.known and self.seen.rows - last >= self.gaps * last / times
