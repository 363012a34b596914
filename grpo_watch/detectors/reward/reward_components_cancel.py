"""Two reward components cancel each other, so their sum barely changes."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from grpo_watch.detectors.reward.components import UNKNOWN, ComponentWindows, cancelling, scores_of
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import CompletionSummary, GroupSummary, MetricRow, Reading, Verdict
from grpo_watch.engine.reward_functions import RewardFunctionKeys, contradicted

TABLE = "completions"
"""Key of the alert about the completions table; the alert about rows has none."""


class RewardComponentsCancel(Detector):
    """Anti-correlated pairs whose own spread is many times the total's."""

    reads = (MetricRow, CompletionSummary)
    needs = (("reward_mean", "reward_function_mean"), ("completions",))
    rows: int = param(30, "generation rows in the window", minimum=10)
    correlation: float = param(-0.9, "highest correlation of the two that fires", -1, 0)
    quiet: float = param(0.25, "largest spread of the total that fires, as a share of the smaller component's", 0.01, 1)
    floor: float = param(0.02, "least spread of a component", minimum=0)
    batches: int = param(3, "dumped batches in a row that must show it inside groups", minimum=2)
    most: int = param(12, "most functions compared pairwise", minimum=2)

    def setup(self) -> None:
        """Empty windows."""
        self.weights: tuple[float, ...] = ()
        self.windows, self.streak = ComponentWindows(self.rows), 0

    def observe(self, record: MetricRow | CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Take one generation row, and judge twice per window; or a dumped batch."""
        if run.functions.weights != self.weights:
            self.setup()
            self.weights = run.functions.weights
        if isinstance(record, CompletionSummary):
            return self._table(run.functions.weighed(record.groups))
        return self._row(record, run.functions.of(record))

    def _row(self, record: MetricRow, keys: tuple[RewardFunctionKeys, ...]) -> Iterable[Reading]:
        total = number(record, "reward_mean")
        if total is None or not keys:
            return SILENT
        if len(keys) == 1:
            return no_data(NotApplicable("there is only one reward function"))
        scores = scores_of(record, keys[: self.most])
        if None in scores:
            return SILENT
        self.windows.take(total, keys, [score or 0.0 for score in scores])
        if self.windows.seen < self.rows or self.windows.sums.wrong:
            return no_data(UNKNOWN if self.windows.sums.wrong else NotYet("too few generation rows yet"))
        return SILENT if self.windows.seen % (self.rows // 2) else self._judge()

    def _table(self, groups: tuple[GroupSummary, ...]) -> Iterable[Reading]:
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
