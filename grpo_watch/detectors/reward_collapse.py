"""The reward falls far below the best that this run had reached, and stays there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.course import Sign, named, shown
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import number
from grpo_watch.core.long_mean import ROWS, LongMean
from grpo_watch.core.records import MetricRow, Reading, Severity, Verdict

AGREEING = frozenset(Sign) - {Sign.REWARD_FELL, Sign.SPREAD_LOST, Sign.TEXTS_REPEAT}


class RewardCollapse(Detector):
    """Compares with the best mean so far, which no collapse can lower; the fall must exceed the run's own noise.

    Means of a few rows tell at once where rows are quiet; where they are noisy, means of many rows tell later.
    """

    needs = (("reward_mean",),)
    params = MappingProxyType(
        {"share": Param(0.66, "share of the best reward (or of the gain) that must be lost", 0, 1)}
    )
    share: float

    def setup(self) -> None:
        """No row yet."""
        self.steps: deque[int] = deque(maxlen=ROWS)
        self.long = LongMean()

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the reward."""
        value = number(record, "reward_mean")
        if value is None:
            return SILENT
        self.steps.append(record.step)
        self.long.push(value)
        reward = run.course.reward
        if reward.mean is None:
            return no_data("too few rows with a reward yet")
        if reward.fell(self.share):
            return self._breach(run, reward.mean, reward.highest, self.steps[max(0, len(self.steps) - 3)])
        if self.long.mean is not None and self.long.fell(
            self.share, reward.noise, reward.mean
        ):  # a fall fills `share` of the rows
            return self._breach(run, self.long.mean, self.long.highest, self.steps[int((1 - self.share) * (ROWS - 1))])
        return QUIET

    @staticmethod
    def _breach(run: RunView, now: float, best: float, first_step: int) -> Iterable[Reading]:
        signs = run.course.signs() & AGREEING
        also = f"; {named(signs)}" if signs else ""
        return (
            Reading(
                Verdict.BREACH,
                value=now,
                threshold=best,
                severity=Severity.CRITICAL if signs else Severity.WARNING,
                message=f"reward fell from {best:.3g} to {now:.3g}{also}",
                evidence={
                    "reward_mean": shown(now),
                    "best": shown(best),
                    "noise": shown(run.course.reward.noise),
                },
                first_step=first_step,
            ),
        )
