"""Two consecutive checkpoints are byte-identical although optimizer steps lie between them."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.core.at_rest import BASE, LAYERS, layers_at_rest, still_the_base
from grpo_watch.core.checkpoints import (
    CheckpointHistory,
    Movers,
    changed,
    comparable,
    optimizer_between,
    proves_nothing,
    trained_by_adapter,
)
from grpo_watch.core.detector import QUIET, SILENT, Detector, RunView, no_data
from grpo_watch.core.records import CheckpointDigest, CheckpointKind, Reading, Scalar, Severity, Verdict
from grpo_watch.core.rounding import rounding

OPTIMIZER = "optimizer"
"""Key of the reading that speaks of the optimizer's saved state."""


class ParametersUnchanged(Detector):
    """Exact checksums, never a tolerance: at a learning rate of 1e-6 a healthy bf16 run changes few elements."""

    reads = (CheckpointDigest,)
    needs = (("checkpoints",),)
    survives_attempts = True

    def setup(self) -> None:
        """No checkpoint yet."""
        self.history, self.movers = CheckpointHistory(), Movers()
        self.open: set[str] = set()  # keys that breach

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Compare a complete checkpoint with the one before it."""
        if record.kind is CheckpointKind.ROLLOUT_ENGINE:
            return SILENT  # weights that don't follow the trainer's are stale-rollout-weights' matter
        if not record.complete or record.problems:
            return no_data("the newest checkpoint is incomplete or unusable")
        before = self.history.before(record)
        if before is None:
            return self._told(still_the_base(record)) or no_data("two checkpoints of different steps are needed")
        return self._compare(before, record, run)

    def _compare(self, before: CheckpointDigest, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        names = comparable(before, record)
        trained = trained_by_adapter(names)
        names = names if trained is None else [name for name in names if name in trained]
        if not names:
            return no_data("consecutive checkpoints have no tensor in common")
        moved = changed(before, record, names)
        if proves_nothing(record, moved):
            return no_data("these checkpoints are compared file by file, and files that differ prove nothing")
        self.movers.take(before, names, moved)
        if not moved:
            return (self._frozen(before, record, len(names)),)
        told = (*self._optimizer(before, record), *layers_at_rest(self.movers, record), *rounding(before, record, run))
        return (*QUIET, *self._told(told))

    def _told(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """What else is to say of a checkpoint, and the end of what it does not say any more."""
        breaching = {one.key for one in readings if one.verdict is Verdict.BREACH}
        judged = {one.key for one in readings} | {LAYERS, BASE}
        over = tuple(Reading(Verdict.OK, key) for key in sorted(self.open & judged - {one.key for one in readings}))
        self.open = (self.open - judged) | breaching
        return (*readings, *over)

    def _frozen(self, before: CheckpointDigest, record: CheckpointDigest, tensors: int) -> Reading:
        evidence: dict[str, Scalar] = {
            "identical_tensors": tensors,
            "changed_tensors": 0,
            "optimizer_steps_between": record.step - before.step,
            "earlier_checkpoint": before.path,
            "later_checkpoint": record.path,
        }
        message = f"all {tensors} tensors of checkpoints {before.step} and {record.step} are byte-identical"
        if self.movers.ever:
            evidence |= {"changed_before": len(self.movers.ever), "never_changed": tensors - len(self.movers.ever)}
            message += f" ({len(self.movers.ever)} of them had changed before)"
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
