"""The learning rate is lost in the rounding of bf16 weights that have no fp32 master copy."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.records import Severity
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Problem
from grpo_watch.preflight.versions import ON_HF

NAME = "learning-rate-below-resolution"
STEPS_OF_BF16 = 256
"""bf16 keeps 8 bits: a change below 1/256 of a weight can round away (Adam changes weights by about the rate)."""
LOST = 1e-5
"""Below, all weights over 256 x 1e-5 = 0.0026 stand still; those of language models spread over about 0.02."""
HALF = frozenset({"bfloat16", "bf16", "torch.bfloat16"})
DTYPES = ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype")


def judge(settings: Settings) -> Iterator[Problem]:
    """One problem where weights are said to be bf16, all of them train, and nothing keeps an fp32 copy."""
    rate = settings.number("learning_rate")
    if settings.framework not in ON_HF or rate is None or not 0 < rate < LOST or _masters(settings):
        return
    dtype = next((name for name in DTYPES if settings.word(name) in HALF), None)
    if dtype is None or not _all_weights(settings):
        return
    yield Problem(
        NAME,
        Severity.WARNING,
        f"at a rate of {rate:g} bf16 rounds the update of every weight over {rate * STEPS_OF_BF16:.2g} away",
        "load the weights in float32 and train with --bf16 true, or use DeepSpeed or FSDP with fp32 masters",
        settings.where("learning_rate", dtype),
    )


def _masters(settings: Settings) -> bool:
    """DeepSpeed's and FSDP's optimizers keep fp32 copies."""
    names = ("deepspeed", "fsdp", "fsdp_config")
    return bool(settings.launch.deepspeed) or any(settings.given(name) is not None for name in names)


def _all_weights(settings: Settings) -> bool:
    """Whether the settings say that no adapter is trained."""
    kind = settings.word("tuner_type") or settings.word("train_type")
    return settings.launch.peft is False or (settings.framework == "ms-swift" and kind == "full")
