"""A metric that was logged for many rows has disappeared: it is null, or missing in the row."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.listed import listed
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import MetricRow, Reading


class MetricVanished(Detector):
    """Compares, every tenth row, how long a metric has been absent with its usual interval."""

    explained_by = ("non-finite-metric", "reward-not-finite")

    needs = (("loss",), ("reward_mean",), ("grad_norm",))
    known: int = param(20, "rows that must have carried the metric before", minimum=3)
    absent: int = param(20, "fewest rows without it", minimum=3)
    gaps: float = param(5.0, "the same, as a multiple of its usual interval", minimum=1)

    def setup(self) -> None:
        """Start with no rows."""
        self.rows = self.alike = 0  # all of them, and the newest that logged the same and are not counted yet
        self.logged: list[str] = []
        self.times: dict[str, int] = {}  # how often each metric was logged
        self.last: dict[str, int] = {}  # the number of the newest row that had it
        self.steps: dict[str, int] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Take a train row's metrics; a supplement only shows that another channel still logs a metric."""
        values = record.values
        logged = [key for key, value in values.items() if value is not None]
        if record.supplement:
            self._count()
            self.last.update(dict.fromkeys(self.last.keys() & logged, self.rows))
            return SILENT
        if "loss" not in values and "reward_mean" not in values and "grad_norm" not in values:
            return SILENT
        if logged != self.logged:
            self._count()
            self.logged = logged
        self.rows, self.alike = self.rows + 1, self.alike + 1
        if self.rows % 10:
            return SILENT
        self._count()
        enough = self.rows >= self.known + self.absent
        return self._judge(record.step) if enough else no_data(NotYet("too few rows yet"))

    def _count(self) -> None:
        for key in self.logged:
            self.times[key] = self.times.get(key, 0) + self.alike
        self.last.update(dict.fromkeys(self.logged, self.rows))
        self.alike = 0

    def _judge(self, step: int) -> Iterable[Reading]:
        rows = self.rows
        gone = [key for key, last in self.last.items() if rows - last >= self.absent and self._usual(key, last)]
        self.steps = {key: self.steps.get(key, step - (rows - self.last[key] - 1)) for key in gone}
        if not gone:
            return QUIET
        absent = rows - max(self.last[key] for key in gone)
        return breach(
            value=float(absent),
            message=f"{listed(sorted(gone))}: no longer logged, for {absent} rows",
            evidence={"metrics": listed(sorted(gone)), "rows_without": absent, "last_row": rows - absent},
            first_step=min(self.steps.values()),
            immediate=True,
        )

    def _usual(self, key: str, last: int) -> bool:
        """Whether the metric came often enough for this absence to be unusual."""
        times = self.times[key]
        return times >= self.known and self.rows - last >= self.gaps * last / times
