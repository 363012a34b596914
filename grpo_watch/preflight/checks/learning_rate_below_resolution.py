"""The learning rate is lost in the rounding of bf16 weights that have no fp32 master copy."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "learning-rate-below-resolution"
STEPS_OF_BF16 = 256
"""bf16 keeps 8 bits: a change below 1/256 of a weight can round away (Adam changes weights by about the rate)."""
LOST = 1e-5
"""Below this rate, weights over 256 x 1e-5 = 0.0026 don't change; those of language models spread over about 0.02."""
HALF = frozenset({"bfloat16", "bf16", "torch.bfloat16"})
MODEL_DTYPES = ("torch_dtype", "dtype")
"""Names of model arguments, beside ``use_peft``, which is off unless set."""
DTYPES = ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype")


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the settings load bf16 weights, train all of them, and nothing keeps an fp32 copy."""
    name = settings.name_of("learning_rate")
    rate = settings.number(name)
    if rate == 0:
        text = f"{settings.own_name(name)} is 0: no weight ever changes"
        yield LaunchProblem(NAME, Severity.WARNING, text, "set it to 1e-6 or more", settings.where(name))
    if not settings.facts.on_trainer or rate is None or not 0 < rate < LOST or _masters(settings):
        return
    dtype, condition = _half(settings)
    if dtype is None or not _all_weights(settings, dtype):
        return
    yield LaunchProblem(
        NAME,
        Severity.WARNING,
        f"at rate {rate:g}, bf16 rounds away the update of every weight over {rate * STEPS_OF_BF16:.2g}{condition}",
        "load the weights in float32 and train with --bf16 true, or use DeepSpeed or FSDP with fp32 masters",
        settings.where("learning_rate", dtype),
    )


def _half(settings: LaunchSettings) -> tuple[str | None, str]:
    """The setting that makes the weights bf16, and the condition if the model decides it."""
    if settings.facts.loads_models_dtype and settings.given("torch_dtype") is None:
        return (
            "torch_dtype",
            f"; {settings.framework} uses the model's own type if torch_dtype is not set, and most are bf16",
        )
    return next((name for name in DTYPES if settings.word(name) in HALF), None), ""


def _masters(settings: LaunchSettings) -> bool:
    """DeepSpeed's and FSDP's optimizers keep fp32 copies."""
    names = ("deepspeed", "fsdp", "fsdp_config")
    return bool(settings.launch.deepspeed) or any(settings.given(name) is not None for name in names)


def _all_weights(settings: LaunchSettings, dtype: str) -> bool:
    """Whether the settings say that no adapter is trained."""
    if settings.facts.trains_adapter:
        return (settings.word("tuner_type") or settings.word("train_type")) == "full"
    if settings.launch.peft is None and settings.facts.loads_dtype_of_arguments and dtype in MODEL_DTYPES:
        return not settings.flag("use_peft") and not settings.unreadable("use_peft")
    return settings.launch.peft is False
