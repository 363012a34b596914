"""Two consecutive checkpoints, or probes in memory, are identical although optimizer steps lie between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from grpo_watch.detectors.policy.probe_history import (
    BUILT,
    IDLE,
    OPTIMIZER,
    ProbeHistory,
    kl_grew,
    not_saved,
    optimizer_still,
    too_few_without_signal,
    too_little_between,
)
from grpo_watch.detectors.policy.rounding import ROUNDING, rounding
from grpo_watch.detectors.policy.update_causes import UPDATES
from grpo_watch.detectors.shared.checkpoint_history import (
    ChangedTensors,
    CheckpointHistory,
    changed,
    comparable,
    optimizer_between,
    proves_nothing,
    trained_by_adapter,
)
from grpo_watch.engine.detector import SILENT, Detector, NotApplicable, NotYet, Param, RunView, no_data
from grpo_watch.engine.records import SAVED, CheckpointDigest, CheckpointKind, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.traits import WasteKind

LAYERS, BASE = "layers", "base"
"""Keys of the two readings."""
SHOWN = 8
FIRST_UPDATE = 2
"""The step that must have moved the weights: the first of a warm-up has a learning rate of 0 in transformers."""


def still_the_base(record: CheckpointDigest) -> tuple[Reading, ...]:
    """A breach where the first checkpoint of a run, saved after some steps, is its base model byte by byte."""
    if not record.base or record.step < FIRST_UPDATE:
        return ()
    count = len(record.tensors)
    message = f"all {count} tensors of checkpoint {record.step} are identical to the base model {record.base}"
    evidence: dict[str, Scalar] = {"identical_tensors": count, "base": record.base}
    return (Reading(Verdict.BREACH, BASE, 0.0, None, message, evidence, first_step=0, immediate=True, hint=BUILT),)


def layers_at_rest(movers: ChangedTensors, record: CheckpointDigest, least: int) -> tuple[Reading, ...]:
    """A warning where at least this many whole layers used to change and stopped while others continue; 0: never."""
    rest = movers.layers_at_rest(record)
    if not rest or not 0 < least <= len(rest):
        return ()
    since = max(rest.values())
    shown = sorted(rest, key=lambda layer: int(layer.rpartition(" ")[2]))
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    message = f"{len(rest)} layers changed until checkpoint {since} and then stopped: {', '.join(shown[:SHOWN])}{more}"
    evidence: dict[str, Scalar] = {"layers": len(rest), "since": since, "tensors_that_ever_changed": len(movers.ever)}
    reading = Reading(
        Verdict.BREACH,
        LAYERS,
        float(len(rest)),
        message=message,
        evidence=evidence,
        severity=Severity.WARNING,
        first_step=since,
        immediate=True,
        hint="Look for parameters that lost requires_grad, or an optimizer rebuilt from only some of them.",
    )
    return (reading,)


def byte_identical(before: CheckpointDigest, record: CheckpointDigest, tensors: int, movers: ChangedTensors) -> Reading:
    """That so many tensors of two saved steps are equal, and what the optimizer's own files say of the reason."""
    evidence: dict[str, Scalar] = {
        "identical_tensors": tensors,
        "changed_tensors": 0,
        "optimizer_steps_between": record.step - before.step,
        "earlier_checkpoint": before.path,
        "later_checkpoint": record.path,
    }
    message = f"all {tensors} tensors of checkpoints {before.step} and {record.step} are byte-identical"
    if changed_before := len(movers.ever & record.tensors.keys()):
        evidence |= {"changed_before": changed_before, "never_changed": max(0, tensors - changed_before)}
        message += f" ({changed_before} of them had changed before)"
    optimizer = optimizer_between(before, record)
    if optimizer.get("masters"):
        message += "; the float32 copies changed, so the updates are lost in rounding"
    elif optimizer.get("moments"):
        message += "; the optimizer's moments changed, so gradients arrive and the updates are lost"
    elif "moments" in optimizer:
        message += "; the optimizer's moments did not change either, so it never stepped"
    evidence |= {f"optimizer_{kind}": "changed" if moved else "unchanged" for kind, moved in optimizer.items()}
    return Reading(Verdict.BREACH, "", 0.0, None, message, evidence, first_step=before.step, immediate=True)


