"""Two consecutive checkpoints, or probes in memory, are identical although optimizer steps lie between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import sqrt

from grpo_watch.detectors.policy.probe_history import (
    BUILT,
    IDLE,
    OPTIMIZER,
    WRONG_SAVE,
    ProbeHistory,
    kl_grew,
    moved_by_then,
    not_saved,
    optimizer_still,
    too_few_without_signal,
    too_little_between,
)
from grpo_watch.detectors.shared.checkpoint_history import (
    CheckpointHistory,
    changed,
    comparable,
    optimizer_between,
    proves_nothing,
    trained_by_adapter,
)
from grpo_watch.detectors.shared.likely_causes import MOVED_BEFORE, UPDATES
from grpo_watch.engine.detector import SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import (
    SAVED,
    CheckpointDigest,
    CheckpointKind,
    MetricRow,
    Reading,
    Scalar,
    Severity,
    Verdict,
)
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import plain_sum

ROUNDING = "rounding"
"""Key of the reading about rounding."""
LARGEST = 4.0
"""Learning rates that one Adam update may reach: a burst of gradients gives (1 - b1) / sqrt(1 - b2) = 3.2."""
CAUTION = 0.1
"""Share of a random walk's distance that is expected at least. Simulated with torch's AdamW (20 to 200 steps at 1e-7 to
1e-5, with and without signal): with float32 copies, 1.5 to 18 times as many weights moved as this predicts; without
copies, none."""
SHARE = 0.02
"""Share of the weights expected to change that must have changed."""
LEAST_EXPECTED, LEAST_STEPS = 100.0, 20.0
"""Weights expected to change, and updates at the full rate between the checkpoints, needed for a judgement: float32
copies start on bf16 values, and a single update does not carry them to the next one."""
GRADIENT, CLIPPED = 1e-7, 1.0
"""Least gradient per weight (norm divided by the root of their number; ten times Adam's eps of 1e-8, below which
updates are smaller than the learning rate), and the usual clip, to which a larger logged norm was cut."""


def rounding(before: CheckpointDigest, record: CheckpointDigest, run: RunView) -> tuple[Reading, ...]:
    """A warning or OK; nothing where it can't be judged (no 16-bit weights, rate or gradient, or too few steps)."""
    weights = sum(one.elements for one in record.tensors.values())
    rates = _rates(before.step, record.step, run.recent, sqrt(max(1, weights)))
    if record.movement is None or not rates or plain_sum(rates) < LEAST_STEPS * max(rates):
        return ()
    largest = max(rates)
    fixed = record.movement.beyond(LARGEST * largest)
    expected = fixed.expected(CAUTION * _wandering(rates))
    if expected < LEAST_EXPECTED:
        return ()
    if fixed.changed >= SHARE * expected:
        return (Reading(Verdict.OK, ROUNDING),)
    size = fixed.typical
    name = "bf16" if record.movement.dtype == "BF16" else "fp16"
    nearest = max(fixed.counts, key=lambda one: one[1])[0]
    message = (
        f"updates of {largest:.0e} are lost in {name} rounding (resolution {fixed.step(nearest):.0e} near {size:.1g}): "
        f"of {fixed.elements:,} sampled weights that one update can't move, {fixed.changed:,} changed in "
        f"{record.step - before.step} steps; with float32 copies at least {expected:,.0f} would have"
    )
    evidence: dict[str, Scalar] = {
        "largest_learning_rate": largest,
        "resolution": fixed.step(nearest),
        "weights_sampled": record.movement.elements,
        "weights_changed": record.movement.changed,
        "beyond_one_update": fixed.elements,
        "beyond_changed": fixed.changed,
        "beyond_expected": expected,
        "tensors_sampled": record.movement.tensors,
        "dtype": record.movement.dtype,
    }
    reading = Reading(
        Verdict.BREACH,
        ROUNDING,
        fixed.changed / expected,
        SHARE,
        message,
        evidence,
        severity=Severity.WARNING,
        first_step=before.step,
        immediate=True,
        hint="Keep the trained weights in float32 (or let the optimizer keep float32 copies) and compute in bf16.",
        headline="Updates are lost in rounding",
    )
    return (reading,)


def _rates(after: int, until: int, rows: Iterable[MetricRow], root: float) -> list[float]:
    """The learning rates of the updates between two checkpoints whose gradient was large enough; one per step."""
    rates: list[float] = []
    last = after
    for row in rows:
        if not last < row.step <= until:
            continue
        rate, norm = row.values.get("learning_rate"), row.values.get("grad_norm")
        if rate and norm and 0 < rate < 1 and min(norm, CLIPPED) / root >= GRADIENT:
            rates += [rate] * (row.step - last)
        last = row.step
    return rates


def _wandering(rates: Iterable[float]) -> float:
    """How far Adam moves a weight by updates of these learning rates in random directions.

    Adam's update is about the learning rate whatever the gradient's size: n of them reach sqrt(n) of it in random
    directions, up to n in a consistent one.
    """
    return sqrt(plain_sum(rate * rate for rate in rates))


VECTORS = "vectors"
"""Key of the reading about matrices that stand still while vectors move."""
LEFT_OUT = (
    "Compare the optimizer's parameter groups with model.named_parameters(): a filter by name or by requires_grad left "
    "the matrices out."
)


