"""A metric that was logged for many rows is gone: null, or no longer in the row at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.records import MetricRow, Reading, Verdict


class MetricVanished(Detector):
    """Compares how long a metric is absent with how often it used to come; looks every tenth row."""

    needs = (("loss",), ("reward_mean",), ("grad_norm",))
    params = MappingProxyType(
        {
            "known": Param(20, "rows that carried the metric before it can vanish", minimum=3),
            "absent": Param(20, "rows without it at least", minimum=3),
            "gaps": Param(5.0, "the same in usual distances between two rows that carry it", minimum=1),
        }
    )
    known: int
    absent: int
    gaps: float

    def setup(self) -> None:
        """Nothing seen."""
        self.rows = 0
        self.layouts: dict[tuple[str, ...], list[int]] = {}
        self.whole: tuple[str, ...] = ()
        self.times: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        self.steps: dict[str, int] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Note what a train row carries; a supplement only shows that another channel still has it."""
        values = record.values
        if record.supplement:
            self.last.update(
                (key, self.rows) for key, value in values.items() if value is not None and key in self.last
            )
            return SILENT
        if "loss" not in values and "reward_mean" not in values and "grad_norm" not in values:
            return SILENT
        self.rows += 1
        layout = tuple(values)
        if None in values.values():
            layout = tuple(key for key in layout if values[key] is not None)
        seen = self.layouts.get(layout)
        if seen is None:
            seen = self.layouts[layout] = [0, 0]
        seen[0] += 1
        seen[1] = self.rows
        if self.rows % 10:
            return SILENT
        if layout == self.whole and len(self.layouts) == 1 and not self.steps and self.rows >= self.known + self.absent:
            return QUIET  # nothing is missing: what was counted can wait
        self._fold()
        self.whole = layout if len(layout) == len(self.last) else ()
        return self._judge(record.step) if self.rows >= self.known + self.absent else no_data("too few rows yet")

    def _fold(self) -> None:
        """Count key by key what was counted layout by layout (a tenth of the work)."""
        for layout, (times, last) in self.layouts.items():
            for key in layout:
                self.times[key] += times
                self.last[key] = max(last, self.last.get(key, 0))
        self.layouts.clear()

    def _judge(self, step: int) -> Iterable[Reading]:
        gone = [key for key, last in self.last.items() if self.rows - last >= self.absent and self._usual(key, last)]
        for key in list(self.steps):
            if key not in gone:
                del self.steps[key]
        for key in gone:
            self.steps.setdefault(key, step - (self.rows - self.last[key] - 1))
        if not gone:
            return QUIET
        rows = self.rows - max(self.last[key] for key in gone)
        return (
            Reading(
                Verdict.BREACH,
                value=float(rows),
                message=f"{', '.join(sorted(gone)[:6])}: not logged for {rows} rows after many that had it",
                evidence={"metrics": ", ".join(sorted(gone)), "rows_without": rows, "last_row": self.rows - rows},
                first_step=min(self.steps.values()),
                immediate=True,
            ),
        )

    def _usual(self, key: str, last: int) -> bool:
        """Whether it came often enough that this absence is unusual."""
        times = self.times[key]
        return times >= self.known and self.rows - last >= self.gaps * last / times
