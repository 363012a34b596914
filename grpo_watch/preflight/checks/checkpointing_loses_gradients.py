"""LoRA with gradient checkpointing in a version that does not make the inputs require gradients."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.preflight.findings import LaunchProblem

NAME = "checkpointing-loses-gradients"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem for TRL before 0.16; later versions call ``enable_input_require_grads`` themselves."""
    fixed = settings.facts.checkpointing_loses_gradients_before
    if fixed is None or at_least(settings.version, fixed) or not settings.launch.peft:
        return
    arguments = settings.word("gradient_checkpointing_kwargs").replace('"', "'")
    if not settings.flag("gradient_checkpointing") or "'use_reentrant': false" in arguments:
        return
    if settings.word("gradient_checkpointing_kwargs.use_reentrant") in {"false", "no"}:
        return
    yield LaunchProblem(
        NAME,
        Severity.CRITICAL,
        f"TRL {settings.version} with LoRA and re-entrant gradient checkpointing: no gradient reaches the adapter",
        "set gradient_checkpointing_kwargs to {'use_reentrant': False}, or use TRL 0.16 or newer",
        settings.where("gradient_checkpointing"),
        "None of the inputs have requires_grad=True. Gradients will be None",
    )
