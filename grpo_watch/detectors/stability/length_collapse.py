"""Completions shrank to a fraction of the run's own length, and the reward fell or lost its spread."""

from __future__ import annotations

from math import sqrt

from grpo_watch.detectors.stability.length_change import ERRORS, LengthChange, reward_fell
from grpo_watch.engine.detector import param
from grpo_watch.engine.metric_trend import WIDTH, NoisyTrend
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import SHRANK_FAR, Trend, TrendSign


class LengthCollapse(LengthChange):
    """Never judges shrinking alone: shorter answers that score as well are an improvement."""

    explained_by = ("non-finite-metric",)
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL

    needs = (("completion_length_mean", "reward_mean"),)
    share: float = param(0.3, "fires below this share of the run's longest mean length", 0, 1)
    verb, extreme, also = "shrank", "longest", "reward_zero_std_ratio"

    def changed(self, length: NoisyTrend) -> bool:
        """At most ``share`` of the longest is left on every row, or as a mean beyond the noise of a row."""
        if length.mean is None or length.ratio(length.highest) > self.share:
            return False
        if max(length.newest) <= self.share * length.highest:
            return True
        return length.highest - length.mean >= ERRORS * length.noise * sqrt(2.0 / WIDTH)

    def before(self, length: NoisyTrend) -> tuple[float, float]:
        """The longest mean length."""
        return length.highest, self.share * length.highest

    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """Reward fell, or its spread is lost; far below the first length, a reward below its start is enough.

        A lost spread proves nothing where long completions were an interlude and the first length is back.
        """
        length = trend.length
        spread = trend.signs() & {TrendSign.SPREAD_LOST} if length.ratio(length.start) < 1.0 else frozenset[TrendSign]()
        fell = reward_fell(trend.reward, extreme=length.ratio(length.highest) <= self.share / 2)
        if length.moved(SHRANK_FAR) and not trend.reward.gained() and trend.reward_below_start():
            fell = frozenset({TrendSign.REWARD_FELL})
        return spread | fell
