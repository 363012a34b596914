"""Says whether the updates between two checkpoints were lost in the rounding of 16-bit weights."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from grpo_watch.engine.detector import RunView
from grpo_watch.engine.records import CheckpointDigest, MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.window import plain_sum

ROUNDING = "rounding"
"""Key of the reading about rounding."""
LARGEST = 4.0
"""Learning rates that one update of Adam may reach: a burst of gradients gives (1 - b1) / sqrt(1 - b2) = 3.2."""
CAUTION = 0.1
"""Share of chance's own distance that is expected at least. Simulated with torch's AdamW (20 to 200 steps at 1e-7 to
1e-5, with and without signal): with float32 copies 1.5 to 18 times as many weights moved as this predicts, without
copies none."""
SHARE = 0.02
"""Share of those expected that must have changed."""
LEAST_EXPECTED, LEAST_STEPS = 100.0, 20.0
"""Weights expected to change, and updates at the full rate between the checkpoints, from which on it is judged: float32
copies begin on bf16's own values, and a single update does not carry them to the next."""
GRADIENT, CLIPPED = 1e-7, 1.0
"""Least gradient per weight (norm by the root of their number; ten times Adam's eps of 1e-8, below which updates are
smaller than the learning rate), and the usual limit of clipping, to which a larger logged norm was cut."""


def rounding(before: CheckpointDigest, record: CheckpointDigest, run: RunView) -> tuple[Reading, ...]:
    """A warning, or OK; nothing where it can't be judged (no 16-bit weights, no rate, no gradient, too few steps)."""
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
    )
    return (reading,)


def _rates(after: int, until: int, rows: Iterable[MetricRow], root: float) -> list[float]:
    """The learning rate of each update between two checkpoints that had a gradient worth counting; one per step."""
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
    """How far Adam moves a weight by updates of these learning rates whose directions are all chance.

    Adam's update is about the learning rate whatever the gradient's size; without any direction n of them reach
    sqrt(n) of it, with one up to n.
    """
    return sqrt(plain_sum(rate * rate for rate in rates))
