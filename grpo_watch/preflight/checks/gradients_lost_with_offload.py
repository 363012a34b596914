"""ZeRO-3 or optimizer offload with gradient accumulation: the combination of most reports of lost gradients."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.records import Severity
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Problem
from grpo_watch.preflight.versions import ON_HF

NAME = "gradients-lost-with-offload"


def judge(settings: Settings) -> Iterator[Problem]:
    """One problem where ZeRO-3 or offload meets gradient accumulation; with a known DeepSpeed version it is named."""
    stage, accumulation = _stage(settings), settings.whole("gradient_accumulation_steps") or 1
    if settings.framework not in ON_HF or stage is None:
        return
    offloads = _offloads(settings)
    if not offloads or accumulation <= 1:
        return
    yield Problem(
        NAME,
        Severity.WARNING,
        f"ZeRO-{stage} with {offloads} and {accumulation} accumulated steps: such runs were reported to lose gradients",
        "use ZeRO-2 without offload, or watch the first 10 steps with kl-stuck-at-zero and gradient-lost",
        settings.where("deepspeed", "offload_optimizer", "offload_model"),
    )


def _stage(settings: Settings) -> int | None:
    """ZeRO stage from the DeepSpeed configuration or ms-swift's short name (``zero3_offload``)."""
    given = settings.launch.deepspeed.get("zero_optimization.stage")
    if given is not None and isinstance(given.value, int):
        return given.value
    word = settings.word("deepspeed")
    return next((stage for stage in (2, 3) if word.startswith(f"zero{stage}")), None)


def _offloads(settings: Settings) -> str:
    """What is offloaded, in words; empty where nothing is."""
    configured = settings.launch.deepspeed.get("zero_optimization.offload_optimizer.device")
    cpu = configured is not None and str(configured.value).lower() in {"cpu", "nvme"}
    if cpu or settings.word("deepspeed").endswith("offload") or settings.flag("offload_optimizer"):
        return "an offloaded optimizer"
    return "an offloaded model" if settings.flag("offload_model") else ""
