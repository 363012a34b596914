"""Completions of one prompt differ by a word or two: the group explores one answer, not many."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.batches import NewBatches
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.records import CompletionSummary, GroupSummary, Reading, Verdict
from grpo_watch.core.window import Window


class NearDuplicateCompletions(Detector):
    """Averages the share of completions that repeat another one nearly; exact copies alone are another rule's."""

    reads = (CompletionSummary,)
    needs = (("completions",),)
    params = MappingProxyType(
        {
            "repeated": Param(0.5, "share of completions that repeat another of their group, nearly or exactly", 0, 1),
            "nearly": Param(0.25, "share that must repeat nearly, but not exactly", 0, 1),
            "batches": Param(5, "distinct batches averaged", minimum=2),
        }
    )
    repeated: float
    nearly: float
    batches: int

    def setup(self) -> None:
        """Empty windows."""
        self.new = NewBatches()
        self.all, self.near = Window(self.batches), Window(self.batches)

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Judge one batch together with those before it."""
        groups = self.new.take(record)
        told = [group for group in groups if group.near_unique is not None and group.prompts == 1 and group.size > 1]
        if not told:
            return no_data("the texts were not compared") if groups else SILENT
        size = sum(group.size for group in told)
        self.all.push(sum(group.size - _different(group) for group in told) / size)
        self.near.push(sum(group.unique - _different(group) for group in told) / size)
        if not self.all.full:
            return no_data("too few batches yet")
        repeated, nearly = self.all.mean() or 0.0, self.near.mean() or 0.0
        if repeated < self.repeated or nearly < self.nearly:
            return QUIET
        return (
            Reading(
                Verdict.BREACH,
                value=repeated,
                threshold=self.repeated,
                message=f"{repeated:.0%} of the completions repeat another one of their group but for a few words",
                evidence={
                    "repeated_ratio": round(repeated, 4),
                    "near_ratio": round(nearly, 4),
                    "different_texts": sum(map(_different, told)),
                    "completions": size,
                },
            ),
        )


def _different(group: GroupSummary) -> int:
    return group.unique if group.near_unique is None else group.near_unique
