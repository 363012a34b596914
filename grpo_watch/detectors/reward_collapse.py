"""The reward falls far below the best that this run had reached, and stays there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from types import MappingProxyType

from grpo_watch.core.course import Sign, named, shown
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import number
from grpo_watch.core.records import MetricRow, Reading, Severity, Verdict

AGREEING = frozenset(Sign) - {Sign.REWARD_FELL, Sign.SPREAD_LOST, Sign.TEXTS_REPEAT}


class RewardCollapse(Detector):
    """Compares with the best mean so far, which no collapse can lower; the fall must exceed the run's own noise."""

    needs = (("reward_mean",),)
    params = MappingProxyType(
        {"share": Param(0.66, "share of the best reward (or of the gain) that must be lost", 0, 1)}
    )
    share: float

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the reward."""
        if number(record, "reward_mean") is None:
            return SILENT
        reward = run.course.reward
        if reward.mean is None:
            return no_data("too few rows with a reward yet")
        if not reward.fell(self.share):
            bounds = reward.safe(self.share)
            self.quiet_while = {"reward_mean": bounds} if bounds is not None and reward.within(*bounds) else None
            return QUIET
        self.quiet_while = None
        signs = run.course.signs() & AGREEING
        also = f"; {named(signs)}" if signs else ""
        return (
            Reading(
                Verdict.BREACH,
                value=reward.mean,
                threshold=reward.highest,
                severity=Severity.CRITICAL if signs else Severity.WARNING,
                message=f"reward fell from {reward.highest:.3g} to {reward.mean:.3g}{also}",
                evidence={
                    "reward_mean": shown(reward.mean),
                    "best": shown(reward.highest),
                    "noise": shown(reward.noise),
                },
                first_step=_third_last(run),
            ),
        )


def _third_last(run: RunView) -> int:
    """The step of the third newest row with a reward: the newest mean is that of five."""
    steps = [row.step for row in islice(reversed(run.recent), 64) if row.values.get("reward_mean") is not None]
    return steps[:3][-1]
