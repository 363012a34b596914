"""Reward components against each other and the total: two cancel, or one falls while the total rises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from statistics import median

from grpo_watch.detectors.reward.components import (
    UNKNOWN,
    ComponentMedians,
    ComponentWindows,
    WindowMedian,
    WindowMedians,
    cancelling,
    scores_of,
)
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import CompletionSummary, GroupSummary, MetricRow, Reading, Verdict
from grpo_watch.engine.reward_functions import RewardFunctionKeys, contradicted
from grpo_watch.engine.window import correlation

TABLE = "completions"
"""Key of the alert about the completions table; the alert about rows has an empty key."""


class ComponentCourse(Detector, ABC):
    """Base of the two rules: judges rows that have the total and several functions, since the weights last changed."""

    weights: tuple[float, ...]

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one generation row."""
        self.know_weights(run)
        keys, total = run.functions.of(record), number(record, "reward_mean")
        if total is None or not keys:
            return SILENT
        if len(keys) == 1:
            return no_data(NotApplicable("there is only one reward function"))
        return self.judge_row(total, keys, record)

    def know_weights(self, run: RunView) -> None:
        """Start over if the settings give other weights than before."""
        if run.functions.weights != self.weights:
            self.setup()
            self.weights = run.functions.weights

    @abstractmethod
    def judge_row(self, total: float, keys: tuple[RewardFunctionKeys, ...], row: MetricRow) -> Iterable[Reading]:
        """Take the row; judge once enough rows have come."""


class RewardComponentsCancel(ComponentCourse):
    """Finds pairs of functions that are anti-correlated and spread far more than the total."""

    reads = (MetricRow, CompletionSummary)
    needs = (("reward_mean", "reward_function_mean"), ("completions",))
    rows: int = param(30, "generation rows in the window", minimum=10)
    correlation: float = param(-0.9, "highest correlation of the two that fires", -1, 0)
    quiet: float = param(0.25, "largest spread of the total that fires, as a share of the smaller component's", 0.01, 1)
    floor: float = param(0.02, "least spread of a component", minimum=0)
    batches: int = param(3, "dumped batches in a row that must show it inside groups", minimum=2)
    most: int = param(12, "most functions compared pairwise", minimum=2)

    def setup(self) -> None:
        """Start with empty windows."""
        self.weights: tuple[float, ...] = ()
        self.windows, self.streak = ComponentWindows(self.rows), 0

    def observe(self, record: MetricRow | CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one generation row, or a dumped batch."""
        if isinstance(record, MetricRow):
            return super().observe(record, run)
        self.know_weights(run)
        return self.judge_batch(run.functions.weighed(record.groups))

    def judge_row(self, total: float, keys: tuple[RewardFunctionKeys, ...], row: MetricRow) -> Iterable[Reading]:
        """Take the row; judge twice per window."""
        scores = scores_of(row, keys[: self.most])
        if None in scores:
            return SILENT
        self.windows.add_row(total, keys, [score or 0.0 for score in scores])
        if self.windows.seen < self.rows or self.windows.sums.wrong:
            return no_data(UNKNOWN if self.windows.sums.wrong else NotYet("too few generation rows yet"))
        return SILENT if self.windows.seen % (self.rows // 2) else self._judge()

    def judge_batch(self, groups: tuple[GroupSummary, ...]) -> Iterable[Reading]:
        """Judge whether two functions cancel inside the groups of a batch."""
        if not groups:
            return SILENT
        if contradicted(groups):
            self.streak = 0
            return no_data(UNKNOWN, TABLE)
        found = cancelling(groups, self.correlation, self.quiet, self.floor)
        self.streak = 0 if found is None else self.streak + 1
        if found is None or self.streak < self.batches:
            return (Reading(Verdict.OK, TABLE),) if found is None else SILENT
        message = f"{found.one} and {found.other} cancel each other inside groups, where advantages are computed"
        value, evidence = found.correlation, found.evidence()
        return breach(TABLE, value, self.correlation, message=message, evidence=evidence)

    def _judge(self) -> Iterable[Reading]:
        found = self.windows.cancelling(self.correlation, self.quiet, self.floor)
        if found is None:
            return QUIET
        message = f"{found.one} and {found.other} cancel each other: the total reward barely changes"
        value, evidence = found.correlation, {**found.evidence(), "total": median(self.windows.total)}
        return breach("", value, self.correlation, message=message, evidence=evidence)


BACK = (3, 7, 15)
"""How many blocks before the newest one to compare it with; sees falls over 40, 80 and 160 rows."""


class RewardComponentsDiverge(ComponentCourse):
    """Cuts total and components into blocks of rows and compares the newest block with earlier ones."""

    needs = (("reward_mean", "reward_function_mean"),)
    rows: int = param(10, "generation rows per block", minimum=4)
    fall: float = param(
        0.5, "share of its height above its lowest row so far (0 at most) that the component must lose", 0, 1
    )
    correlation: float = param(-0.5, "highest correlation of total and component, block by block, that fires", -1, 0)
    noise: float = param(4.0, "least fall and rise, in standard errors of a block's median", minimum=0)

    def setup(self) -> None:
        """Start with empty blocks."""
        self.weights: tuple[float, ...] = ()
        self.blocks = ComponentMedians(BACK[-1] + 1)

    def judge_row(self, total: float, keys: tuple[RewardFunctionKeys, ...], row: MetricRow) -> Iterable[Reading]:
        """Take the row; judge when a block is full."""
        self.blocks.add_row(total, keys, scores_of(row, keys))
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
