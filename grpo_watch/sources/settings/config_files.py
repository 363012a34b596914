"""Reads configuration files of libraries and trainers into canonical settings: named keys only, never a secret."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.advisories.entries import packages
from grpo_watch.advisories.judge import VERSION_OF
from grpo_watch.credentials import masked
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import RunConfig, Scalar, Setting
from grpo_watch.engine.reward_functions import spelled
from grpo_watch.frameworks.framework_tables import bases_last, frameworks
from grpo_watch.frameworks.setting_names import canonical_settings, flatten, framework_of_settings, kept_own
from grpo_watch.sources.settings.documents import json_object, plain_yaml, typed

PINNED = re.compile(r"^([A-Za-z][\w.-]{0,60})==(\d[\w.+!-]{0,40})[ \t]*$", re.MULTILINE)
MAX_TEXT = 300
"""Longest text value kept (a model name or path)."""

FULL_TRAINING = frozenset({"full"})

INTEGERS = frozenset(
    {"num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"}
    | {"generation_batch_size", "num_iterations", "world_size", "max_steps", "save_steps", "logging_steps"}
    | {"eval_steps", "warmup_steps", "max_completion_length", "seed", "deepspeed_stage"}
    | {"vllm_sleep_level"}
)

ELSEWHERE = frozenset({"adapter", "adapter_init", "adapter_continued", "deepspeed_stage", "offload_optimizer"}) | {
    "kl_implies_beta",
    "peft_type",
    "world_size",
    "dtype",
}
"""Settings whose equally named raw key, if any, has another meaning (ms-swift's ``offload_optimizer`` is vLLM's)."""


ACCELERATE = {
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""accelerate's names in its ``deepspeed_config`` block, with DeepSpeed's."""

DEEPSPEED = {
    "zero_optimization.stage": "deepspeed_stage",
    "zero_optimization.offload_optimizer.device": "offload_optimizer",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
}
"""DeepSpeed's names, and ours of these settings."""

FROM_USER, FROM_ARGUMENTS, FROM_LAUNCH, FROM_CHECKPOINT = 0, 1, 2, 3
"""Precedence: the lower one wins if two files give the same setting."""


def settings_alone(settings: Mapping[str, Setting]) -> RunConfig:
    """Return a configuration of settings without a framework."""
    return RunConfig(None, None, settings)


def arguments(text: str, origin: str) -> RunConfig:
    """Read a transformers trainer's arguments; ms-swift's ``args.json`` has 475 (3.12.6) to 496 (4.6.0), few matter.

    ``steps_per_generation`` and ``generation_batch_size`` are null unless given; their final values stand only in the
    repr of the trainer's configuration under ``training_args``, which is searched, never executed.
    """
    return trainer_arguments(json_object(text), origin)


def trainer_arguments(raw: Mapping[str, Any], origin: str) -> RunConfig:
    """Read decoded arguments of a transformers trainer."""
    found: dict[str, Setting] = {}
    for name in SETTINGS:
        _put(found, name, raw.get(name) if name not in ELSEWHERE else None, origin)
    _put(found, "dtype", raw.get("torch_dtype"), origin)
    for table in frameworks().values():
        for name, setting in table.traces.arguments.settings.items():
            _put(found, setting, raw.get(name), origin)
    _put_adapter(found, raw, origin)
    if isinstance(raw.get("deepspeed"), dict):
        found.update(_deepspeed(raw["deepspeed"], f"{origin}: deepspeed"))
    if raw.get("multi_objective_aggregation") == "normalize_then_sum":  # TRL's GDPO
        found["scale_rewards"] = Setting("gdpo", f"{origin}: multi_objective_aggregation")
    if str(raw.get("eval_strategy", "no")) == "no":
        found.pop("eval_steps", None)
    _put_resolved(found, raw.get("training_args"), f"{origin}: training_args")
    _put_product(found)
    found.update(kept_own(dict(flatten(raw)), origin))
    whose = next((table for table in bases_last() if table.traces.arguments.fits(raw)), None)
    if whose is None:
        return settings_alone(found)
    return RunConfig(whose.name, _text(raw.get(whose.traces.arguments.version)), found)


def _put_adapter(found: dict[str, Setting], raw: Mapping[str, Any], origin: str) -> None:
    tuner = _text(raw.get("tuner_type") or raw.get("train_type"))
    if tuner is None:
        return
    adapter = tuner not in FULL_TRAINING
    found["adapter"] = Setting(adapter, origin)
    if adapter:
        found["peft_type"] = Setting(tuner.upper(), origin)
        found["adapter_init"] = Setting(_initialisation(raw.get("init_weights")), origin)
        found["adapter_continued"] = Setting(bool(raw.get("adapters")), origin)


def _initialisation(value: object) -> str:
    """Read PEFT's ``init_lora_weights``: True is its default (B = 0), False a random start, else the method's name."""
    if value in (True, None, "true", "True"):
        return "default"
    return "random" if value in (False, "false", "False") else str(value).lower()[:MAX_TEXT]


def _put_resolved(found: dict[str, Setting], text: object, origin: str) -> None:
    """Add numbers that only the repr of the trainer's configuration has."""
    if not isinstance(text, str):
        return
    for name in ("generation_batch_size", "steps_per_generation", "num_generations", "num_iterations"):
        match = re.search(rf"[( ]{name}=(\d{{1,9}})[,)]", text)
        if match is not None and name not in found:
            found[name] = Setting(int(match[1]), origin)


def _put_product(found: dict[str, Setting]) -> None:
    factors = ("per_device_train_batch_size", "world_size", "steps_per_generation")
    values = [found[name].value for name in factors if name in found]
    if "generation_batch_size" in found or len(values) != len(factors):
        return
    product = 1
    for value in values:
        product *= value if isinstance(value, int) else 0
    if product > 0:
        found["generation_batch_size"] = Setting(product, f"derived: {' x '.join(factors)}")


