"""Hardly any group has differing rewards: every advantage is zero and nothing is learned."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.course import Sign, named
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import FLOAT_NOISE, no_signal_ratio, number
from grpo_watch.core.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.core.window import Window

AGREES = frozenset({Sign.REWARD_FELL, Sign.CUT_OFF, Sign.TEXTS_REPEAT, Sign.ENTROPY_FELL, Sign.LENGTH_FELL})
"""Second signals that make dead groups a harm done now, not solved prompts."""
REPEATED = 0.5
"""Share of completions that repeat another one of their group which explains equal rewards."""


class RewardVarianceCollapse(Detector):
    """Averages the share of groups without spread over generation rows; says what kind of dead they are."""

    needs = (("reward_zero_std_ratio",), ("reward_group_std",), ("advantage_max", "advantage_min"))
    params = MappingProxyType(
        {
            "share": Param(0.9, "mean share of groups without spread that is a breach", 0, 1),
            "rows": Param(10, "generation rows averaged", minimum=3),
            "dead_rows": Param(5, "generation rows without any spread that suffice", minimum=3),
        }
    )
    share: float
    rows: int
    dead_rows: int

    def setup(self) -> None:
        """Empty windows."""
        self.silent = Window(self.rows)
        self.dead = 0
        self.alive = self.several = False
        self.lowest, self.highest = float("inf"), float("-inf")

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that tells about groups."""
        ratio = no_signal_ratio(record)
        if ratio is None:
            return SILENT
        self.silent.push(ratio)
        self.dead += 1
        if ratio < 1.0:
            self.dead = 0
            self.alive, self.several = True, self.several or ratio > 0.0
        reward = number(record, "reward_mean")
        if reward is not None:
            self.lowest, self.highest = min(self.lowest, reward), max(self.highest, reward)
        if not self._collapsed():
            return QUIET if len(self.silent) >= self.dead_rows else no_data("too few generation rows yet")
        mean = self.silent.mean() or 0.0
        agrees = frozenset() if run.course.reward.gained() else run.course.signs() & AGREES
        kind = self._kind(record, reward, run) + (f"; {named(agrees)}" if agrees else "")
        return (
            Reading(
                Verdict.BREACH,
                value=mean,
                threshold=self.share,
                severity=Severity.CRITICAL if agrees else None,
                message=f"{mean:.0%} of the groups have no reward spread: {kind}",
                evidence={"reward_zero_std_ratio": round(mean, 6), "rows": len(self.silent), "reward_mean": reward},
            ),
        )

    def _collapsed(self) -> bool:
        """Rows of a single group are dead by luck, a few together too: once one was alive only their mean counts."""
        if self.dead >= self.dead_rows and (self.several or not self.alive):
            return True
        return self.silent.full and self.silent.total >= self.share * self.rows - 1e-9

    def _kind(self, row: MetricRow, reward: float | None, run: RunView) -> str:
        if row.values.get("completion_truncated_ratio") == 1.0:
            return "every completion is cut at the length limit"
        copies = run.course.repeated.mean
        if copies is not None and copies >= REPEATED:
            return "the completions of a group are copies of each other"
        span = self.highest - self.lowest
        if reward is not None and span > FLOAT_NOISE:
            if reward >= self.highest - 0.05 * span:
                return "rewards sit at their highest (all right: solved prompts)"
            if reward <= self.lowest + 0.05 * span:
                return "rewards sit at their lowest (all wrong: prompts too hard)"
        if _constant(row, run):
            return "every completion of the batch gets the same reward (a constant function)"
        return "members of a group get equal rewards"


def _constant(row: MetricRow, run: RunView) -> bool:
    spreads = [number(row, key.std) for key in run.functions.of(row)]
    return bool(spreads) and all(std is not None and std < FLOAT_NOISE for std in spreads)
