"""Several metrics drift in harmful directions at once, each too little for a rule of its own."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.drift import described, drift
from grpo_watch.detectors.shared.likely_causes import CUT_IN_LOSS, RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import Trend, shown


class SlowDegradation(Detector):
    """The signs have to hold for a share of the run, because means of a few noisy rows agree by chance now and then."""

    explained_by = (
        "non-finite-metric",
        "stale-rollout-weights",
        "reward-collapse",
        "kl-explosion",
        "entropy-explosion",
        "entropy-collapse",
        "length-explosion",
        "length-collapse",
        "completions-truncated",
    )
    wastes = WasteKind.STEPS
    likely_causes = (*RATES, UNHELD, CUT_IN_LOSS)

    needs = (
        ("reward_mean", "completion_length_mean"),
        ("reward_mean", "completion_truncated_ratio"),
        ("reward_mean", "entropy"),
        ("reward_mean", "kl_reference"),
    )
    rows: int = param(4, "rows in a row on which the signs agree, at least", minimum=1)
    share: float = param(0.08, "share of the run's rows on which they agree, at least", 0, 1)

    def setup(self) -> None:
        """No row has shown the signs."""
        self.held = 0

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the reward."""
        if number(record, "reward_mean") is None:
            return SILENT
        if run.trend.reward.mean is None:
            return no_data(NotYet("too few rows with a reward so far"))
        signs = drift(run.trend)
        self.held = self.held + 1 if signs else 0
        needed = max(self.rows, self.share * run.trend.reward.rows)
        if self.held < needed:
            return QUIET
        return breach(
            value=float(self.held),
            threshold=needed,
            message=f"the run degrades slowly: {described(signs)}",
            evidence=_evidence(run.trend),
            first_step=run.recent.step_back("reward_mean", self.held),
        )


def _evidence(trend: Trend) -> dict[str, float | None]:
    """Newest means next to former ones."""
    pairs = {
        "reward_mean": (trend.reward.mean, trend.reward.highest, "best_reward"),
        "completion_length_mean": (trend.length.mean, trend.length.start, "first_length"),
        "completion_truncated_ratio": (trend.truncated.mean, trend.truncated.lowest, "least_truncated_ratio"),
        "entropy": (trend.entropy.mean, trend.entropy.start, "first_entropy"),
        "kl_reference": (trend.kl.mean, trend.kl.lowest, "least_kl"),
    }
    evidence: dict[str, float | None] = {}
    for metric, (now, was, before) in pairs.items():
        if now is not None:
            evidence |= {metric: shown(now), before: shown(was)}
    return evidence
