"""Two consecutive checkpoints are byte-identical although optimizer steps lie between them."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.core.checkpoints import CheckpointHistory, changed, comparable, optimizer_between, proves_nothing
from grpo_watch.core.detector import QUIET, SILENT, Detector, RunView, no_data
from grpo_watch.core.records import CheckpointDigest, CheckpointKind, Reading, Scalar, Severity, Verdict

OPTIMIZER = "optimizer"
"""Key of the reading that speaks of the optimizer's saved state."""


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
        return self._compare(before, record)

    def _compare(self, before: CheckpointDigest, record: CheckpointDigest) -> Iterable[Reading]:
        names = comparable(before, record)
        if not names:
            return no_data("consecutive checkpoints have no tensor in common")
        moved = changed(before, record, names)
        if proves_nothing(record, moved):
            return no_data("these checkpoints are compared file by file, and files that differ prove nothing")
        if moved:
            return (*QUIET, *self._optimizer(before, record))
        return (self._frozen(before, record, len(names)),)

    @staticmethod
    def _frozen(before: CheckpointDigest, record: CheckpointDigest, tensors: int) -> Reading:
        evidence: dict[str, Scalar] = {
            "identical_tensors": tensors,
            "changed_tensors": 0,
            "optimizer_steps_between": record.step - before.step,
            "earlier_checkpoint": before.path,
            "later_checkpoint": record.path,
        }
        message = f"all {tensors} tensors of checkpoints {before.step} and {record.step} are byte-identical"
        optimizer = optimizer_between(before, record)
        if optimizer.get("masters"):
            message += "; the float32 copies changed, so the updates are lost in rounding"
        elif optimizer.get("moments"):
            message += "; the optimizer's moments changed, so gradients arrive and the updates are lost"
        elif "moments" in optimizer:
            message += "; neither did the optimizer's moments change, so it never stepped"
        evidence |= {f"optimizer_{kind}": "changed" if moved else "unchanged" for kind, moved in optimizer.items()}
        return Reading(Verdict.BREACH, "", 0.0, None, message, evidence, first_step=before.step, immediate=True)

    @staticmethod
    def _optimizer(before: CheckpointDigest, record: CheckpointDigest) -> tuple[Reading, ...]:
        """Weights that move beside moments that don't: the optimizer that is saved is not the one that trains."""
        moments = optimizer_between(before, record).get("moments")
        if moments is None or moments:
            return () if moments is None else (Reading(Verdict.OK, OPTIMIZER),)
        count = record.optimizer.get("moment_tensors", 0)
        message = (
            f"all {count} moment tensors of the saved optimizer are the same at checkpoints {before.step} and "
            f"{record.step} although the weights changed: a resume starts with a lost optimizer"
        )
        evidence: dict[str, Scalar] = {"moment_tensors": count, "checkpoint": record.path}
        return (
            Reading(
                Verdict.BREACH,
                OPTIMIZER,
                message=message,
                evidence=evidence,
                severity=Severity.WARNING,
                first_step=before.step,
                immediate=True,
            ),
        )
