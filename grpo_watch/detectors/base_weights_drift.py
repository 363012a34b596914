"""The frozen base weights of a LoRA run change from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grpo_watch.core.checkpoints import trained_by_adapter
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.records import CheckpointDigest, CheckpointKind, Reading, TensorDigest, Verdict


class BaseWeightsDrift(Detector):
    """Compares each base tensor's checksum with the first one seen; needs checkpoints that hold both."""

    reads = (CheckpointDigest,)
    needs = (("checkpoints",),)
    survives_attempts = True
    params = MappingProxyType({"tensors": Param(1, "changed base tensors that are a breach", minimum=1)})
    tensors: int

    def setup(self) -> None:
        """No checkpoint seen."""
        self.first: dict[str, str] = {}
        self.first_step = 0

    def blind_because(self, run: RunView) -> str | None:
        """Without an adapter every weight may change."""
        return "the full model is trained, no adapter" if run.setting("adapter") is False else None

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Judge one checkpoint of an adapter run."""
        if record.problems or not record.complete or record.kind is CheckpointKind.ROLLOUT_ENGINE:
            return SILENT
        why_not = self.blind_because(run)
        if why_not is not None:
            return no_data(why_not)
        base = _base(record.tensors)
        if base is None:
            return no_data("the checkpoints hold no adapter beside base weights")
        known = [name for name in base if name in self.first]
        if not known:
            self.first, self.first_step = base, record.step
            return no_data("a second checkpoint with base weights is needed")
        changed = [name for name in known if base[name] != self.first[name]]
        if len(changed) < self.tensors:
            return QUIET
        return (
            Reading(
                Verdict.BREACH,
                value=len(changed) / len(known),
                message=f"{len(changed)} of {len(known)} frozen base tensors differ from checkpoint {self.first_step}",
                evidence={
                    "changed": len(changed),
                    "tensors": len(known),
                    "first": changed[0],
                    "since": self.first_step,
                },
                first_step=self.first_step,
                immediate=True,
            ),
        )


def _base(tensors: Mapping[str, TensorDigest]) -> dict[str, str] | None:
    """The base tensors of a checkpoint that holds an adapter too; None where it does not hold both."""
    trained = trained_by_adapter(tensors.keys())
    return None if trained is None else {name: one.checksum for name, one in tensors.items() if name not in trained}
