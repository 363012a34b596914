"""Hardly any group has differing rewards: every advantage is zero and nothing is learned."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import no_signal_ratio, number
from grpo_watch.core.names import split_label
from grpo_watch.core.records import MetricRow, Reading, Verdict
from grpo_watch.core.window import Window


class RewardVarianceCollapse(Detector):
    """Averages the share of groups without spread over generation rows; says whether all is right or wrong."""

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
        self.lowest, self.highest = float("inf"), float("-inf")

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Judge one train row that tells about groups."""
        ratio = no_signal_ratio(record)
        if ratio is None:
            return SILENT
        self.silent.push(ratio)
        self.dead = self.dead + 1 if ratio >= 1.0 else 0
        reward = number(record, "reward_mean")
        if reward is not None:
            self.lowest, self.highest = min(self.lowest, reward), max(self.highest, reward)
        if not self._collapsed():
            return QUIET if len(self.silent) >= self.dead_rows else no_data("too few generation rows yet")
        mean = self.silent.mean() or 0.0
        evidence = {"reward_zero_std_ratio": round(mean, 6), "rows": len(self.silent), "reward_mean": reward}
        message = f"{mean:.0%} of the groups have no reward spread: {self._kind(record, reward)}"
        return (Reading(Verdict.BREACH, value=mean, threshold=self.share, message=message, evidence=evidence),)

    def _collapsed(self) -> bool:
        if self.dead >= self.dead_rows:
            return True
        return self.silent.full and self.silent.total >= self.share * self.rows - 1e-9

    def _kind(self, row: MetricRow, reward: float | None) -> str:
        if row.values.get("completion_truncated_ratio") == 1.0:
            return "every completion is cut at the length limit"
        spreads = [v for key, v in row.values.items() if split_label(key)[0] == "reward_function_std" and v is not None]
        if spreads and max(spreads) < 1e-6:  # noqa: PLR2004 - float noise of equal rewards, see core/evidence.py
            return "every completion of the batch gets the same reward"
        if reward is not None and self.highest > self.lowest:
            if reward >= self.lowest + 0.95 * (self.highest - self.lowest):
                return "rewards sit at their highest (solved prompts)"
            if reward <= self.lowest + 0.05 * (self.highest - self.lowest):
                return "rewards sit at their lowest (prompts too hard)"
        return "members of a group get equal rewards"
