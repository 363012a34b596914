"""The evaluation batch does not hold whole groups of completions."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import batch_of, refusals
from grpo_watch.frameworks.launch_rules import RefusalKind
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "eval-batch-not-divisible"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the run evaluates and the version's rule refuses the evaluation batch."""
    batch = batch_of(settings)
    for refusal in refusals(batch) if batch else ():
        if refusal.kind is RefusalKind.EVAL_GROUPS and batch:
            name = settings.own_name("per_device_eval_batch_size")
            size = f"{batch.eval_per_device} per device x {batch.world_size} processes"
            yield LaunchProblem(
                NAME,
                Severity.CRITICAL,
                f"the evaluation batch of {size} does not hold whole groups; refused {refusal.stage.value}",
                f"set {name} to {batch.eval_group or batch.group}, or eval_strategy to no",
                settings.where("per_device_eval_batch_size", "num_generations_eval", "eval_strategy"),
                refusal.text,
            )