def matrices_still(before: CheckpointDigest, record: CheckpointDigest, moved: list[str]) -> tuple[Reading, ...]:
    """A warning where only norms and biases change; rounding is no reason, since it would stop the norms first."""
    matrices = [name for name in comparable(before.tensors, record.tensors) if len(record.tensors[name].shape) > 1]
    if not matrices or not set(moved).isdisjoint(matrices):
        return (Reading(Verdict.OK, VECTORS),) if matrices else ()
    message = (
        f"only {len(moved)} norms and biases changed from checkpoint {before.step} to {record.step}, and none of "
        f"{len(matrices)} weight matrices"
    )
    return breach(
        VECTORS,
        message=message,
        evidence={"changed_vectors": len(moved), "unchanged_matrices": len(matrices)},
        severity=Severity.WARNING,
        first_step=before.step,
        immediate=True,
        hint=LEFT_OUT,
        headline="Only norms and biases are trained",
    )


BASE = "base"
"""Key of the reading about the base model."""
FIRST_UPDATE = 2
"""First step that must have moved the weights: a warm-up's first step has a learning rate of 0 in transformers."""


def still_the_base(record: CheckpointDigest) -> tuple[Reading, ...]:
    """A breach if a run's first checkpoint, saved after some steps, is identical to its base model."""
    if not record.base or record.step < FIRST_UPDATE:
        return ()
    count = len(record.tensors)
    message = f"all {count} tensors of checkpoint {record.step} are identical to the base model {record.base}"
    evidence: dict[str, Scalar] = {"identical_tensors": count, "base": record.base}
    return breach(BASE, 0.0, None, message, evidence, first_step=0, immediate=True, hint=BUILT)


def byte_identical(before: CheckpointDigest, record: CheckpointDigest, tensors: int, ever: set[str]) -> Reading:
    """A breach for identical weights of two saved steps, with what the optimizer's own files say about the cause."""
    evidence: dict[str, Scalar] = {
        "identical_tensors": tensors,
        "changed_tensors": 0,
        "optimizer_steps_between": record.step - before.step,
        "earlier_checkpoint": before.path,
        "later_checkpoint": record.path,
    }
    message = f"all {tensors} tensors of checkpoints {before.step} and {record.step} are byte-identical"
    if changed_before := len(ever & record.tensors.keys()):
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
    """Compares exact checksums: at a learning rate of 1e-6 a healthy bf16 run changes few elements."""

    explained_by = ("learning-rate-zero", "gradient-lost", "adapter-never-trained", "reward-variance-collapse")
    seen_in_checkpoints = True
    wastes = WasteKind.STEPS
    learning_goes_on = frozenset({OPTIMIZER, ROUNDING, VECTORS})
    shows_frozen_policy = True
    likely_causes = UPDATES
    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",), ("probe",))
    survives_attempts = True
    probe_steps: int = param(5, "optimizer steps that identical probes in memory must span (a few may be skipped)", 1)

    def setup(self) -> None:
        """Start with no checkpoint."""
        self.history, self.probes = CheckpointHistory(), ProbeHistory()
        self.ever: set[str] = set()  # tensors that changed between two checkpoints
        self.open: set[str] = set()  # keys that breach
        self.same_since: int | None = None  # step of the first of the identical checkpoints
        self.grew: tuple[float, float] | None = None  # the KL between them, before and after

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Compare a complete checkpoint, or a probe, with the one before it."""
        if record.kind is CheckpointKind.PROBE:
            return self.probes.probe(record, self.probe_steps, run.recent)
        if record.kind not in SAVED:
            return SILENT  # frozen ones are judged by base-weights-drift
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
        names = comparable(before.tensors, record.tensors)
        trained = trained_by_adapter(names, record.adapter)
        names = names if trained is None else [name for name in names if name in trained]
        if not names:
            return no_data("consecutive checkpoints share no tensor of the same type and shape")
        moved = changed(before.tensors, record.tensors, names)
        if proves_nothing(record, moved):
            return no_data("these checkpoints can only be compared file by file, and files that differ prove nothing")
        self.ever.update(moved)
        if not moved and too_little_between(before, record, run.recent):
            return no_data(
                NotApplicable("these checkpoints are only a few steps apart, with a learning rate close to 0")
            )
        if not moved:
            return self._same(before, record, len(names), run)
        self.same_since = self.grew = None
        self.open.discard(WRONG_SAVE)
        partial = (
            *optimizer_still(before, record),
            *rounding(before, record, run),
            *matrices_still(before, record, moved),
        )
        return (*self.probes.acquitted(before.step), *self._with_known_keys(partial))

    def _same(
        self, before: CheckpointDigest, record: CheckpointDigest, tensors: int, run: RunView
    ) -> Iterable[Reading]:
        since = self.same_since if self.same_since is not None and self.same_since < before.step else before.step
        self.same_since = since
        self.grew = grew = kl_grew(since, record.step, run.recent) or self.grew
        if grew or WRONG_SAVE in self.open or self.probes.moved_between(before.step, record.step):
            self.open.add(WRONG_SAVE)
            return (not_saved(before, record, tensors, since if grew else before.step, grew), Reading(Verdict.OK))
        if too_few_without_signal(since, record.step, run.recent):
            return no_data(IDLE)
        reading = byte_identical(before, record, tensors, self.ever)
        if moved_by_then(since, run.recent):
            reading = replace(reading, message=f"{reading.message}; {MOVED_BEFORE}")
        return (replace(reading, first_step=since),)

    def _with_known_keys(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """The readings, plus an OK for each open key that they lack."""
        breaching = {one.key for one in readings if one.verdict is Verdict.BREACH}
        judged = {one.key for one in readings} | {BASE}
        over = tuple(Reading(Verdict.OK, key) for key in sorted(self.open & judged - {one.key for one in readings}))
        self.open = (self.open - judged) | breaching
        return (*readings, *over)
