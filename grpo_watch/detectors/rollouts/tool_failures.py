"""Most tool calls fail and the reward does not improve: the policy learns from a broken environment."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading
from grpo_watch.engine.traits import LikelyCause

DOWN = LikelyCause("Sandbox, search service or environment server is down or overloaded: look into its own log.")
NAMES = LikelyCause("The model calls tools that do not exist or with wrong arguments: compare with the tools' schemas.")


class ToolFailures(Detector):
    """A share that fades is a policy that learns to call its tools, and is left alone."""

    likely_causes = (DOWN, NAMES)
    dashboards = ("grpo-sampling-weights",)

    needs = (("tool_failure_ratio",),)
    share: float = param(0.7, "median share of failed calls that is a breach", 0, 1)
    rows: int = param(10, "rows in the median; twice as many before them show whether failures fade", minimum=3)
    fading: float = param(0.95, "share of the median before them below which failures count as fading", 0, 1)

    def setup(self) -> None:
        """Nothing seen yet."""
        self.failed: deque[float] = deque(maxlen=3 * self.rows)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that says how many tool calls failed."""
        failed = number(record, "tool_failure_ratio")
        if failed is None:
            return SILENT
        self.failed.append(failed)
        if len(self.failed) < 3 * self.rows:
            return no_data(NotYet("too few rows yet"))
        middle, before = median(list(self.failed)[-self.rows :]), median(list(self.failed)[: -self.rows])
        if middle < max(self.share, self.fading * before) or run.trend.reward.gained():
            return QUIET
        message = f"{middle:.0%} of the tool calls fail (median of {self.rows} rows), the reward gains nothing"
        evidence = {"tool_failure_ratio": round(middle, 4), "tool_calls_mean": run.newest("tool_calls_mean")}
        return breach(value=middle, threshold=self.share, message=message, evidence=evidence)
