"""The framework refused the batch configuration: the generation batch does not hold whole groups."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.engine.records import EventKind, Reading, RunEvent, Tick, Verdict

SIGNS = (
    "divisible by",
    "can not be both configured at the same time",
    "must equal per_device_train_batch_size",
    "only support equal chunk",
    "should be larger than 0 after normalization",
)
"""Fragments of the errors of TRL 0.15 to 1.16, ms-swift 3.1 to 4.6 and verl (whose workers split batches evenly)."""

FIXES = (
    (
        "only support equal chunk",
        "Make data.train_batch_size x rollout.n (and data.val_batch_size) a multiple of the data-parallel processes.",
    ),
    (
        "after normalization",
        "Raise actor_rollout_ref.actor.ppo_mini_batch_size: times rollout.n it must reach the data-parallel processes.",
    ),
    ("can not be both configured", "Set only one of generation_batch_size and steps_per_generation."),
    ("must equal per_device", "Remove generation_batch_size or steps_per_generation; one follows from the other."),
    (
        "global batch size",
        "Make generation_batch_size a multiple of per_device_train_batch_size x the number of processes.",
    ),
)
"""Fragment of an error and its fix; any other error gets the rule's own hint."""


class BatchNotDivisible(Detector):
    """Reads the text of the error; a run that logs rows has passed the check."""

    ends_run = True

    reads = (RunEvent, Tick)

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Judge a configuration error of the log."""
        if isinstance(record, Tick):
            return QUIET if run.step else SILENT
        if record.kind is not EventKind.CONFIG_ERROR or not any(sign in record.text for sign in SIGNS):
            return SILENT
        message = f"refused at start: {record.text}"[:300]
        fix = next((fix for sign, fix in FIXES if sign in record.text), "")
        return (
            Reading(Verdict.BREACH, message=message, evidence={"error": record.text[:300]}, immediate=True, hint=fix),
        )
