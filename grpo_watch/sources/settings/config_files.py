"""Reads configuration files of libraries and trainers into canonical settings: named keys only, never a secret."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from grpo_watch.advisories.entries import packages
from grpo_watch.advisories.judge import VERSION_OF
from grpo_watch.credentials import masked
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import RunConfig, Scalar, Setting
from grpo_watch.engine.reward_functions import spelled
from grpo_watch.frameworks.framework_tables import bases_last, frameworks
from grpo_watch.frameworks.setting_names import canonical_settings, flatten, framework_of_settings, kept_own
from grpo_watch.shipped_yaml import SAFE_LOADER

MAX_DEPTH = 30
LONGEST_NUMBER = 400
NUMBER = re.compile(r"[-+0-9:._]+").fullmatch


class RefusedYamlError(ValueError):
    """YAML that is not read: it may be made to exhaust the reader."""


def plain_yaml(text: str) -> object:
    """What a YAML text without aliases holds.

    Raises:
        RefusedYamlError: it has aliases, which can expand a few lines to gigabytes, is nested too deeply, or holds a
            number without end (those of base 60, ``1:1:1``, take the square of their length).
        ValueError: it is no YAML.
    """
    try:
        _refuse(yaml.parse(text, Loader=SAFE_LOADER))
        return yaml.load(text, Loader=SAFE_LOADER)  # noqa: S506  a safe one
    except (yaml.YAMLError, OverflowError) as error:
        if "maximum nesting depth" in str(error):  # libyaml's own limit, from PyYAML 6.0.4 on
            raise RefusedYamlError(_too_deep(getattr(error, "problem_mark", None))) from error
        raise ValueError(str(error).splitlines()[0]) from error


def _refuse(events: Iterable[yaml.Event]) -> None:
    """Look at what there is before anything is built of it."""
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        number = isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_NUMBER and NUMBER(event.value)
        if depth > MAX_DEPTH:
            raise RefusedYamlError(_too_deep(event.start_mark))
        if isinstance(event, yaml.AliasEvent) or number:
            what = "a number without end" if number else "aliases (*name)"
            raise RefusedYamlError(_refusal(what, event.start_mark))


def _too_deep(mark: Any) -> str:
    return _refusal(f"more than {MAX_DEPTH} levels", mark)


def _refusal(what: str, mark: Any) -> str:
    place = f"line {mark.line + 1}: " if mark else ""
    return f"{place}{what}: not read in a run's folder"


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
"""Settings whose equally named raw key, if any, means something else (ms-swift's ``offload_optimizer`` is vLLM's)."""


FROM_USER, FROM_ARGUMENTS, FROM_LAUNCH, FROM_CHECKPOINT = 0, 1, 2, 3
"""Precedence: lower wins where two files give the same setting."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings in one file, and the framework and its version where the file names them."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    framework: str | None = None
    version: str | None = None


def json_object(text: str) -> Mapping[str, Any]:
    """The object in a JSON text.

    Raises:
        ValueError: it is no JSON object (half-written, or something else).
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 (content, not a caller's mistake)
    return found


def arguments(text: str, origin: str) -> ConfigFile:
    """Arguments of a transformers trainer; ms-swift's ``args.json`` has 475 (3.12.6) to 496 (4.6.0), few matter.

    ``steps_per_generation`` and ``generation_batch_size`` are null unless given; what they became stands only in the
    repr of the trainer's configuration under ``training_args``, which is searched, never executed.
    """
    raw = json_object(text)
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
        return ConfigFile(found)
    return ConfigFile(found, whose.name, _text(raw.get(whose.traces.arguments.version)))


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
    """PEFT's ``init_lora_weights``: True is its default (B = 0), False a random start, else the method's name."""
    if value in (True, None, "true", "True"):
        return "default"
    return "random" if value in (False, "false", "False") else str(value).lower()[:MAX_TEXT]


def _put_resolved(found: dict[str, Setting], text: object, origin: str) -> None:
    """Numbers that only the repr of the trainer's configuration has."""
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


def deepspeed(text: str, origin: str) -> ConfigFile:
    """A DeepSpeed configuration: ZeRO stage, offload, accumulation (``"auto"`` says nothing)."""
    return ConfigFile(_deepspeed(json_object(text), origin))


