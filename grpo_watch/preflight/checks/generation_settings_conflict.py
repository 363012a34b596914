"""generation_batch_size and steps_per_generation are both set, and the version takes only one."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import batch_of, refusals
from grpo_watch.frameworks.launch_rules import RefusalKind
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "generation-settings-conflict"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the version refuses the pair; ms-swift from 4.2 on only if they disagree."""
    batch = batch_of(settings)
    for refusal in refusals(batch) if batch else ():
        if refusal.kind in {RefusalKind.BOTH_SET, RefusalKind.UNEQUAL}:
            both = f"{settings.own_name('generation_batch_size')} and {settings.own_name('steps_per_generation')}"
            yield LaunchProblem(
                NAME,
                Severity.CRITICAL,
                f"{both} are both set; refused {refusal.stage.value}",
                "remove one of the two",
                settings.where("generation_batch_size", "steps_per_generation"),
                refusal.text,
            )
