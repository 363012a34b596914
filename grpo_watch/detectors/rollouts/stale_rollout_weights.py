"""The rollout engine does not hold the trainer's weights: the gap between them grows as the trainer learns."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.likely_causes import WEIGHTS
from grpo_watch.detectors.shared.logprob_gap import (
    GAPS,
    METRICS,
    GapByAge,
    GapTrend,
    LogprobGap,
    newest_gap,
    unexplained,
)
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import Window

LOST = (
    "The engine lost its weights from one step to the next. Set vLLM's sleep level to 1 or reload the weights after "
    "waking; upgrade (ms-swift 3.12, TRL with PR #5313)."
)


class StaleRolloutWeights(Detector):
    """Looks for a gap that climbs as the policy learns, or leaps and stays."""

    wastes = WasteKind.STEPS
    likely_causes = WEIGHTS
    dashboards = ("grpo-sampling-weights",)

    needs = tuple((gap.metric,) for gap in GAPS)
    rows: int = param(20, "rows over which a climb is judged", minimum=10)
    climb: float = param(5.0, "multiple of the run's first gap that is a climb", minimum=2)
    order: float = param(0.8, "rank correlation of the gap with the summed learning rate that is a climb", 0, 1)
    leap: float = param(10.0, "multiple of the previous gaps that is a leap", minimum=2)
    leap_rows: int = param(3, "consecutive rows that make a leap", minimum=2)

    def setup(self) -> None:
        """Nothing known."""
        self.trend, self.entropy, self.by_age = GapTrend(self.rows), Window(5), GapByAge()

    def early_sign(self, run: RunView) -> Reading | None:
        """A gap as large as that of other weights."""
        found = newest_gap(run.values)
        if found is None or found[1] < found[0].broken or not unexplained(*found, run.newest("entropy")):
            return None
        text = f"{found[0].metric} is as large as with other weights than the trainer's"
        return Reading(Verdict.BREACH, message=text, evidence={found[0].metric: run.newest(found[0].metric)})

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge a row that carries a gap."""
        if METRICS.isdisjoint(record.values):
            return SILENT
        entropy, found = number(record, "entropy"), newest_gap(record.values)
        if entropy is not None:
            self.entropy.push(entropy)
        if found is None:
            return SILENT
        self.by_age.push(found[1], number(record, "sample_staleness_steps"))
        return self._gap(*found, record.step, run)

    def _gap(self, gap: LogprobGap, value: float, step: int, run: RunView) -> Iterable[Reading]:
        learnt = run.learning.total if run.learning.rate_known else float(step)
        trend = self.trend
        trend.push(learnt, value, leap=self.leap, broken=gap.broken)
        leapt = trend.leapt >= self.leap_rows
        climbs = trend.climbs(self.climb, gap.floor, self.order)
        if not (leapt or climbs) or learnt <= 0 or not unexplained(gap, trend.newest, self.entropy.median()):
            return QUIET if trend.ready else no_data(NotYet("too few rows yet"))
        how, ages = ("leapt", "") if leapt else ("climbed as the policy learned,", self.by_age.ageing())
        return breach(
            value=trend.newest,
            threshold=gap.floor,
            message=f"{gap.metric} {how} from {trend.first:.2g} to {trend.newest:.2g}{ages}",
            evidence={gap.metric: round(trend.newest, 6), "at_first": round(trend.first, 6), "learnt": learnt},
            severity=Severity.CRITICAL if leapt or trend.newest >= gap.broken else Severity.WARNING,
            hint=LOST if leapt else "",
        )
