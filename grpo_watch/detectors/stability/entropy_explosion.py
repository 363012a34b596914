"""Entropy rose far above the run's own start: the policy drifts towards noise."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.likely_causes import CUT_IN_LOSS, RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_trend import WIDTH
from grpo_watch.engine.records import MetricRow, Reading, Severity
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import TrendSign, named, shown

GRAVE = frozenset({TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.CUT_OFF})
AGREEING = GRAVE | {TrendSign.LENGTH_ROSE}


class EntropyExplosion(Detector):
    """With a second sign the multiple is enough; a rise alone must reach a level that no reasoning run needs."""

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = (*RATES, CUT_IN_LOSS, UNHELD)

    needs = (("entropy",),)
    times: float = param(3.0, "multiple of the run's first entropy that is a breach", minimum=1)
    floor: float = param(0.5, "entropy (nats per token) below which nothing fires", minimum=0)
    alone: float = param(1.5, "entropy (nats per token) from which no second sign is needed", minimum=0)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries entropy."""
        if number(record, "entropy") is None:
            return SILENT
        entropy = run.trend.entropy
        if entropy.mean is None or entropy.start is None:
            return no_data(NotYet("too few rows with entropy yet"))
        bar = max(self.floor, self.times * entropy.start)
        if entropy.mean < bar or sorted(entropy.newest)[WIDTH // 2] < bar:  # a lone spike lifts the mean alone
            return QUIET
        signs = run.trend.signs() & AGREEING
        if not signs and entropy.mean < self.alone:
            return no_data(NotApplicable("entropy is high, but reward, spread and length are unaffected"))
        also = f"; {named(signs)}" if signs else ""
        return breach(
            value=entropy.mean,
            threshold=bar,
            severity=Severity.CRITICAL if signs & GRAVE else Severity.WARNING,
            message=f"entropy rose from {entropy.start:.3g} to {entropy.mean:.3g}{also}",
            evidence={
                "entropy": shown(entropy.mean),
                "first_entropy": shown(entropy.start),
                "reward_mean": shown(run.trend.reward.mean),
                "completion_truncated_ratio": shown(run.trend.truncated.mean),
            },
        )
