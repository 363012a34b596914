"""Unsloth trains with a different per-device batch than the one that is set."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import batch_of
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "unsloth-changes-batch"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if a patch of the configuration will replace the per-device batch."""
    batch = batch_of(settings)
    if batch is None or batch.configured_per_device is None:
        return
    old, new = batch.configured_per_device, batch.per_device
    yield LaunchProblem(
        NAME,
        Severity.WARNING,
        f"{settings.framework.capitalize()} will train with {new} completions per device instead of {old}: memory and "
        "max_steps change with it",
        f"set per_device_train_batch_size to {new}, or make batch x accumulation x processes a multiple of the group",
        settings.where("per_device_train_batch_size", "num_generations"),
        f"We will change the batch size of {old} to the `num_generations` of {batch.group}",
    )
