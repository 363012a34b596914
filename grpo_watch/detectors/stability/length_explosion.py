"""Completions grew far beyond the run's own length while the reward fell or the length limit cuts them off."""

from __future__ import annotations

from math import inf
from types import MappingProxyType

from grpo_watch.detectors.shared.drift import CUT, GREW_FAR, more_cut_off, moved
from grpo_watch.detectors.shared.outlook import MARGIN, until, until_reward_falls
from grpo_watch.detectors.shared.setting_causes import CUT_IN_LOSS, RATES
from grpo_watch.detectors.stability.length_change import LengthChange, reward_fell
from grpo_watch.engine.block import Block
from grpo_watch.engine.detector import NEVER, Bounds, Param
from grpo_watch.engine.metric_trend import NoisyTrend
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import MOST, Trend, TrendSign, grown


class LengthExplosion(LengthChange):
    """Never judges growth alone: reasoning runs are meant to grow while the reward rises."""

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = (CUT_IN_LOSS, *RATES)

    needs = (("completion_length_mean", "reward_mean"), ("completion_length_mean", "completion_truncated_ratio"))
    params = MappingProxyType({"times": Param(1.5, "growth factor over the run's shortest mean length", minimum=1)})
    verb, extreme, also = "grew", "shortest", "completion_truncated_ratio"
    times: float

    def changed(self, length: NoisyTrend) -> bool:
        """``times`` the shortest, and no shorter than at the start."""
        return grown(length, self.times)

    def unchanged(self, length: NoisyTrend, block: Block) -> int:
        """All of it, if no mean is ``times`` the shortest."""
        means = block.means("completion_length_mean", length.means)
        shortest = min(length.lowest, *means)
        return len(block) if max(means) < self.times * shortest * (1.0 - MARGIN) else 0

    def nothing_agrees(self, trend: Trend, block: Block) -> int:
        """Rows on which the reward has not fallen, and few completions are cut off."""
        cut = until(trend.truncated, "completion_truncated_ratio", block, -inf, CUT)
        return min(until_reward_falls(trend, MOST, block), cut)

    def harmless(self, trend: Trend) -> Bounds | None:
        """A reward that can't have fallen, and a limit that cuts few off."""
        reward, cut = trend.reward.safe(MOST), (-inf, CUT - 1e-9)
        if reward is None or not trend.reward.within(*reward):
            return None
        if not trend.truncated.newest:
            return {"reward_mean": reward, "completion_truncated_ratio": NEVER}
        bounds = {"reward_mean": reward, "completion_truncated_ratio": cut}
        return bounds if trend.truncated.within(*cut) else None

    def before(self, length: NoisyTrend) -> tuple[float, float]:
        """The shortest mean length."""
        return length.lowest, self.times * length.lowest

    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """Reward fell, or the limit cuts off most completions without a gain (beside far growth: more than before)."""
        fell = reward_fell(trend.reward, extreme=grown(trend.length, 2 * self.times))
        cut = trend.cut_off() or (more_cut_off(trend) and moved(trend.length, GREW_FAR))
        return fell | {TrendSign.CUT_OFF} if cut and not trend.reward.gained() else fell
