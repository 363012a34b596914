"""Completions grow or shrink far beyond the run's own length, and a second sign shows harm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import sqrt
from typing import ClassVar

from grpo_watch.detectors.shared.likely_causes import CUT_IN_LOSS, RATES
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_trend import WIDTH, MetricTrend, NoisyTrend, RewardTrend
from grpo_watch.engine.records import MetricRow, Reading, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import GREW_FAR, MOST, SHRANK_FAR, Trend, TrendSign, grown, named, shown

ERRORS = 4.0
"""Standard errors by which the reward must have fallen with an extreme change of length (six with a lesser one): with
few completions or few rows, six may exceed the whole reward."""


class LengthChange(Detector, ABC):
    """Base of the two rules; a change of length alone is never a breach."""

    verb: ClassVar[str]
    """The verb of the message."""
    extreme: ClassVar[str]
    """Evidence key of the earlier length."""
    also: ClassVar[str]
    """Another metric that the evidence shows."""

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the mean length."""
        if number(record, "completion_length_mean") is None:
            return SILENT
        trend = run.trend
        if trend.length.mean is None:
            return no_data(NotYet("too few rows with a length yet"))
        passed = self.passed(trend.length)
        signs = frozenset[TrendSign]() if passed is None else self.agreeing(trend)
        return (self._breach(trend, trend.length.mean, passed, signs),) if passed and signs else QUIET

    @abstractmethod
    def passed(self, length: NoisyTrend) -> tuple[float, float] | None:
        """The earlier length and the limit, if the newest lengths exceed it, else None."""

    @abstractmethod
    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """The other signs that the run is harmed."""

    def _breach(self, trend: Trend, now: float, passed: tuple[float, float], signs: frozenset[TrendSign]) -> Reading:
        was, bar = passed
        other: MetricTrend = trend.silent if self.also == "reward_zero_std_ratio" else trend.truncated
        return Reading(
            Verdict.BREACH,
            value=now,
            threshold=bar,
            message=f"completions {self.verb} from {was:.4g} to {now:.4g} tokens; {named(signs)}",
            evidence={
                "completion_length_mean": shown(now),
                self.extreme: shown(was),
                self.also: shown(other.mean),
                "reward_mean": shown(trend.reward.mean),
            },
        )


def reward_fell(reward: RewardTrend, *, extreme: bool) -> frozenset[TrendSign]:
    """A sign if most of the best reward is lost; an extreme change of length requires less certainty."""
    fell = reward.fell(MOST) or (extreme and reward.below_best(MOST, ERRORS))
    return frozenset({TrendSign.REWARD_FELL} if fell else ())


class LengthCollapse(LengthChange):
    """Never judges shrinking alone: shorter answers that score as well are an improvement."""

    explained_by = ("non-finite-metric",)
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL

    needs = (("completion_length_mean", "reward_mean"),)
    share: float = param(0.3, "fires below this share of the run's longest mean length", 0, 1)
    verb, extreme, also = "shrank", "longest", "reward_zero_std_ratio"

    def passed(self, length: NoisyTrend) -> tuple[float, float] | None:
        """Passed if at most ``share`` of the longest is left, on every row or as a mean beyond the rows' noise."""
        longest, bar = length.highest, self.share * length.highest
        if length.mean is None or length.ratio(longest) > self.share:
            return None
        clear = max(length.newest) <= bar or longest - length.mean >= ERRORS * length.noise * sqrt(2.0 / WIDTH)
        return (longest, bar) if clear else None

    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """Reward fell, or its spread is lost; far below the first length, a reward below its start suffices.

        A lost spread proves nothing if lengths are back at their start after a longer phase, or if the reward has
        gained: zero-std groups are then those of solved prompts.
        """
        length = trend.length
        lost = length.ratio(length.start) < 1.0 and not trend.reward.gained()
        spread = trend.signs() & {TrendSign.SPREAD_LOST} if lost else frozenset[TrendSign]()
        fell = reward_fell(trend.reward, extreme=length.ratio(length.highest) <= self.share / 2)
        if length.moved(SHRANK_FAR) and not trend.reward.gained() and trend.reward_below_start():
            fell = frozenset({TrendSign.REWARD_FELL})
        return spread | fell


class LengthExplosion(LengthChange):
    """Never judges growth alone: reasoning runs are meant to grow while the reward rises."""

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = (CUT_IN_LOSS, *RATES)

    needs = (("completion_length_mean", "reward_mean"), ("completion_length_mean", "completion_truncated_ratio"))
    times: float = param(1.5, "growth factor over the run's shortest mean length", minimum=1)
    verb, extreme, also = "grew", "shortest", "completion_truncated_ratio"

    def passed(self, length: NoisyTrend) -> tuple[float, float] | None:
        """Passed if ``times`` the shortest is exceeded, and lengths are not below their start."""
        return (length.lowest, self.times * length.lowest) if grown(length, self.times) else None

    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """Reward fell, or the limit cuts off most completions without a gain (beside far growth: more than before)."""
        fell = reward_fell(trend.reward, extreme=grown(trend.length, 2 * self.times))
        cut = trend.cut_off() or (trend.more_cut_off() and trend.length.moved(GREW_FAR))
        gained = trend.reward.gained() or trend.reward_above_start()
        return fell | {TrendSign.CUT_OFF} if cut and not gained else fell
