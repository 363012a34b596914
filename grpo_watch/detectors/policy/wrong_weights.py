"""Weights that can't be used or don't agree: broken checkpoints, and ranks that hold different ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from grpo_watch.detectors.shared.checkpoint_history import masks
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data
from grpo_watch.engine.records import SAVED, TRAINED, CheckpointDigest, Reading, Scalar, Verdict
from grpo_watch.engine.traits import LikelyCause, WasteKind

SHARDS = (
    LikelyCause(
        "ZeRO-3 saves shards: without stage3_gather_16bit_weights_on_model_save tensors are empty.",
        {"deepspeed_stage": ("3",)},
    ),
)


OTHER = "other"
"""Key of the alert about another model's weights."""
LEAST_SAMPLED = 4
"""Matrices; a model has dozens, and one or two that changed may be a head that was just added."""
WHICH_MODEL = (
    "Compare the saved state dict with model.state_dict() at the next save: another object, freshly initialised weights"
    " or another rank's shard is written. If the learning rate is far too high, the updates themselves did this."
)


def other_weights(digest: CheckpointDigest) -> Reading:
    """Judge whether most sampled matrices are unrelated to the checkpoint before, as training never makes them."""
    other, sampled = digest.unrelated
    if sampled < LEAST_SAMPLED or 2 * other < sampled:
        return Reading(Verdict.OK, OTHER)
    message = (
        f"{other} of {sampled} sampled matrices of checkpoint {digest.step} are unrelated to the checkpoint before"
    )
    evidence: dict[str, Scalar] = {"unrelated": other, "sampled": sampled, "checkpoint": digest.path}
    reading = Reading(Verdict.BREACH, OTHER, message=message, evidence=evidence, immediate=True)
    return replace(reading, hint=WHICH_MODEL, headline="The checkpoint holds other weights")


class CheckpointUnusable(Detector):
    """Judges the weight files of checkpoints that their framework marks complete."""

    likely_causes = SHARDS
    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",),)

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Judge one checkpoint."""
        if not record.complete or record.kind not in SAVED:
            return SILENT
        message, evidence = self._complaint(record)
        if not message:
            return (*QUIET, other_weights(record))
        evidence["checkpoint"] = record.path
        return breach(message=message, evidence=evidence, immediate=True)

    @staticmethod
    def _complaint(digest: CheckpointDigest) -> tuple[str, dict[str, Scalar]]:
        if digest.problems:
            return f"checkpoint {digest.step}: {digest.problems[0]}", {"problems": len(digest.problems)}
        empty = [name for name, tensor in digest.tensors.items() if tensor.elements == 0]
        if empty:
            text = f"{len(empty)} of {len(digest.tensors)} tensors of checkpoint {digest.step} are empty"
            return text, {"empty_tensors": len(empty), "first": empty[0]}
        broken = [name for name, tensor in digest.tensors.items() if tensor.nonfinite and not masks(name)]
        if broken:
            count = sum(digest.tensors[name].nonfinite for name in broken)
            text = f"checkpoint {digest.step} holds {count} non-finite weights in {len(broken)} tensors"
            return text, {"nonfinite_elements": count, "tensors": len(broken), "first": broken[0]}
        return "", {}


class RanksDiverged(Detector):
    """Compares the checksums of tensors that every rank must hold, inside one checkpoint or probe."""

    wastes = WasteKind.STEPS
    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",), ("probe",))

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Compare the ranks that saved one checkpoint, or that the callback saw at one step."""
        if record.replicas:
            return SILENT if record.problems else self._judge(record)
        alone = NotApplicable("the checkpoints do not name the rank that saved them")
        return no_data(alone) if record.kind in SAVED else SILENT

    @staticmethod
    def _judge(record: CheckpointDigest) -> Iterable[Reading]:
        sums = {name: tensor.checksum for name, tensor in record.tensors.items()}
        apart = [group for group in record.replicas if len({sums.get(name, "") for name in group}) > 1]
        key = "" if record.kind in TRAINED else record.kind.value
        if not apart:
            return (Reading(Verdict.OK, key),)
        message = f"{len(apart)} of {len(record.replicas)} tensors that all ranks share differ between ranks"
        evidence: dict[str, Scalar] = {
            "differ": len(apart),
            "shared": len(record.replicas),
            "first": ", ".join(f"{name} {sums.get(name, '')[:8]}" for name in apart[0][:4]),
            "checkpoint": record.path,
        }
        return breach(
            key,
            value=len(apart) / len(record.replicas),
            message=message,
            evidence=evidence,
            immediate=True,
        )
