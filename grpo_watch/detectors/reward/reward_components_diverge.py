"""The total reward rises while one of its components falls: one part improves at the expense of another."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.reward.components import UNKNOWN, ComponentMedians, WindowMedian, WindowMedians, scores_of
from grpo_watch.engine.detector import SILENT, Detector, NotApplicable, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Verdict
from grpo_watch.engine.window import correlation

BACK = (3, 7, 15)
"""Blocks that the newest one is compared with, counted backwards: falls over 40, 80 and 160 rows are seen."""


class RewardComponentsDiverge(Detector):
    """Cuts total and components into blocks of rows and compares the newest block with earlier ones."""

    needs = (("reward_mean", "reward_function_mean"),)
    rows: int = param(10, "generation rows per block", minimum=4)
    fall: float = param(
        0.5, "share of its height above its lowest row so far (0 at most) that the component must lose", 0, 1
    )
    correlation: float = param(-0.5, "highest correlation of total and component, block by block, that fires", -1, 0)
    noise: float = param(4.0, "least fall and rise, in standard errors of a block's median", minimum=0)

    def setup(self) -> None:
        """Empty blocks."""
        self.weights: tuple[float, ...] = ()
        self.blocks = ComponentMedians(BACK[-1] + 1)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Take one generation row; judge when a block is full."""
        if run.functions.weights != self.weights:
            self.setup()
            self.weights = run.functions.weights
        keys = run.functions.of(record)
        total = number(record, "reward_mean")
        if total is None or not keys:
            return SILENT
        if len(keys) == 1:
            return no_data(NotApplicable("there is only one reward function"))
        self.blocks.take(total, keys, scores_of(record, keys))
        return SILENT if len(self.blocks.total.values) < self.rows else self._block()

    def _block(self) -> Iterable[Reading]:
        self.blocks.close()
        if len(self.blocks.total.kept) <= BACK[0] or self.blocks.sums.wrong:
            return no_data(UNKNOWN if self.blocks.sums.wrong else NotYet("too few generation rows yet"))
        return [self._judge(name, part) for name, part in self.blocks.parts.items()]

    def _judge(self, name: str, part: WindowMedians) -> Reading:
        for back in BACK if self.blocks.whole(name) else ():
            if len(part.kept) > back and self._trade(part.kept[-1 - back], part.kept[-1], back):
                total = self.blocks.total.middles(back)
                related = correlation(total, part.middles(back))
                if related <= self.correlation:
                    return self._breach(name, part.middles(back), total, related)
        return Reading(Verdict.OK, name)

    def _trade(self, part: WindowMedian, now: WindowMedian, back: int) -> bool:
        lost_much = part.middle - now.middle >= self.fall * (part.middle - part.floor)
        total = self.blocks.total.kept
        return lost_much and part.above(now, self.noise) and total[-1].above(total[-1 - back], self.noise)

    def _breach(self, name: str, part: list[float], total: list[float], related: float) -> Reading:
        before, now, change = self.blocks.change(name, part)
        return Reading(
            Verdict.BREACH,
            name,
            value=now,
            message=f"the total reward rises while {change}",
            evidence={
                "component": name,
                "component_before": before,
                "component_now": now,
                "total_before": total[0],
                "total_now": total[-1],
                "correlation": round(related, 3),
            },
        )
