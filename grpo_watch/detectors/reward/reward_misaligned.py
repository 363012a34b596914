"""Rewards or advantages in the dump belong to different completions: wrong order, or wrong number of values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from grpo_watch.detectors.reward.components import AdvantageOrder, explained_by_signs, order_of
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, GroupSummary, Reading, Severity, Verdict

LENGTHS, SUMS = "lengths", "sums"
"""Keys of the alerts about column lengths and about sums; the alert about the order has none."""
WHOLE = 0.5
"""Share of groups whose advantages do not sum to 0 that fires; an estimator centres all groups or none."""

Both: TypeAlias = tuple[tuple[GroupSummary, ...], tuple[GroupSummary, ...]]
"""The groups with weighted scores, and as dumped: the columns may be in a different order from the weights."""


class RewardMisaligned(Detector):
    """Compares, inside groups, the order of the advantages with that of the rewards, and sums the advantages."""

    reads = (CompletionSummary,)
    needs = (("completions",),)
    against: float = param(0.3, "share of clear pairs with reversed advantages that fires (chance: 0.5)", 0, 1)
    pairs: int = param(20, "clear pairs needed in a batch", minimum=1)
    batches: int = param(3, "batches in a row that must show it", minimum=1)

    def setup(self) -> None:
        """No batch seen."""
        self.streak = self.first_step = self.uncentred = 0

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch."""
        dumped = record.groups
        if not dumped:
            return SILENT
        if record.by_prompt:
            return no_data("no dump holds advantages and rewards")
        return (_lengths(record), *self._order((run.functions.weighed(dumped), dumped), record.step))

    def _order(self, read: Both, step: int) -> Iterable[Reading]:
        order = order_of(read[0])
        if not order.groups:
            return no_data("no dump holds advantages and rewards")
        self.uncentred = self.uncentred + 1 if order.off_centre > WHOLE * order.groups else 0
        return (*self._turned(order, read, step), self._sums(order))

    def _turned(self, order: AdvantageOrder, read: Both, step: int) -> Iterable[Reading]:
        if order.pairs < self.pairs:
            return SILENT
        share = order.against / order.pairs
        if share < self.against or any(explained_by_signs(groups, self.pairs) for groups in read):
            self.streak = 0
            return QUIET
        self.first_step = self.first_step if self.streak else step
        self.streak += 1
        if self.streak < self.batches:
            return no_data(NotYet("advantages contradict the rewards in too few batches so far"))
        of = f"{order.against} of {order.pairs}"
        return breach(
            value=share,
            threshold=self.against,
            message=f"in {of} pairs inside groups, the completion with the higher rewards has the lower advantage",
            evidence={"against_ratio": round(share, 4), "pairs": order.pairs, "groups": order.groups},
            first_step=self.first_step,
            immediate=True,
        )

    def _sums(self, order: AdvantageOrder) -> Reading:
        if self.uncentred < self.batches:
            return Reading(Verdict.OK, SUMS)
        message = f"the advantages of {order.off_centre} of {order.groups} groups do not sum to 0"
        evidence = {"off_centre": order.off_centre, "groups": order.groups}
        return Reading(Verdict.BREACH, SUMS, message=message, evidence=evidence, severity=Severity.INFO)


def _lengths(record: CompletionSummary) -> Reading:
    if not record.odd:
        return Reading(Verdict.OK, LENGTHS)
    names = ", ".join(record.odd[:5])
    message = f"{names}: the number of values differs from the number of completions, so they cannot be assigned"
    return Reading(Verdict.BREACH, LENGTHS, message=message, evidence={"columns": names})
