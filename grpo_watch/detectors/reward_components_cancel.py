"""Two reward components move against each other so that their sum stands still: what one gives, the other takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import combinations
from statistics import median
from types import MappingProxyType

from grpo_watch.core.batches import NewBatches
from grpo_watch.core.detector import ANY, QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import number
from grpo_watch.core.records import CompletionSummary, GroupSummary, MetricRow, Reading, Verdict
from grpo_watch.core.robust import correlation, spread
from grpo_watch.core.scored import cancelling

TABLE = "completions"
"""Key of the alert that speaks of the completions table; the rows' alert has none."""


class RewardComponentsCancel(Detector):
    """Anti-correlated pairs whose own spread is many times the total's."""

    reads = (MetricRow, CompletionSummary)
    needs = (("reward_mean", "reward_function_mean"), ("completions",))
    keys_matter = True
    params = MappingProxyType(
        {
            "rows": Param(30, "generation rows looked at", minimum=10),
            "correlation": Param(-0.9, "correlation of the two at most", -1, 0),
            "quiet": Param(0.25, "spread of the total at most, as a share of the smaller component's", 0.01, 1),
            "floor": Param(0.02, "spread of a component that is worth a look", minimum=0),
            "batches": Param(3, "dumped batches in a row whose groups must show it", minimum=2),
            "most": Param(12, "functions that are compared pairwise at most", minimum=2),
        }
    )
    rows: int
    correlation: float
    quiet: float
    floor: float
    batches: int
    most: int

    def setup(self) -> None:
        """Empty windows."""
        self.total: deque[float] = deque(maxlen=self.rows)
        self.parts: dict[str, deque[float]] = {}
        self.seen = self.streak = 0
        self.new = NewBatches()

    def observe(self, record: MetricRow | CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Take one generation row, and judge twice per window; or a dumped batch."""
        if isinstance(record, CompletionSummary):
            return self._table(self.new.take(record))
        keys = run.functions.of(record)
        total = number(record, "reward_mean")
        if total is None or not keys:
            return SILENT
        self.quiet_while = ANY if len(keys) == 1 else None
        if len(keys) == 1:
            return no_data("there is only one reward function")
        scores = [number(record, key.mean) for key in keys[: self.most]]
        if None in scores:
            return SILENT
        self.seen += 1
        self.total.append(total)
        for key, score in zip(keys, scores, strict=False):
            if key.name not in self.parts:
                self.parts[key.name] = deque(maxlen=self.rows)
            self.parts[key.name].append(score or 0.0)
        if self.seen < self.rows:
            return no_data("too few generation rows yet")
        return SILENT if self.seen % (self.rows // 2) else self._judge()

    def _table(self, groups: tuple[GroupSummary, ...]) -> Iterable[Reading]:
        if not groups:
            return SILENT
        found = cancelling(groups, self.correlation, self.quiet, self.floor)
        self.streak = 0 if found is None else self.streak + 1
        if found is None or self.streak < self.batches:
            return (Reading(Verdict.OK, TABLE),) if found is None else SILENT
        message = f"{found.one} and {found.other} cancel inside groups, where advantages are made"
        value, evidence = found.correlation, found.evidence()
        return (Reading(Verdict.BREACH, TABLE, value, self.correlation, message=message, evidence=evidence),)

    def _judge(self) -> Iterable[Reading]:
        spreads = {name: spread(sorted(part)) for name, part in self.parts.items() if len(part) == self.rows}
        total = spread(sorted(self.total))
        moving = [name for name, value in spreads.items() if value >= max(self.floor, total / self.quiet)]
        for one, other in combinations(moving, 2):
            related = correlation(self.parts[one], self.parts[other])
            if related <= self.correlation:
                return (self._breach(one, other, related, total / min(spreads[one], spreads[other])),)
        return QUIET

    def _breach(self, one: str, other: str, related: float, share: float) -> Reading:
        return Reading(
            Verdict.BREACH,
            value=related,
            threshold=self.correlation,
            message=f"{one} and {other} move against each other and the total reward stands still",
            evidence={
                "components": f"{one}, {other}",
                "correlation": round(related, 3),
                "total_spread_share": round(share, 3),
                "total": median(self.total),
            },
        )
