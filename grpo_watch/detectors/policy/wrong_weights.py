"""Checkpoints that can't be used, hold another model, or differ between ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from grpo_watch.detectors.shared.checkpoint_history import CheckpointHistory, changed, comparable, lora_b, masks
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import is_zero, number
from grpo_watch.engine.learning import RARE
from grpo_watch.engine.records import SAVED, CheckpointDigest, MetricRow, Reading, Scalar, Verdict
from grpo_watch.engine.traits import ON, LikelyCause, WasteKind
from grpo_watch.engine.window import BATCHES_AHEAD, ROWS_AHEAD

SHARDS = (
    LikelyCause(
        "ZeRO-3 saves shards: without stage3_gather_16bit_weights_on_model_save tensors are empty.",
        {"deepspeed_stage": ("3",)},
    ),
)


OTHER = "other"
"""Key of the alert about another model's weights."""
LEAST_SAMPLED = 4
"""Least number of sampled matrices; a model has dozens, and one or two changed ones may be a newly added head."""
WHICH_MODEL = (
    "Compare the saved state dict with model.state_dict() at the next save: another object, freshly initialised weights"
    " or another rank's shard is written. If the learning rate is far too high, the updates themselves did this."
)


def other_weights(digest: CheckpointDigest) -> Reading:
    """Judge whether most sampled matrices are unrelated to the previous checkpoint's, which training can't cause."""
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
    """Compares, inside one checkpoint, the checksums of tensors that all ranks must share."""

    wastes = WasteKind.STEPS
    dashboards = ("grpo-sampling-weights",)

    reads = (CheckpointDigest,)
    needs = (("checkpoints",),)

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Compare the ranks that saved one checkpoint."""
        if record.replicas:
            return SILENT if record.problems else self._judge(record)
        alone = NotApplicable("the checkpoints do not name the rank that saved them")
        return no_data(alone) if record.kind in SAVED else SILENT

    @staticmethod
    def _judge(record: CheckpointDigest) -> Iterable[Reading]:
        sums = {name: tensor.checksum for name, tensor in record.tensors.items()}
        apart = [group for group in record.replicas if len({sums.get(name, "") for name in group}) > 1]
        if not apart:
            return (Reading(Verdict.OK),)
        message = f"{len(apart)} of {len(record.replicas)} tensors that all ranks share differ between ranks"
        evidence: dict[str, Scalar] = {
            "differ": len(apart),
            "shared": len(record.replicas),
            "first": ", ".join(f"{name} {sums.get(name, '')[:8]}" for name in apart[0][:4]),
            "checkpoint": record.path,
        }
        return breach(
            value=len(apart) / len(record.replicas),
            message=message,
            evidence=evidence,
            immediate=True,
        )


Pair: TypeAlias = tuple[int, int, int, int]
"""Two consecutive checkpoints: their steps, how many tensors changed, and how many were compared."""


SYNCED = (
    LikelyCause("sync_ref_model is on: the policy is copied into the reference on purpose.", {"sync_ref_model": ON}),
)


class ReferenceFollowsPolicy(Detector):
    """Joins KL rows and pairs of checkpoints by step; a pair is judged once the rows have reached its later step."""

    seen_in_checkpoints = True
    shows_frozen_policy = True
    likely_causes = SYNCED
    dashboards = ("grpo-sampling-weights",)

    reads = (MetricRow, CheckpointDigest)
    needs = (("kl_reference", "checkpoints"),)
    min_rows: int = param(3, "rows with zero KL needed between the two checkpoints", minimum=1)

    def setup(self) -> None:
        """Start with no rows and no checkpoints."""
        self.history = CheckpointHistory()
        # Twice the step, plus 1 if the KL is zero: thousands of rows wait, and a tuple would take twice the memory.
        self.rows: deque[int] = deque(maxlen=ROWS_AHEAD)
        self.pairs: deque[Pair] = deque(maxlen=BATCHES_AHEAD)
        self.last_step = 0

    def blind_because(self, run: RunView) -> str | None:
        """Blind without a reference, and if the reference is synced on purpose."""
        if run.number("beta") == 0:
            return NotApplicable("beta is 0: there is no reference model")
        return (
            NotApplicable("the reference is synced to the policy on purpose") if run.setting("sync_ref_model") else None
        )

    def observe(self, record: MetricRow | CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Take a row or a checkpoint; judge the pairs that are ready."""
        if isinstance(record, CheckpointDigest):
            if record.kind not in SAVED:
                return SILENT
            before = self.history.before(record) if record.complete and not record.problems else None
            if before is None:
                return no_data(NotYet("fewer than two checkpoints of different steps so far"))
            names = comparable(before.tensors, record.tensors)
            self.pairs.append((before.step, record.step, len(_effective(before, record, names)), len(names)))
        else:
            self._take(record, run)
        return list(self._judge(run)) if self.pairs else SILENT

    def _take(self, row: MetricRow, run: RunView) -> None:
        kl = number(row, "kl_reference")
        if not row.supplement:
            self.last_step = row.step
        if kl is None or run.masked.whole or run.masked.chance > RARE:
            return
        if not is_zero(kl, row.resolution):
            self.rows.append(2 * row.step)
            return
        if run.learning.kl_would_show(row, adapter=bool(run.setting("adapter"))):
            self.rows.append(2 * row.step + 1)

    def _judge(self, run: RunView) -> Iterator[Reading]:
        while self.pairs and self.pairs[0][1] <= self.last_step:
            before, after, moved, tensors = self.pairs.popleft()
            why_not = self.blind_because(run)
            between = [row % 2 == 1 for row in self.rows if before < row // 2 <= after]
            if why_not or (moved and len(between) < self.min_rows):
                yield from no_data(why_not or NotYet("too few usable KL rows between two checkpoints"))
            elif not (moved and all(between)):
                yield Reading(Verdict.OK, step=after)
            else:
                yield _breach((before, after, moved, tensors), len(between))


def _effective(before: CheckpointDigest, after: CheckpointDigest, names: list[str]) -> list[str]:
    """Names of the tensors whose change the KL could show: none of an adapter whose ``lora_B`` is still zero.

    None either where a layer's float32 norms keep their bytes while its matrices move: an update of 1e-7 would change a
    weight of 1, so only the last bits of smaller ones move (SGD at a low rate, or a clip far below the gradient).
    """
    moved = changed(before.tensors, after.tensors, names)
    if (matrices := lora_b(after)) and all(after.tensors[name].zero for name in matrices):
        return [name for name in moved if "lora_" not in name]
    norms = {name for name in names if "layernorm" in name and after.tensors[name].dtype == "F32"}
    layers = tuple(f"{name.rsplit('.', 2)[0]}." for name in norms)
    last_bits = norms.isdisjoint(moved) and any(name.startswith(layers) and "lora_" not in name for name in moved)
    return [] if last_bits else moved


def _breach(pair: Pair, rows: int) -> Reading:
    before, after, moved, tensors = pair
    return Reading(
        Verdict.BREACH,
        value=0.0,
        message=f"{moved} of {tensors} tensors changed from step {before} to {after}, yet KL is exactly 0",
        evidence={"kl_reference": 0.0, "rows": rows, "changed_tensors": moved, "tensors": tensors},
        step=after,
        first_step=before,
        immediate=True,
    )
