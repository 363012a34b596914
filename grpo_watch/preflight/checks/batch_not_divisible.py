"""The generation batch does not hold whole groups of completions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import BATCH_SETTINGS, LaunchBatch, batch_of, factors, refusals
from grpo_watch.frameworks.launch_rules import Refusal, RefusalKind
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "batch-not-divisible"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the version's own rule refuses the batch; ``group-size-one`` covers a group of one."""
    batch = batch_of(settings)
    if batch is None or batch.group <= 1:
        return
    for refusal in refusals(batch):
        if refusal.kind in {RefusalKind.GROUPS, RefusalKind.PROCESS_GROUPS}:
            message, hint = _words(settings, batch, refusal)
            yield LaunchProblem(
                NAME,
                Severity.CRITICAL,
                f"{message}; refused {refusal.stage.value}",
                hint,
                settings.where("num_generations", *BATCH_SETTINGS),
                refusal.text,
            )


def _words(settings: LaunchSettings, batch: LaunchBatch, refusal: Refusal) -> tuple[str, str]:
    """The message, with its numbers, and the hint."""
    parts = refusal.factors or factors(batch)
    names = " x ".join(settings.own_name(name) for name, _ in parts)
    product, size = " x ".join(str(value) for _, value in parts), math.prod(value for _, value in parts)
    counted = f"{product} = {size}" if len(parts) > 1 else product
    if refusal.kind is RefusalKind.GROUPS:
        multiple = f"make {names} a multiple of {settings.own_name('num_generations')}"
        return f"{counted} completions are not whole groups of {batch.group}", multiple
    wanted = f"{batch.group} x {batch.world_size} processes = {batch.group * batch.world_size}"
    return f"{counted} completions are fewer than one group per process, {wanted}", f"raise {names} to at least that"
