"""Completions are not written to where grpo-watch could compare them."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.preflight.findings import LaunchProblem

NAME = "duplicates-unseen"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One note if no completions, or only one per prompt, are written."""
    if not settings.facts.on_trainer:
        return
    if not settings.flag("log_completions"):
        message = "log_completions is off: repeated, truncated and mixed-up completions can't be seen"
        yield LaunchProblem(
            NAME, Severity.INFO, message, "set log_completions to true", settings.where("log_completions")
        )
        return
    unique = next((n for n in ("log_unique_prompts", "wandb_log_unique_prompts") if settings.flag(n)), None)
    if unique is not None and not _parquet(settings):
        message = f"{unique} keeps one completion per prompt: copies inside a group can't be seen"
        yield LaunchProblem(NAME, Severity.INFO, message, f"set {unique} to false", settings.where(unique))


def _parquet(settings: LaunchSettings) -> bool:
    """Whether the whole batch is written to a file."""
    since = settings.facts.whole_batch_dumped_since
    return since is not None and at_least(settings.version, since)