class ParametersUnchanged(Detector):
    """Exact checksums, never a tolerance: at a learning rate of 1e-6 a healthy bf16 run changes few elements."""

    explained_by = ("learning-rate-zero", "gradient-lost", "adapter-never-trained", "reward-variance-collapse")
    seen_in_checkpoints = True
    wastes = WasteKind.STEPS
    learning_goes_on = frozenset({OPTIMIZER, LAYERS, ROUNDING})
    shows_frozen_policy = True
    likely_causes = UPDATES
    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",), ("probe",))
    survives_attempts = True
    params = MappingProxyType(
        {
            "probe_steps": Param(
                5, "optimizer steps that identical probes in memory must span (a few may be skipped)", 1
            ),
            "stopped_layers": Param(1, "stopped layers that are a warning (0: never)", 0),
        }
    )
    probe_steps: int
    stopped_layers: int

    def setup(self) -> None:
        """No checkpoint yet."""
        self.history, self.movers, self.probes = CheckpointHistory(), ChangedTensors(), ProbeHistory()
        self.open: set[str] = set()  # keys that breach
        self.same_since: int | None = None  # step of the first of the identical checkpoints

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Compare a complete checkpoint, or a probe, with the one before it."""
        if record.kind is CheckpointKind.PROBE:
            return self.probes.probe(record, self.probe_steps, run.recent)
        if record.kind not in SAVED:
            return SILENT  # other rules judge the engine's weights and frozen ones
        if not record.complete or record.problems:
            return no_data("the newest checkpoint is incomplete or unusable")
        before = self.history.before(record)
        if before is None:
            if record.base and too_few_without_signal(0, record.step, run.recent):
                return no_data(IDLE)
            return self._with_known_keys(still_the_base(record)) or no_data(
                NotYet("fewer than two checkpoints of different steps so far")
            )
        return self._compare(before, record, run)

    def _compare(self, before: CheckpointDigest, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        names = comparable(before, record)
        trained = trained_by_adapter(names, record.adapter)
        names = names if trained is None else [name for name in names if name in trained]
        if not names:
            return no_data("consecutive checkpoints share no tensor of the same type and shape")
        moved = changed(before, record, names)
        if proves_nothing(record, moved):
            return no_data("these checkpoints can only be compared file by file, and files that differ prove nothing")
        self.movers.take(before, names, moved)
        if not moved and too_little_between(before, record, run.recent):
            return no_data(
                NotApplicable("these checkpoints are only a few steps apart, with a learning rate close to 0")
            )
        if not moved:
            return self._same(before, record, len(names), run)
        self.same_since = None
        stopped = layers_at_rest(self.movers, record, self.stopped_layers)
        partial = (*optimizer_still(before, record), *stopped, *rounding(before, record, run))
        return (*self.probes.acquitted(before.step), *self._with_known_keys(partial))

    def _same(
        self, before: CheckpointDigest, record: CheckpointDigest, tensors: int, run: RunView
    ) -> Iterable[Reading]:
        since = self.same_since if self.same_since is not None and self.same_since < before.step else before.step
        self.same_since = since
        grew = kl_grew(since, record.step, run.recent)
        if grew or self.probes.moved_between(before.step, record.step):
            return (not_saved(before, record, tensors, since if grew else before.step, grew), Reading(Verdict.OK))
        if too_few_without_signal(since, record.step, run.recent):
            return no_data(IDLE)
        return (replace(byte_identical(before, record, tensors, self.movers), first_step=since),)

    def _with_known_keys(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """The readings, plus an OK for each open finding that they no longer contain."""
        breaching = {one.key for one in readings if one.verdict is Verdict.BREACH}
        judged = {one.key for one in readings} | {LAYERS, BASE}
        over = tuple(Reading(Verdict.OK, key) for key in sorted(self.open & judged - {one.key for one in readings}))
        self.open = (self.open - judged) | breaching
        return (*readings, *over)
