"""The reward falls far below the best that this run reached, and stays there."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.likely_causes import RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_trend import LAST, ROWS, LongMean, RewardTrend
from grpo_watch.engine.records import MetricRow, Reading, Severity, Tick
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import HALF, TrendSign, named, shown
from grpo_watch.engine.window import plain_sum

AGREEING = frozenset(TrendSign) - {TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.TEXTS_REPEAT}

STUCK = 20
"""Rows with exactly one reward, and twice as many as ever before, after which half of the best counts as lost."""
ENDED = 3600.0
"""Seconds without a row after which the last rows are all that will be seen for now."""
BROKEN = (
    "Score a good earlier answer manually with every reward function and read its log. Look for a judge or sandbox "
    "that does not respond, a missing parser or package, or an exception that ends in 0. Then resume from the last "
    "checkpoint before the fall."
)


class RewardCollapse(Detector):
    """Compares with the best mean so far, which no collapse can lower; the fall must exceed the run's own noise.

    Means of a few rows detect a fall at once if rows are quiet; noisy rows need means of many rows.
    """

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS
    likely_causes = (*RATES, UNHELD)

    reads = (MetricRow, Tick)
    needs = (("reward_mean",),)
    share: float = param(0.66, "share of the best reward (or of the gain) that must be lost", 0, 1)

    def observe(self, record: MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the reward, or the last rows of a log that has ended."""
        if isinstance(record, Tick):
            ended = run.latest_row_time is None or record.now - run.latest_row_time >= ENDED
            return _at_the_end(run) if ended and run.trend.reward.ends_low(self.share) else SILENT
        if number(record, "reward_mean") is None:
            return SILENT
        reward, long = run.trend.reward, run.trend.long_reward
        if reward.mean is None:
            return no_data(NotYet("too few rows with a reward so far"))
        if reward.fell(self.share) or self._stuck(reward):
            rows = 3 if reward.fell(self.share) else reward.same
            return self._breach(run, reward.mean, reward.highest, rows)
        if self._fell_for_long(reward, long):
            return self._breach(run, long.mean or 0.0, long.highest, ROWS - int((1 - self.share) * (ROWS - 1)))
        return QUIET

    def _fell_for_long(self, reward: RewardTrend, long: LongMean) -> bool:
        return long.fell(self.share, reward.noise, reward.mean or 0.0, reward.spread.highest)

    def _stuck(self, reward: RewardTrend) -> bool:
        """Whether the reward has been one number for long, far below the best."""
        return reward.same >= max(STUCK, 2 * reward.same_before) and reward.fell(min(self.share, HALF))

    @staticmethod
    def _breach(run: RunView, now: float, best: float, rows: int) -> Iterable[Reading]:
        """The breach; ``rows`` of the newest rows must be low for the mean to have fallen this far."""
        trend = run.trend
        signs = trend.signs() & AGREEING
        broken = not signs and len(set(trend.reward.newest)) == 1 and trend.silent.mean == 1.0
        also = f"; {named(signs)}" if signs else ""
        if broken:
            also = ", the same for every completion, while the policy is unchanged: the reward function broke"
        return breach(
            value=now,
            threshold=best,
            severity=Severity.CRITICAL if signs or broken else Severity.WARNING,
            message=f"reward fell from {_apart(best, now)}{also}",
            evidence={
                "reward_mean": shown(now),
                "best": shown(best),
                "noise": shown(run.trend.reward.noise),
            },
            hint=BROKEN if broken else "",
            first_step=run.recent.step_back("reward_mean", rows),
        )


def _at_the_end(run: RunView) -> Iterable[Reading]:
    """A fall that the log is too short to confirm: a warning at once."""
    reward = run.trend.reward
    now = plain_sum(list(reward.newest)[-LAST:]) / LAST
    return breach(
        value=now,
        threshold=reward.highest,
        severity=Severity.WARNING,
        message=f"reward fell from {_apart(reward.highest, now)} within the last {LAST} rows of the log",
        evidence={"reward_mean": shown(now), "best": shown(reward.highest), "noise": shown(reward.noise)},
        first_step=run.recent.step_back("reward_mean", LAST),
        immediate=True,
    )


def _apart(best: float, now: float) -> str:
    """Both means, with more digits where a large constant in them would hide the fall: ``100.9 to 100.004``."""
    digits = 3 if best - now >= max(abs(best), abs(now)) / 10 else 6
    return f"{best:.{digits}g} to {now:.{digits}g}"
