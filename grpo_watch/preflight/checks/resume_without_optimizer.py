"""The run will resume from checkpoints that hold no optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "resume-without-optimizer"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if ``save_only_model`` and ``resume_from_checkpoint`` are both set."""
    resume = settings.word("resume_from_checkpoint")
    if not settings.facts.on_trainer or not settings.flag("save_only_model") or resume in {"", "no", "false", "none"}:
        return
    yield LaunchProblem(
        NAME,
        Severity.WARNING,
        "save_only_model leaves out optimizer, scheduler and random state: a resume starts without them",
        "set save_only_model to false",
        settings.where("save_only_model"),
    )
