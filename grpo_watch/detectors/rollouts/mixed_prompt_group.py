"""Groups hold completions of different prompts: advantages compare answers to different questions."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, Reading, Verdict
from grpo_watch.engine.traits import WasteKind


class MixedPromptGroup(Detector):
    """Counts the groups of each new train batch that hold more than one prompt."""

    wastes = WasteKind.STEPS
    dashboards = ("grpo-sampling-weights",)

    reads = (CompletionSummary,)
    needs = (("completions",),)
    share: float = param(0.25, "share of a batch's groups with more than one prompt that is a breach", 0, 1)
    batches: int = param(2, "consecutive batches that must show it", minimum=1)

    def setup(self) -> None:
        """Start with no batches."""
        self.streak = self.first_step = 0

    def early_sign(self, run: RunView) -> Reading | None:  # noqa: ARG002
        """A batch with several prompts in a group, before a second one confirms it."""
        text = "groups of the newest dump hold completions of different prompts"
        return Reading(Verdict.BREACH, message=text) if self.streak else None

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch."""
        groups = record.groups
        if not groups:
            return SILENT if record.complete else no_data(record.reason)
        if record.by_prompt:
            return no_data("no dump holds whole groups: a console shows rows without them")
        if _may_be_evaluation(record.step, run):
            return no_data(
                NotApplicable("the batches were dumped at evaluation steps and may belong to the evaluation")
            )
        mixed = [group for group in groups if group.prompts > 1]
        if not mixed or len(mixed) < self.share * len(groups):
            self.streak = 0
            return QUIET
        self.first_step = self.first_step if self.streak else record.step
        self.streak += 1
        if self.streak < self.batches:
            return no_data(NotYet("mixed groups in too few batches yet"))
        most = max(group.prompts for group in mixed)
        return breach(
            value=len(mixed) / len(groups),
            threshold=self.share,
            message=f"{len(mixed)} of {len(groups)} groups hold completions of up to {most} different prompts",
            evidence={"mixed_groups": len(mixed), "groups": len(groups), "prompts_in_a_group": most},
            first_step=self.first_step,
            immediate=True,
        )


def _may_be_evaluation(step: int, run: RunView) -> bool:
    """Whether the batch may be an evaluation: unmarked, it may have another group size (num_generations_eval)."""
    every = run.number("eval_steps")
    return every is not None and every > 1 and step % every == 0
