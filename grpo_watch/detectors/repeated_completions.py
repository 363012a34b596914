"""A prompt gets the text that it got at an earlier step: a collapsed policy, or random numbers that repeat."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.batches import NewBatches
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.examples import shown
from grpo_watch.core.records import CompletionSummary, Reading, Verdict
from grpo_watch.core.repeats import Repeated
from grpo_watch.core.window import Window

WHOLE = 0.5
"""Share of the window's groups that come again as a whole from which random numbers do."""
SAME_NUMBERS = (
    "Groups of different texts come again as a whole: the engine's seed is set anew at each step, or generations are "
    "taken from a cache. Set no per-request seed, seed once at the start, and look for a cache or a replay buffer."
)


class RepeatedCompletions(Detector):
    """Averages, over batches with prompts that came again, the share of completions that came again with them."""

    reads = (CompletionSummary,)
    needs = (("completions",),)
    params = MappingProxyType(
        {
            "repeated": Param(0.5, "share of a known prompt's completions whose text it had at an earlier step", 0, 1),
            "batches": Param(3, "batches with known prompts averaged", minimum=2),
            "min_characters": Param(64, "median length below which a group may repeat an answer by right", minimum=1),
        }
    )
    repeated: float
    batches: int
    min_characters: int

    def setup(self) -> None:
        """Nothing seen."""
        self.new, self.seen = NewBatches(), Repeated(self.min_characters)
        self.shares, self.wholes = Window(self.batches), Window(self.batches)

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge a batch against those at least two batches before it."""
        groups = run.functions.weighed(self.new.take(record))
        if not groups:
            return SILENT
        found = self.seen.take(groups, record.step)
        if found is None:
            return SILENT if self.shares.full else no_data("no prompt came again yet")
        self.shares.push(found.repeated / found.completions)
        self.wholes.push(found.whole / found.groups)
        share = self.shares.mean() or 0.0
        if not self.shares.full:
            return no_data("prompts came again in too few batches yet")
        if share < self.repeated:
            return QUIET
        whole = (self.wholes.mean() or 0.0) >= WHOLE
        return (
            Reading(
                Verdict.BREACH,
                value=share,
                threshold=self.repeated,
                message=f"{share:.0%} of the completions of prompts that came again are texts of an earlier step"
                + (": whole groups repeat, so the random numbers do" if whole else ": the policy says the same again"),
                evidence={
                    "repeated_ratio": round(share, 4),
                    "groups_again": found.groups,
                    "whole_groups": found.whole,
                    "earlier_step": found.last,
                    **shown(groups),
                },
                hint=SAME_NUMBERS if whole else "",
            ),
        )
