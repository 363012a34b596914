"""The total reward rises while one of its components falls: one part is optimised at the cost of another."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.blocks import Block, Blocks
from grpo_watch.core.detector import ANY, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import number
from grpo_watch.core.records import MetricRow, Reading, Verdict
from grpo_watch.core.robust import correlation

BACK = (3, 7, 15)
"""Blocks that the newest one is compared with, counted backwards: falls over 40, 80 and 160 rows are seen."""


class RewardComponentsDiverge(Detector):
    """Cuts total and components into blocks of rows and compares the newest block with earlier ones."""

    needs = (("reward_mean", "reward_function_mean"),)
    keys_matter = True
    params = MappingProxyType(
        {
            "rows": Param(10, "generation rows of a block", minimum=4),
            "fall": Param(
                0.5, "share of its height above its lowest row until then (0 at most) that the component lost", 0, 1
            ),
            "correlation": Param(-0.5, "correlation of total and component, block by block, at most", -1, 0),
            "noise": Param(4.0, "fall and rise in standard errors of a block's median", minimum=0),
        }
    )
    rows: int
    fall: float
    correlation: float
    noise: float

    def setup(self) -> None:
        """Empty blocks."""
        self.total = Blocks(BACK[-1] + 1)
        self.parts: dict[str, Blocks] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Take one generation row; judge when a block is full."""
        keys = run.functions.of(record)
        total = number(record, "reward_mean")
        if total is None or not keys:
            return SILENT
        self.quiet_while = ANY if len(keys) == 1 else None
        if len(keys) == 1:
            return no_data("there is only one reward function")
        self.total.values.append(total)
        for key in keys:
            score = number(record, key.mean)
            if score is not None:
                part = self.parts.get(key.name) or self.parts.setdefault(key.name, Blocks(BACK[-1] + 1))
                part.values.append(score)
        if len(self.total.values) < self.rows:
            return SILENT
        for series in (self.total, *self.parts.values()):
            series.close()
        if len(self.total.kept) <= BACK[0]:
            return no_data("too few generation rows yet")
        return [self._judge(name, part) for name, part in self.parts.items()]

    def _judge(self, name: str, part: Blocks) -> Reading:
        if len(part.kept) == len(self.total.kept):
            for back in BACK:
                if len(part.kept) > back and self._trade(part.kept[-1 - back], part.kept[-1], back):
                    related = correlation(self.total.middles(back), part.middles(back))
                    if related <= self.correlation:
                        return self._breach(name, part.middles(back), self.total.middles(back), related)
        return Reading(Verdict.OK, name)

    def _trade(self, part: Block, now: Block, back: int) -> bool:
        lost_much = part.middle - now.middle >= self.fall * (part.middle - part.floor)
        return (
            lost_much
            and part.above(now, self.noise)
            and self.total.kept[-1].above(self.total.kept[-1 - back], self.noise)
        )

    @staticmethod
    def _breach(name: str, part: list[float], total: list[float], related: float) -> Reading:
        return Reading(
            Verdict.BREACH,
            name,
            value=part[-1],
            message=f"the total reward rises while {name} fell from {part[0]:.3g} to {part[-1]:.3g}",
            evidence={
                "component": name,
                "component_before": part[0],
                "component_now": part[-1],
                "total_before": total[0],
                "total_now": total[-1],
                "correlation": round(related, 3),
            },
        )
