"""Entropy leaves the run's own range: it falls towards one answer, or rises towards noise."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.likely_causes import CUT_IN_LOSS, NARROW, RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_trend import WIDTH
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import Trend, TrendSign, named, shown

NARROWED = frozenset({TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.TEXTS_REPEAT})
WITH_A_FALL = NARROWED | {TrendSign.CUT_OFF, TrendSign.LENGTH_FELL}


NO_CHOICE = 0.02
"""Entropy in nats per token below which sampling is nearly deterministic: 0.02 is one token in 300 at even odds."""


ONE_IN = 500.0
"""Below an entropy of 1 / 500 nats per token, fewer than one token in 500 is drawn by chance."""


class EntropyCollapse(Detector):
    """Never judges the level alone: a confident policy may keep learning at any entropy."""

    explained_by = ("non-finite-metric",)
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = (*RATES, NARROW, UNHELD)

    needs = (("entropy",),)
    share: float = param(0.2, "share of the run's first entropy below which it has collapsed", 0, 1)
    rise: float = param(0.2, "rise of zero-spread groups or repeated texts that is a second sign", 0, 1)
    loss: float = param(0.3, "lost share of the best reward that is a second sign", 0, 1)
    least_start: float = param(0.02, "least first entropy (nats per token) from which a fall is judged", minimum=0)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries entropy."""
        if number(record, "entropy") is None:
            return SILENT
        trend = run.trend
        entropy = trend.entropy
        if entropy.mean is None or entropy.start is None:
            return no_data(NotYet("too few rows with entropy yet"))
        if entropy.start < self.least_start:
            return no_data(NotApplicable("entropy was near zero from the start"))
        if entropy.mean >= self.share * entropy.start:
            return QUIET
        signs = trend.signs() & WITH_A_FALL
        grave = signs & ({TrendSign.REWARD_FELL} if trend.reward.gained() or trend.reward.solved else NARROWED)
        says = named(signs) or self._narrows(trend) or self._one_text(trend)
        if not says:
            return no_data(NotApplicable("entropy is low, but reward, spread and texts are unaffected"))
        return breach(
            value=entropy.mean,
            threshold=self.share * entropy.start,
            severity=Severity.CRITICAL if grave else Severity.WARNING,
            message=f"entropy fell from {entropy.start:.3g} to {entropy.mean:.3g}; {says}",
            evidence={
                "entropy": shown(entropy.mean),
                "first_entropy": shown(entropy.start),
                "reward_zero_std_ratio": shown(trend.silent.mean),
                "reward_mean": shown(trend.reward.mean),
            },
        )

    def early_sign(self, run: RunView) -> Reading | None:
        """Entropy near zero at the first rows."""
        entropy = run.newest("entropy")
        if entropy is None or not 0.0 <= entropy < NO_CHOICE:
            return None
        text = "sampling is nearly deterministic"
        return Reading(Verdict.BREACH, message=text, evidence={"entropy": entropy})

    def _narrows(self, trend: Trend) -> str:
        """The milder signs (more zero-std groups or repeated texts, less reward) in words; empty if none."""
        for track, words in ((trend.silent, "groups lose their spread"), (trend.repeated, "texts begin to repeat")):
            if track.mean is not None and track.mean >= track.lowest + self.rise:
                return words
        return "reward falls" if trend.reward.fell(self.loss) else ""

    @staticmethod
    def _one_text(trend: Trend) -> str:
        """The words for an entropy that leaves almost one text per prompt, if no row shows whether groups differ."""
        known = trend.silent.mean is not None or trend.repeated.mean is not None
        if known or trend.entropy.mean is None or trend.reward.gained() or trend.reward.solved:
            return ""
        return "almost only one text per prompt is left" if 0.0 < trend.entropy.mean * ONE_IN < 1.0 else ""


NOISY = frozenset({TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.CUT_OFF})
WITH_A_RISE = NOISY | {TrendSign.LENGTH_ROSE}


class EntropyExplosion(Detector):
    """A multiple of the first entropy needs a second sign; a rise alone must exceed any reasoning run's level."""

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
        if entropy.mean < bar or sorted(entropy.newest)[WIDTH // 2] < bar:  # a lone spike raises only the mean
            return QUIET
        signs = run.trend.signs() & WITH_A_RISE
        if not signs and entropy.mean < self.alone:
            return no_data(NotApplicable("entropy is high, but reward, spread and length are unaffected"))
        also = f"; {named(signs)}" if signs else ""
        return breach(
            value=entropy.mean,
            threshold=bar,
            severity=Severity.CRITICAL if signs & NOISY else Severity.WARNING,
            message=f"entropy rose from {entropy.start:.3g} to {entropy.mean:.3g}{also}",
            evidence={
                "entropy": shown(entropy.mean),
                "first_entropy": shown(entropy.start),
                "reward_mean": shown(run.trend.reward.mean),
                "completion_truncated_ratio": shown(run.trend.truncated.mean),
            },
        )
