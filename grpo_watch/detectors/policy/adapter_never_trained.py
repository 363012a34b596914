"""Every lora_B of a saved adapter is exactly zero: the adapter equals the base model."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.policy.probe_history import IDLE, too_few_without_signal
from grpo_watch.detectors.shared.likely_causes import ADAPTER_UPDATES
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data, param
from grpo_watch.engine.records import SAVED, CheckpointDigest, CheckpointKind, Reading, Scalar
from grpo_watch.engine.traits import WasteKind

NON_ZERO_STARTS = ("pissa", "olora", "loftq", "corda")
"""``init_lora_weights`` values of PEFT whose B matrices do not start at zero: whether B is zero proves nothing."""


class AdapterNeverTrained(Detector):
    """LoRA starts with B = 0, and the first update makes it non-zero."""

    explained_by = ("learning-rate-zero", "gradient-lost", "reward-variance-collapse")
    seen_in_checkpoints = True
    wastes = WasteKind.STEPS
    shows_frozen_policy = True
    likely_causes = ADAPTER_UPDATES
    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",), ("probe",))
    min_step: int = param(2, "first optimizer step to judge (a warm-up starts at rate 0)", 1)

    def blind_because(self, run: RunView) -> str | None:
        """Initialisations for which B proves nothing, and continued adapters."""
        start = str(run.setting("adapter_init") or "").lower()
        if start.startswith(NON_ZERO_STARTS):
            return NotApplicable(f"the adapter was initialised by {start}: lora_B does not start at zero")
        if run.setting("adapter_continued"):
            return NotApplicable("training continues an existing adapter: lora_B does not start at zero")
        if run.setting("adapter") is False:
            return NotApplicable("the full model is trained, no adapter")
        return None

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Look at one adapter checkpoint, or at the trained parameters in memory."""
        probed = record.kind is CheckpointKind.PROBE
        if record.kind is not CheckpointKind.ADAPTER and not probed:
            return (
                no_data(NotApplicable("the checkpoints hold full weights, no adapter"))
                if record.kind in SAVED
                else SILENT
            )
        if record.problems or record.step < self.min_step:
            return SILENT
        start = str(record.adapter.get("init_lora_weights", "")).lower()
        why_not = self.blind_because(run)
        if why_not or start.startswith(NON_ZERO_STARTS):
            return no_data(why_not or NotApplicable(f"the adapter was initialised by {start}"))
        matrices = [name for name in record.tensors if "lora_B" in name or "lora_embedding_B" in name]
        if not matrices:
            return SILENT if probed else no_data(NotApplicable("the adapter has no lora_B"))
        if not all(record.tensors[name].zero for name in matrices):
            return QUIET
        return self._zero(record, len(matrices), run)

    @staticmethod
    def _zero(record: CheckpointDigest, matrices: int, run: RunView) -> Iterable[Reading]:
        if too_few_without_signal(0, record.step, run.recent):
            return no_data(IDLE)
        evidence: dict[str, Scalar] = {"zero_lora_b": matrices, "checkpoint": record.path}
        where = "in memory at step" if record.kind is CheckpointKind.PROBE else "of checkpoint"
        message = f"all {matrices} lora_B matrices {where} {record.step} are exactly zero"
        return breach(value=0.0, message=message, evidence=evidence, immediate=True)
