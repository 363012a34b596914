"""Adapters that never train, and base weights that change although only the adapter should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from grpo_watch.detectors.policy.probe_history import IDLE, too_few_without_signal
from grpo_watch.detectors.shared.checkpoint_history import (
    WRAPPED,
    changed,
    comparable,
    lora_b,
    trained_by_adapter,
    where_adapters_are,
)
from grpo_watch.detectors.shared.likely_causes import ADAPTER_UPDATES
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import (
    SAVED,
    CheckpointDigest,
    CheckpointKind,
    Reading,
    Scalar,
    Severity,
    TensorDigest,
    Verdict,
)
from grpo_watch.engine.traits import WasteKind

NON_ZERO_STARTS = ("pissa", "olora", "loftq", "corda")
"""PEFT's ``init_lora_weights`` values whose B matrices do not start at zero: a non-zero B does not show training."""


class AdapterNeverTrained(Detector):
    """LoRA starts with B = 0, and the first update makes it non-zero; a breach if it is still zero later."""

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
        """Why a non-zero B proves nothing: another initialisation, a continued adapter, or no adapter at all."""
        start = str(run.setting("adapter_init") or "").lower()
        if start.startswith(NON_ZERO_STARTS):
            return NotApplicable(f"the adapter was initialised by {start}: lora_B does not start at zero")
        if run.setting("adapter_continued"):
            return NotApplicable("training continues an existing adapter: lora_B does not start at zero")
        if run.setting("adapter") is False:
            return NotApplicable("the full model is trained, no adapter")
        return None

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Judge one adapter checkpoint, or a probe of the trained parameters."""
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
        matrices = lora_b(record)
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


MERGED_FOR_VLLM = "TRL merges and unmerges the adapter at each sync with vLLM, which rounds bf16 weights"
SAVED_MERGED = (
    "only modules with an adapter differ: the model saved with it is merged, or these modules are trained too"
)
"""Causes of a changed base other than training."""

Tensors: TypeAlias = Mapping[str, TensorDigest]


class BaseWeightsDrift(Detector):
    """Compares each base tensor's checksum with the first one seen; needs checkpoints that hold adapter and base."""

    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",), ("probe",))
    survives_attempts = True
    tensors: int = param(1, "number of changed base tensors that is a breach", minimum=1)

    def setup(self) -> None:
        """Start with no checkpoints."""
        self.first: Tensors = {}
        self.probed: dict[str, TensorDigest] = {}
        self.probed_at: dict[str, int] = {}
        self.first_step = 0

    def blind_because(self, run: RunView) -> str | None:
        """Why changed weights are no fault: without an adapter, every weight may change."""
        return NotApplicable("the full model is trained, no adapter") if run.setting("adapter") is False else None

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Judge one checkpoint of an adapter run, or a probe of the frozen parameters."""
        if record.kind is CheckpointKind.FROZEN:
            return self._in_memory(record, run)
        if record.kind is CheckpointKind.PROBE:
            for name in self.probed.keys() & record.tensors.keys():
                del self.probed[name], self.probed_at[name]  # trained now: compare again once it is frozen again
            return SILENT
        if record.problems or not record.complete or record.kind not in SAVED:
            return SILENT
        return self._in_checkpoint(record, run)

    def _in_checkpoint(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        why_not = self.blind_because(run)
        if why_not is not None:
            return no_data(why_not)
        base = _base(record)
        if base is None:
            return no_data(NotApplicable("the checkpoints don't hold both an adapter and base weights"))
        known = comparable(base, self.first)
        if not known:
            self.first, self.first_step = base, record.step
            return no_data(NotYet("a second checkpoint with base weights is needed"))
        readings = self._judge(base, self.first, "checkpoint", self.first_step)
        moved = changed(self.first, base, known)
        merged = len(moved) < len(known) and where_adapters_are(moved, record.tensors)
        return tuple(_explained(one, SAVED_MERGED) for one in readings) if merged else readings

    def _in_memory(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        why_not = self.blind_because(run)
        if why_not is not None:
            return no_data(why_not)
        frozen = record.tensors
        known = comparable(frozen, self.probed)
        moved = changed(self.probed, frozen, known)
        since = min((self.probed_at[name] for name in moved), default=0)
        for name in frozen.keys() - set(known):
            self.probed[name], self.probed_at[name] = frozen[name], record.step
        if not known:
            return no_data(NotYet("a second probe of the frozen parameters is needed"))
        readings = self._judge(frozen, {name: self.probed[name] for name in known}, "step", since)
        wrapped = all(WRAPPED in name for name in moved)
        merges = run.setting("adapter") and run.setting("use_vllm") and run.setting("vllm_enable_lora") is not True
        return tuple(_explained(one, MERGED_FOR_VLLM) for one in readings) if merges and wrapped else readings

    def _judge(self, now: Tensors, first: Tensors, where: str, step: int) -> Iterable[Reading]:
        known = comparable(now, first)
        moved = changed(first, now, known)
        key = "" if where == "checkpoint" else "in memory"
        if len(moved) < self.tensors:
            return (Reading(Verdict.OK, key),)
        message = f"{len(moved)} of {len(known)} frozen tensors differ from {where} {step}"
        evidence: dict[str, Scalar] = {
            "changed": len(moved),
            "tensors": len(known),
            "first": moved[0],
            "since": step,
            "from": "checkpoints" if where == "checkpoint" else "the callback's probe",
        }
        value = len(moved) / len(known)
        return breach(key, value, None, message, evidence, first_step=step, immediate=True)


def _explained(reading: Reading, cause: str) -> Reading:
    """Turn a breach into an info with its cause: merging changes the base but does not harm the run."""
    if reading.verdict is not Verdict.BREACH:
        return reading
    return replace(reading, message=f"{reading.message}; {cause}", severity=Severity.INFO)


def _base(record: CheckpointDigest) -> Tensors | None:
    """The base tensors of a checkpoint with an adapter; None if it does not hold both."""
    trained = trained_by_adapter(record.tensors.keys(), record.adapter)
    return None if trained is None else {name: one for name, one in record.tensors.items() if name not in trained}
