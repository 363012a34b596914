"""What the rules about growing and shrinking completions share: the run's own lengths as measure, and a second sign."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, no_data
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_trend import MetricTrend, NoisyTrend, RewardTrend
from grpo_watch.engine.records import MetricRow, Reading, Verdict
from grpo_watch.engine.trend import MOST, Trend, TrendSign, named, shown

ERRORS = 4.0
"""Standard errors by which the reward must have fallen with an extreme change of length (six with a lesser one): of
rows of few completions, or few rows, six may be more than the whole reward."""


class LengthChange(Detector, ABC):
    """Base of the two rules; a change of length alone is never judged."""

    verb: ClassVar[str]
    """What completions did."""
    extreme: ClassVar[str]
    """What the evidence calls the length that they had before."""
    also: ClassVar[str]
    """Another metric of the course that the evidence shows."""

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the mean length."""
        if number(record, "completion_length_mean") is None:
            return SILENT
        trend = run.trend
        if trend.length.mean is None:
            return no_data(NotYet("too few rows with a length yet"))
        if not self.changed(trend.length):
            return QUIET
        signs = self.agreeing(trend)
        return (self._breach(trend, trend.length.mean, signs),) if signs else QUIET

    @abstractmethod
    def changed(self, length: NoisyTrend) -> bool:
        """Whether the newest lengths are far from those of the run."""

    @abstractmethod
    def before(self, length: NoisyTrend) -> tuple[float, float]:
        """The length that the newest is compared with, and the bar that it passed."""

    @abstractmethod
    def agreeing(self, trend: Trend) -> frozenset[TrendSign]:
        """What else says that the run is harmed."""

    def _breach(self, trend: Trend, now: float, signs: frozenset[TrendSign]) -> Reading:
        was, bar = self.before(trend.length)
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
    """The sign that most of the best reward is lost; with an extreme change of length less certainty suffices."""
    fell = reward.fell(MOST) or (extreme and reward.below_best(MOST, ERRORS))
    return frozenset({TrendSign.REWARD_FELL} if fell else ())
