"""Only one generation batch per logging interval is written."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import batch_of
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "generations-unlogged"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One note if completions are written and several generations fall into one logging interval."""
    batch = batch_of(settings) if settings.facts.on_trainer and settings.flag("log_completions") else None
    every = settings.number("logging_steps")
    if batch is None or every is None or every < 1:
        return
    per_generation = batch.plan().micro_batches * batch.iterations / batch.accumulation
    generations = every / max(per_generation, 1)
    if generations > 1:
        yield LaunchProblem(
            NAME,
            Severity.INFO,
            f"with logging_steps {every:g} {_share(generations)} is written",
            f"set logging_steps to {max(1, round(per_generation))}",
            settings.where("logging_steps"),
        )


def _share(generations: float) -> str:
    """The part of the generation batches that is written: a count if it is whole, else a share."""
    if generations == round(generations):
        return f"only one of {generations:.0f} generation batches"
    return f"only {1 / generations:.0%} of the generation batches"
