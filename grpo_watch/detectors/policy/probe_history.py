"""Combines checkpoints and probes of weights in memory, so that weights standing still are one finding, not two."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from grpo_watch.detectors.shared.checkpoint_history import CheckpointHistory, changed, comparable, optimizer_between
from grpo_watch.detectors.shared.likely_causes import WRONG_MODEL_SAVED
from grpo_watch.engine.detector import QUIET, SILENT, NotApplicable, NotYet, breach, no_data
from grpo_watch.engine.evidence import is_zero, no_signal_ratio, number
from grpo_watch.engine.records import CheckpointDigest, MetricRow, Reading, Scalar, Severity, Verdict

OPTIMIZER = "optimizer"
"""Key of the reading about the optimizer's saved state."""
WRONG_SAVE = "saved"
"""Key of the reading about saves that stand still while the weights in memory move."""
MOVES = 256
"""Pairs of probes that are kept: checkpoints of gigabytes are hashed minutes after they were saved."""
BUILT = (
    "Stop the run. Check that the optimizer was built from the trained model (not from a copy, and not before the "
    "adapter was added), that learning_rate > 0, and that weights are fp32 or have fp32 masters."
)
"""Hint where there are no two checkpoints to compare."""
LOST_STATE = (
    "Don't rely on resuming from these checkpoints. Check which optimizer object the script saves: it must be the one "
    "that steps, after it and the model were prepared (accelerate, DeepSpeed, FSDP)."
)
WRONG_MODEL = (
    "The weights move, the saves do not: check which object save_pretrained or the trainer's save gets (an earlier "
    "copy, the base below an adapter, an inactive adapter), and save the trained one before the run ends."
)
FEW_STEPS, SLIGHT = 5, 0.1
"""Steps between two saves, and their updates as a multiple of the largest rate, below which equal bytes prove nothing:
a trainer saves once more after the last step, whose rate a cosine has brought to a millionth (transformers: for N steps
(pi / 2N)², 2e-6 of the peak at 1,000), and no 16-bit weight moves by that. A tenth of one update at 1e-6 still moves
weights below 2e-5, a thousandth of all where they spread by 0.02."""


EXPLAINED_BY_THEN = 10
"""Rows without a signal that ``reward-variance-collapse`` needs before it can explain unchanged weights (its default
window). Before that, two saves a few steps apart would raise a critical finding about a broken update."""
IDLE = NotYet("no group's rewards differ and no gradient was logged in between: unchanged weights prove nothing yet")
"""Why weights that stood still over fewer such rows are not judged."""


class ProbeHistory:
    """Compares probes with each other and with checkpoints.

    ``since`` is the step from which on the probed weights stood still (None: they move).
    """

    def __init__(self) -> None:
        self.since: int | None = None
        self._history = CheckpointHistory()
        self._misled = False
        self._moves: deque[tuple[int, int]] = deque(maxlen=MOVES)

    def probe(self, record: CheckpointDigest, least: int, rows: Iterable[MetricRow]) -> Sequence[Reading]:
        """Compare a probe with the previous one; a standstill needs ``least`` steps, some of them with a signal."""
        if not record.tensors:
            return no_data("the callback finds no trainable parameter: requires_grad is off for the whole model")
        before = self._history.before(record)
        names = [] if before is None else comparable(before.tensors, record.tensors)
        if before is None or not names:
            return no_data(NotYet("fewer than two probes of different steps so far"))
        if changed(before.tensors, record.tensors, names):
            self._moves.append((before.step, record.step))
            self.since, self._misled = None, False
            return QUIET
        self.since = before.step if self.since is None else self.since
        if self._misled:
            return no_data(
                NotApplicable("checkpoints changed while the probed parameters did not: the callback has another model")
            )
        if too_few_without_signal(self.since, record.step, rows):
            return no_data(IDLE)
        return SILENT if record.step - self.since < least else (still_in_memory(self.since, record.step, len(names)),)

    def moved_between(self, before: int, step: int) -> bool:
        """Whether probes saw a change between the steps of two checkpoints."""
        return any(before <= earlier and later <= step for earlier, later in self._moves)

    def acquitted(self, before: int) -> tuple[Reading, ...]:
        """OK readings for two checkpoints that differ; ``before`` is the step of the earlier one.

        A standstill that probes saw begin between them stays open. Probes that stood still all the while did not cover
        what is trained.
        """
        self._misled = self._misled or (self.since is not None and self.since <= before)
        saved = Reading(Verdict.OK, WRONG_SAVE)
        return (saved,) if self.since is not None and not self._misled else (*QUIET, saved)


def still_in_memory(since: int, step: int, tensors: int) -> Reading:
    """A breach: probes found all tensors unchanged since a step."""
    evidence: dict[str, Scalar] = {
        "identical_tensors": tensors,
        "changed_tensors": 0,
        "optimizer_steps_between": step - since,
        "from": "the callback's probe",
    }
    message = f"all {tensors} trainable tensors in memory are the same at steps {since} and {step}"
    return Reading(Verdict.BREACH, "", 0.0, None, message, evidence, first_step=since, immediate=True, hint=BUILT)


