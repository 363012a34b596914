"""A complete checkpoint can't be resumed or served: it is truncated, has empty tensors or non-finite weights."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.checkpoint_history import masks
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, breach
from grpo_watch.engine.records import SAVED, CheckpointDigest, Reading, Scalar
from grpo_watch.engine.traits import LikelyCause

SHARDS = (
    LikelyCause(
        "ZeRO-3 saves shards: without stage3_gather_16bit_weights_on_model_save tensors are empty.",
        {"deepspeed_stage": ("3",)},
    ),
)


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
            return QUIET
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
