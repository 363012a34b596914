"""Two consecutive checkpoints are byte-identical although optimizer steps lie between them."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.core.checkpoints import CheckpointHistory, changed, comparable
from grpo_watch.core.detector import QUIET, SILENT, Detector, RunView, no_data
from grpo_watch.core.records import CheckpointDigest, CheckpointKind, Reading, Verdict


class ParametersUnchanged(Detector):
    """Exact checksums, never a tolerance: at a learning rate of 1e-6 a healthy bf16 run changes few elements."""

    reads = (CheckpointDigest,)
    needs = (("checkpoints",),)
    survives_attempts = True

    def setup(self) -> None:
        """No checkpoint yet."""
        self.history = CheckpointHistory()

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Compare a complete checkpoint with the one before it."""
        if record.kind is CheckpointKind.ROLLOUT_ENGINE:
            return SILENT  # weights that don't follow the trainer's are stale-rollout-weights' matter
        if not record.complete or record.problems:
            return no_data("the newest checkpoint is incomplete or unusable")
        before = self.history.before(record)
        if before is None:
            return no_data("two checkpoints of different steps are needed")
        names = comparable(before, record)
        if not names:
            return no_data("consecutive checkpoints have no tensor in common")
        moved = changed(before, record, names)
        if moved:
            return QUIET
        steps = record.step - before.step
        return (
            Reading(
                Verdict.BREACH,
                value=0.0,
                message=f"all {len(names)} tensors of checkpoints {before.step} and {record.step} are byte-identical",
                evidence={
                    "identical_tensors": len(names),
                    "changed_tensors": 0,
                    "optimizer_steps_between": steps,
                    "earlier_checkpoint": before.path,
                    "later_checkpoint": record.path,
                },
                first_step=before.step,
                immediate=True,
            ),
        )
