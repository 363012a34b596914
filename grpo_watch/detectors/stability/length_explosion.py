"""Completions grew far beyond the run's own length while the reward fell or the length limit cuts them off."""

from __future__ import annotations

from grpo_watch.detectors.shared.likely_causes import CUT_IN_LOSS, RATES
from grpo_watch.detectors.stability.length_change import LengthChange, reward_fell
from grpo_watch.engine.detector import param
from grpo_watch.engine.metric_trend import NoisyTrend
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import GREW_FAR, Trend, TrendSign, grown


class LengthExplosion(LengthChange):
    """Never judges growth alone: reasoning runs are meant to grow while the reward rises."""

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = (CUT_IN_LOSS, *RATES)

    needs = (("completion_length_mean", "reward_mean"), ("completion_length_mean", "completion_truncated_ratio"))
    times: float = param(1.5, "growth factor over the run's shortest mean length", minimum=1)
    verb, extreme, also = "grew", "shortest", "completion_truncated_ratio"

    def changed(self, length: NoisyTrend) -> bool:
        """``times`` the shortest, and no shorter than at the start."""
        return grown(length, self.times)

    def before(self, length: NoisyTrend) -> tuple[float, float]:
        """The shortest mean length."""
        return length.lowest, self.times * length.lowest

    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """Reward fell, or the limit cuts off most completions without a gain (beside far growth: more than before)."""
        fell = reward_fell(trend.reward, extreme=grown(trend.length, 2 * self.times))
        cut = trend.cut_off() or (trend.more_cut_off() and trend.length.moved(GREW_FAR))
        return fell | {TrendSign.CUT_OFF} if cut and not trend.reward.gained() else fell
