"""The generation batch does not hold whole groups of completions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpo_watch.core.records import Severity
from grpo_watch.preflight.arithmetic import BATCH_SETTINGS, batch_of
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Problem
from grpo_watch.preflight.refusals import Kind, factors, refusals
from grpo_watch.preflight.versions import ON_HF

NAME = "batch-not-divisible"


def judge(settings: Settings) -> Iterator[Problem]:
    """One problem where the version's own rule refuses the batch; a group of one is another check's."""
    batch = batch_of(settings) if settings.framework in ON_HF else None
    if batch is None or batch.group <= 1:
        return
    parts = factors(batch)
    names = " x ".join(settings.own_name(name) for name, _ in parts)
    product = " x ".join(str(value) for _, value in parts)
    size = f"{product} = {math.prod(value for _, value in parts)}" if len(parts) > 1 else product
    for refusal in refusals(batch):
        if refusal.kind is Kind.GROUPS:
            yield Problem(
                NAME,
                Severity.CRITICAL,
                f"{size} completions are not whole groups of {batch.group}; refused {refusal.stage.value}",
                f"make {names} a multiple of {settings.own_name('num_generations')}",
                settings.where("num_generations", *BATCH_SETTINGS),
                refusal.text,
            )