def too_little_between(before: CheckpointDigest, after: CheckpointDigest, rows: Iterable[MetricRow]) -> bool:
    """Whether two saves lie a few steps apart at next to no learning rate, after a larger one.

    False for a rate that is zero at all times, or over many steps.
    """
    span, largest, between, last = after.step - before.step, 0.0, 0.0, 0.0
    for row in rows:
        rate = row.values.get("learning_rate")
        if rate is None or row.step > after.step:
            continue
        largest, last = max(largest, rate), rate
        if row.step > before.step:
            between = max(between, rate)
    return span < FEW_STEPS and span * (between or last) < SLIGHT * largest


def too_few_without_signal(since: int, until: int, rows: Iterable[MetricRow]) -> bool:
    """Whether the rows after ``since`` and up to ``until`` are few, and each shows that it had no gradient.

    Such steps update nothing: every group's rewards are equal, so all advantages are 0, and no ``grad_norm`` is above 0
    (KL to a reference pulls all the same). Only the newest attempt's rows count. Rows that don't show it, or no rows,
    leave a gradient possible.
    """
    between = [row for row in rows if since < row.step <= until]
    newest = [row for row in between if row.attempt == between[-1].attempt]
    return 0 < len(newest) < EXPLAINED_BY_THEN and not any(map(_may_have_gradient, newest))


def _may_have_gradient(row: MetricRow) -> bool:
    norm = row.values.get("grad_norm")
    return no_signal_ratio(row) != 1.0 or not (norm is None or is_zero(norm, row.resolution))


THIRD, GREW, NOISE = 3, 3.0, 1e-3
"""Rows in each third between identical checkpoints, the factor by which KL must grow from the first third to the last
one, and a KL beyond kernel noise. A policy frozen midway (TRL 1.16.0) stays within 1.5."""


def kl_grew(since: int, until: int, rows: Iterable[MetricRow]) -> tuple[float, float] | None:
    """The median KL of the first and of the last third of the rows between two steps, if it clearly grew, else None."""
    values = [kl for row in rows if since < row.step <= until and (kl := number(row, "kl_reference")) is not None]
    third = len(values) // 3
    if third < THIRD:
        return None
    early, late = median(values[:third]), median(values[-third:])
    return (early, late) if late >= max(NOISE, GREW * abs(early)) else None


MOVED = 1e-2
"""KL (nats per token) that only a policy that moved can reach."""


def moved_by_then(step: int, rows: Iterable[MetricRow]) -> bool:
    """Whether the KL of the rows up to a step shows that the policy had moved: its optimizer held its parameters."""
    values = [kl for row in rows if row.step <= step and (kl := number(row, "kl_reference")) is not None]
    return len(values) >= THIRD and median(values[-THIRD:]) >= MOVED


def not_saved(
    before: CheckpointDigest, after: CheckpointDigest, tensors: int, since: int, grew: tuple[float, float] | None
) -> Reading:
    """A breach: checkpoints are identical although probes saw a change between them, or the KL grew."""
    moved = f"KL grew from {grew[0]:.2g} to {grew[1]:.2g}" if grew else "the parameters in memory changed"
    message = (
        f"all {tensors} tensors of checkpoints {since} and {after.step} are byte-identical although {moved}: "
        + WRONG_MODEL_SAVED
    )
    evidence: dict[str, Scalar] = {"earlier_checkpoint": before.path, "later_checkpoint": after.path}
    if grew:
        evidence |= {"kl_before": float(f"{grew[0]:.4g}"), "kl_after": float(f"{grew[1]:.4g}")}
    return Reading(
        Verdict.BREACH,
        WRONG_SAVE,
        0.0,
        None,
        message,
        evidence,
        first_step=since,
        immediate=True,
        hint=WRONG_MODEL,
        headline="The saved model is not the one being trained",
    )


def optimizer_still(before: CheckpointDigest, after: CheckpointDigest) -> tuple[Reading, ...]:
    """A breach if weights move while Adam's saved moments don't: the saved optimizer is not the one that trains."""
    moments = optimizer_between(before, after).get("moments")
    if moments is None or moments:
        return () if moments is None else (Reading(Verdict.OK, OPTIMIZER),)
    count = after.optimizer.get("moment_tensors", 0)
    message = (
        f"all {count} moment tensors of the saved optimizer are the same at checkpoints {before.step} and "
        f"{after.step} although the weights changed: a resume would lose the optimizer state"
    )
    evidence: dict[str, Scalar] = {"moment_tensors": count, "checkpoint": after.path}
    return breach(
        OPTIMIZER,
        message=message,
        evidence=evidence,
        severity=Severity.WARNING,
        first_step=before.step,
        immediate=True,
        hint=LOST_STATE,
        headline="The saved optimizer is not the one that trains",
    )
