"""Turns a launch into the versions and settings for advisories, with the defaults of its version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grpo_watch.advisories.judge import VERSION_OF, Setup
from grpo_watch.engine.expression import RAW
from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.launches import Launch, LaunchSettings, launch_facts
from grpo_watch.frameworks.setting_names import canonical_settings, flatten
from grpo_watch.sources.settings.config_files import trainer_arguments
from grpo_watch.sources.settings.documents import plain_yaml

DEFAULT = "default"
PLAIN = (str, int, float, bool)
NO_STAGE = -1
"""The stage of a launch without DeepSpeed."""


def setup_of(launch: Launch) -> Setup:
    """A launch's own settings with their defaults, their canonical names, and versions.

    A given setting that can't be read stays without a value: advisories that depend on it are open.
    """
    if launch.framework not in launch_facts():
        return Setup(launch.framework, _versions(launch, ""), complete=True)
    asked = LaunchSettings(launch)
    facts = asked.facts
    defaults = {asked.own_name(name): facts.default(asked.version, name) for name in facts.defaults}
    known_defaults = defaults if launch.complete else {}
    own = {name: Setting(value, DEFAULT) for name, value in known_defaults.items() if value is not None}
    own |= launch.settings
    values = dict(_leaves(own))
    makers = {name: values[theirs] for name, theirs in facts.names.items() if facts.on_trainer and theirs in values}
    values = {**makers, **values}
    text = launch.text or "launch"
    if facts.on_trainer:
        known = dict(trainer_arguments(values, text).settings)
    else:
        known = canonical_settings(values, launch.framework or "", text)
    found = {name: Setting(setting.value, _origin(name, setting, own)) for name, setting in known.items()}
    for name, value in values.items():
        found[f"{RAW}{name}"] = Setting(value, own[name].origin if name in own else text)
    unread = {name: setting for name, setting in own.items() if setting.value is None}
    found |= unread | {f"{RAW}{name}": setting for name, setting in unread.items()}
    if launch.peft is not None:
        found["adapter"] = Setting(launch.peft, text)
    if launch.world_size is not None:
        found["world_size"] = launch.world_size
    found |= _deepspeed(asked)
    return Setup(launch.framework, {**found, **_versions(launch, facts.package)}, launch.complete)


def _deepspeed(asked: LaunchSettings) -> dict[str, Setting]:
    """Stage and offload. Without DeepSpeed the stage is known to be none; one that could not be read stays open."""
    stage, device = asked.zero()
    if stage is None:
        stage = Setting(None if asked.word("deepspeed") else NO_STAGE, asked.where("deepspeed"))
    return {"deepspeed_stage": stage} | ({} if device is None else {"offload_optimizer": device})


def _versions(launch: Launch, package: str) -> dict[str, Setting]:
    found = {f"{VERSION_OF}{name}": setting for name, setting in launch.packages.items()}
    if launch.version is not None and package:
        found[f"{VERSION_OF}{package}"] = Setting(launch.version, launch.version_origin)
    return found


def _leaves(own: Mapping[str, Setting]) -> Iterator[tuple[str, Scalar]]:
    """Each setting with a value; one that is a mapping in text also with its parts, as ``name.part``."""
    for name, setting in own.items():
        if setting.value is None:
            continue
        yield name, setting.value
        if isinstance(setting.value, str) and setting.value.lstrip().startswith("{"):
            try:
                nested: Any = plain_yaml(setting.value)
            except ValueError:
                continue
            if isinstance(nested, dict):
                yield from ((f"{name}.{key}", leaf) for key, leaf in flatten(nested) if isinstance(leaf, PLAIN))


def _origin(name: str, setting: Setting, own: Mapping[str, Setting]) -> str:
    """The place in the launch from which a canonical setting was derived."""
    _, _, key = setting.origin.rpartition(": ")
    renamed = (pair for table in frameworks().values() for pair in table.traces.arguments.settings.items())
    others = (other for other, meant in renamed if meant == name)
    return next((own[each].origin for each in (name, key, *others) if each in own), setting.origin)
