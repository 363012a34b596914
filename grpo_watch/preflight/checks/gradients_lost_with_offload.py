"""ZeRO-2 or ZeRO-3 with offload and gradient accumulation, as in most reports of lost gradients."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "gradients-lost-with-offload"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if offload meets accumulation; versions with wrong gradients are advisories."""
    stage, accumulation = _stage(settings), settings.whole("gradient_accumulation_steps") or 1
    offloads = _offloads(settings)
    if not settings.facts.on_trainer or stage is None or not offloads or accumulation <= 1:
        return
    version = settings.launch.packages.get("deepspeed")
    named = "" if version is None else f", DeepSpeed {version.value}"
    yield LaunchProblem(
        NAME,
        Severity.WARNING,
        f"ZeRO-{stage} with {offloads} and {accumulation} accumulated steps{named}: such runs were reported to "
        "lose gradients",
        "use ZeRO-2 without offload, or watch the first 10 steps with kl-stuck-at-zero and gradient-lost",
        settings.where("deepspeed", "offload_optimizer", "offload_model"),
    )


def _stage(settings: LaunchSettings) -> int | None:
    """ZeRO stage from the DeepSpeed configuration or ms-swift's short name (``zero3_offload``)."""
    given = settings.launch.deepspeed.get("zero_optimization.stage")
    if given is not None and isinstance(given.value, int):
        return given.value
    word = settings.word("deepspeed")
    return next((stage for stage in (2, 3) if word.startswith(f"zero{stage}")), None)


def _offloads(settings: LaunchSettings) -> str:
    """What is offloaded, in words; empty if nothing is."""
    configured = settings.launch.deepspeed.get("zero_optimization.offload_optimizer.device")
    cpu = configured is not None and str(configured.value).lower() in {"cpu", "nvme"}
    if cpu or settings.word("deepspeed").endswith("offload") or settings.flag("offload_optimizer"):
        return "an offloaded optimizer"
    return "an offloaded model" if settings.flag("offload_model") else ""
