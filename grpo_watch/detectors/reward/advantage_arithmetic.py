"""The dumped advantages are not what the dumped rewards give: masked samples vote, or groups are mixed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from grpo_watch.detectors.reward.group_arithmetic import Arithmetic, arithmetic, by_group
from grpo_watch.engine.detector import SILENT, Detector, RunView, no_data, param
from grpo_watch.engine.records import CompletionSummary, Reading, Verdict

VOTES, MIXED = "masked", "mixed"
"""Keys of the two alerts."""


class AdvantageArithmetic(Detector):
    """Recomputes them group by group. Mixed groups are claimed only where the settings say that groups are centred."""

    reads = (CompletionSummary,)
    explained_by = ("reward-misaligned", "mixed-prompt-group")

    needs = (("completions",),)
    share: float = param(0.5, "share of the groups that can tell, whose advantages are wrong, that is a breach", 0.1, 1)

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch."""
        if not record.groups:
            return SILENT
        size = run.number("num_generations")
        whole = [group for group in record.groups if not record.by_prompt or group.size == size]
        found = Counter(arithmetic(group) for group in run.functions.weighed(tuple(whole)))
        wrong, other = found[Arithmetic.MASKED_VOTE], found[Arithmetic.OTHER]
        clear = wrong + other + found[Arithmetic.RIGHT]
        if not clear:
            return no_data("no dump holds advantages that can be recomputed")
        grouped = by_group(run.setting("scale_rewards")) and not run.setting("leave_one_out")
        mixed = other if grouped else 0
        return (
            self._reading(VOTES, wrong, clear, Arithmetic.MASKED_VOTE),
            self._reading(MIXED, mixed, clear, Arithmetic.OTHER),
        )

    def _reading(self, key: str, wrong: int, clear: int, how: Arithmetic) -> Reading:
        if wrong < self.share * clear or not wrong:
            return Reading(Verdict.OK, key)
        message = f"the advantages of {wrong} of {clear} groups are not those of their rewards: {how.value}"
        return Reading(Verdict.BREACH, key, message=message, evidence={"wrong": wrong, "groups": clear})