def _deepspeed(raw: Mapping[str, Any], origin: str) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    zero = raw.get("zero_optimization")
    if isinstance(zero, dict):
        _put(found, "deepspeed_stage", zero.get("stage"), origin)
        offload = zero.get("offload_optimizer")
        _put(found, "offload_optimizer", offload.get("device") if isinstance(offload, dict) else None, origin)
    for name, key in (
        ("gradient_accumulation_steps", "gradient_accumulation_steps"),
        ("per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
    ):
        _put(found, name, raw.get(key) if isinstance(raw.get(key), int) else None, origin)
    return found


def accelerate(text: str, origin: str) -> ConfigFile:
    """An accelerate configuration: number of processes and its DeepSpeed part."""
    raw = _yaml_object(text)
    found: dict[str, Setting] = {}
    _put(found, "world_size", raw.get("num_processes"), origin)
    nested = raw.get("deepspeed_config")
    if isinstance(nested, dict):
        _put(found, "deepspeed_stage", nested.get("zero_stage"), origin)
        _put(found, "offload_optimizer", nested.get("offload_optimizer_device"), origin)
        steps = nested.get("gradient_accumulation_steps")
        _put(found, "gradient_accumulation_steps", steps if isinstance(steps, int) else None, origin)
    return ConfigFile(found)


def _yaml_object(text: str) -> Mapping[str, Any]:
    found = plain_yaml(text)
    return found if isinstance(found, dict) else {}


def model_card(text: str, origin: str) -> ConfigFile:
    """The README.md that a trainer writes at every save; its list of versions is the best source of its own."""
    del origin
    for table in bases_last():
        version = table.traces.card_version
        if version is not None and (match := version.search(text)) is not None:
            return ConfigFile({}, table.name, match[1])
    return ConfigFile()


def requirements(text: str, origin: str) -> ConfigFile:
    """Versions of packages that advisories name, from wandb's ``requirements.txt``: what ``pip freeze`` prints."""
    found = ((match[1].lower().replace("_", "-"), match[2]) for match in PINNED.finditer(text))
    return ConfigFile(
        {f"{VERSION_OF}{name}": Setting(version, origin) for name, version in found if name in packages()}
    )


def adapter(text: str, origin: str) -> ConfigFile:
    """PEFT's ``adapter_config.json``."""
    raw = json_object(text)
    found = {"adapter": Setting(True, origin)}
    _put(found, "peft_type", raw.get("peft_type"), origin)
    _put(found, "model", raw.get("base_model_name_or_path"), origin)
    found["adapter_init"] = Setting(_initialisation(raw.get("init_lora_weights")), origin)
    return ConfigFile(found)


def model_config(text: str, origin: str) -> ConfigFile:
    """The ``config.json`` of a saved model: its data type (``torch_dtype`` before transformers 4.56)."""
    raw = json_object(text)
    found: dict[str, Setting] = {}
    _put(found, "dtype", raw.get("dtype") or raw.get("torch_dtype"), origin)
    return ConfigFile(found)


def trainer_state(text: str, origin: str) -> ConfigFile:
    """The end of a ``trainer_state.json`` (its keys are sorted: what is wanted follows the long ``log_history``)."""
    found: dict[str, Setting] = {}
    names = {"train_batch_size": "per_device_train_batch_size"}
    pattern = r'^  "(max_steps|logging_steps|save_steps|num_train_epochs|train_batch_size)": ([\d.e+-]{1,20}),?$'
    for key, value in re.findall(pattern, text, re.MULTILINE):
        _put(found, names.get(key, key), json.loads(value), origin)
    return ConfigFile(found)


def _put(found: dict[str, Setting], name: str, value: object, origin: str) -> None:
    """Keep a plain value; null, ``-1`` for "not set", NaN, infinities and anything nested are left out."""
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
    """A name or a path; one may be an address with a password in it."""
    return masked(value[:MAX_TEXT]) if isinstance(value, str) and value else None


OF_TRANSFORMERS = frozenset({"per_device_train_batch_size", "gradient_accumulation_steps"})
"""Keys that every TrainingArguments has."""


def logged_config(raw: Mapping[str, object], origin: str, channel: str, segment: int) -> RunConfig | None:
    """The settings in a logged configuration, or None where none of it is known. Only named keys are taken.

    Args:
        raw: the configuration, flat (transformers: arguments and model configuration in one) or nested (verl).
        origin: how the place is shown to people, e.g. ``wandb config``.
        channel: the source's name.
        segment: the source's segment.
    """
    found = _transformers(raw, origin) if raw.keys() >= OF_TRANSFORMERS else _own(raw, origin)
    settings = {**found.settings, **_adapter(raw.get("peft_config"), f"{origin}: peft_config")}
    return RunConfig(found.framework, found.version, settings, channel, segment, FROM_ARGUMENTS) if settings else None


def _transformers(raw: Mapping[str, object], origin: str) -> ConfigFile:
    try:
        return arguments(json.dumps(raw), origin)
    except (TypeError, ValueError, RecursionError):
        return ConfigFile()


def _adapter(peft: object, origin: str) -> Mapping[str, Setting]:
    """PEFT's configuration, which transformers logs by adapter name: ``{"default": {"peft_type": "LORA", …}}``."""
    if not isinstance(peft, Mapping):
        return {}
    inner = next((each for each in (*peft.values(), peft) if isinstance(each, Mapping) and "peft_type" in each), None)
    try:
        read = adapter(json.dumps(inner, default=str), origin).settings
    except (ValueError, RecursionError):
        return {}
    return {name: setting for name, setting in read.items() if name != "model"}


def _own(raw: Mapping[str, object], origin: str) -> ConfigFile:
    """The configuration of a framework without transformers' arguments, or settings by their canonical names alone."""
    found = of_framework(raw, origin)
    return _transformers(raw, origin) if found is None else found


def of_framework(raw: Mapping[str, object], origin: str) -> ConfigFile | None:
    """Settings of a framework whose data file knows the keys; None where none does.

    Which framework it is, only keys of its own say: ``learning_rate`` or ``num_epochs`` are anybody's.
    """
    best = framework_of_settings({key for key, _ in flatten(raw)})
    return None if best is None else ConfigFile(canonical_settings(raw, best, origin), best)
