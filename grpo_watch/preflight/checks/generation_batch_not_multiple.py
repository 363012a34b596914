"""The generation batch is not a multiple of what all processes take per micro-step."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import LaunchBatch, batch_of, refusals
from grpo_watch.frameworks.launch_rules import RefusalKind
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "generation-batch-not-multiple"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the version refuses the batch, or accepts it by mistake and splits groups."""
    batch = batch_of(settings)
    if batch is None or not batch.generation_batch_size or batch.steps_per_generation:
        return
    refused = next(
        (each for each in refusals(batch) if each.kind in {RefusalKind.GLOBAL_BATCH, RefusalKind.NO_BATCH}), None
    )
    if refused is None and batch.generation_batch_size % batch.global_batch == 0:
        return
    factor = f"{batch.per_device} per device x {batch.world_size} processes = {batch.global_batch}"
    message = f"generation_batch_size {batch.generation_batch_size} is not a multiple of {factor}"
    outcome = f"refused {refused.stage.value}" if refused else "this version doesn't notice and splits groups"
    yield LaunchProblem(
        NAME,
        Severity.CRITICAL,
        f"{message}; {outcome}",
        f"set generation_batch_size to {_nearest(batch)}, or leave it out",
        settings.where("generation_batch_size"),
        refused.text if refused else "",
    )


def _nearest(batch: LaunchBatch) -> int:
    """The nearest multiple of the global batch that holds whole groups."""
    whole = math.lcm(batch.global_batch, batch.group)
    return max(1, round((batch.generation_batch_size or 0) / whole)) * whole