def deepspeed(text: str, origin: str) -> RunConfig:
    """Read a DeepSpeed configuration: ZeRO stage, offload, accumulation (``"auto"`` is ignored)."""
    return settings_alone(_deepspeed(json_object(text), origin))


def _deepspeed(raw: Mapping[str, Any], origin: str) -> dict[str, Setting]:
    given, found = dict(flatten(raw)), dict[str, Setting]()
    for key, name in DEEPSPEED.items():
        _put(found, name, given.get(key), origin)
    return found


def accelerate(text: str, origin: str) -> RunConfig:
    """Read an accelerate configuration: number of processes and its DeepSpeed part."""
    raw, found = plain_yaml(text), dict[str, Setting]()
    given = dict(flatten(raw)) if isinstance(raw, dict) else {}
    _put(found, "world_size", given.get("num_processes"), origin)
    own = {key: given.get(f"deepspeed_config.{name}") for name, key in ACCELERATE.items()}
    return settings_alone(found | _deepspeed(own, origin))


def model_card(text: str, origin: str) -> RunConfig:
    """Read the README.md that a trainer writes at every save; its list has the trainer's version."""
    del origin
    for table in bases_last():
        version = table.traces.card_version
        if version is not None and (match := version.search(text)) is not None:
            return RunConfig(table.name, match[1], {})
    return settings_alone({})


def requirements(text: str, origin: str) -> RunConfig:
    """Read versions of packages that advisories name from wandb's ``requirements.txt`` (output of ``pip freeze``)."""
    found = ((match[1].lower().replace("_", "-"), match[2]) for match in PINNED.finditer(text))
    return settings_alone(
        {f"{VERSION_OF}{name}": Setting(version, origin) for name, version in found if name in packages()}
    )


def adapter(text: str, origin: str) -> RunConfig:
    """Read PEFT's ``adapter_config.json``."""
    return settings_alone(_peft(json_object(text), origin))


def _peft(raw: Mapping[str, Any], origin: str) -> dict[str, Setting]:
    found = {"adapter": Setting(True, origin)}
    _put(found, "peft_type", raw.get("peft_type"), origin)
    _put(found, "model", raw.get("base_model_name_or_path"), origin)
    found["adapter_init"] = Setting(_initialisation(raw.get("init_lora_weights")), origin)
    return found


def model_config(text: str, origin: str) -> RunConfig:
    """Read the data type from a saved model's ``config.json`` (``torch_dtype`` before transformers 4.56)."""
    raw = json_object(text)
    found: dict[str, Setting] = {}
    _put(found, "dtype", raw.get("dtype") or raw.get("torch_dtype"), origin)
    return settings_alone(found)


def _put(found: dict[str, Setting], name: str, value: object, origin: str) -> None:
    """Keep a plain value; null, ``-1`` for "not set", NaN, infinities and nested values are dropped."""
    scalar: Scalar
    if isinstance(value, float) and not math.isfinite(value):
        return
    if name == "scale_rewards" and isinstance(value, bool):
        scalar = "group" if value else "none"
    elif name == "reward_weights":
        scalar = spelled(value)
    elif name in INTEGERS:
        whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
        scalar = int(value) if whole and isinstance(value, (int, float)) and value >= 0 else None
    elif isinstance(value, (bool, int, float)):
        scalar = value
    else:
        scalar = _text(value)
    if scalar is not None:
        found[name] = Setting(scalar, origin)


def _text(value: object) -> str | None:
    """Return a name or a path, without the password of an address."""
    return masked(value[:MAX_TEXT]) if isinstance(value, str) and value else None


OF_TRANSFORMERS = frozenset({"per_device_train_batch_size", "gradient_accumulation_steps"})
"""Keys that every TrainingArguments has."""


def logged_config(raw: Mapping[str, object], origin: str, channel: str, segment: int) -> RunConfig | None:
    """Return the settings in a logged configuration; None if no key is known. Only named keys are taken.

    Args:
        raw: the configuration, flat (transformers: arguments and model configuration in one) or nested (verl).
        origin: the place as shown to people, e.g. ``wandb config``.
        channel: the source's name.
        segment: the source's segment.
    """
    own = None if raw.keys() >= OF_TRANSFORMERS else of_framework(raw, origin)
    found = own or trainer_arguments(raw, origin)  # or settings with canonical names only
    settings = {**found.settings, **_adapter(raw.get("peft_config"), f"{origin}: peft_config")}
    return RunConfig(found.framework, found.version, settings, channel, segment, FROM_ARGUMENTS) if settings else None


def _adapter(peft: object, origin: str) -> Mapping[str, Setting]:
    """PEFT's configuration, which transformers logs by adapter name: ``{"default": {"peft_type": "LORA", …}}``."""
    if not isinstance(peft, Mapping):
        return {}
    inner = next((each for each in (*peft.values(), peft) if isinstance(each, Mapping) and "peft_type" in each), None)
    return {} if inner is None else {name: each for name, each in _peft(inner, origin).items() if name != "model"}


def of_framework(raw: Mapping[str, object], origin: str) -> RunConfig | None:
    """Return the settings of a framework whose data file has the keys; None if there is none.

    Only a framework's own keys identify it: ``learning_rate`` or ``num_epochs`` are common. Texts of numbers that YAML
    does not recognise (``1e-6``) become numbers; command-line quotes are removed.
    """
    given = {key: typed(value.strip("'\"")) if isinstance(value, str) else value for key, value in flatten(raw)}
    best = framework_of_settings(given.keys())
    return None if best is None else RunConfig(best, None, canonical_settings(given, best, origin))
