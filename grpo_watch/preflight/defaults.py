"""Turns a launch into settings that can be asked for: what was given, else the default of that framework's version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grpo_watch.detectors.shared.batch_plan import release
from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.preflight.launch import Launch
from grpo_watch.preflight.versions import known

TABLE = Path(__file__).with_name("defaults.yaml")
SUGGESTED = "suggested"
"""Origin of a setting that preflight itself puts in to try a change."""


@lru_cache(maxsize=1)
def tables() -> Mapping[str, Mapping[str, Any]]:
    """The data file, with ``extends`` resolved."""
    import yaml  # noqa: PLC0415  only preflight reads it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; the other one where libyaml lacks
    raw: dict[str, dict[str, Any]] = yaml.load(TABLE.read_text(encoding="utf-8"), loader)  # noqa: S506  safe ones both
    return MappingProxyType({name: {**raw.get(own.get("extends", ""), {}), **own} for name, own in raw.items()})


@lru_cache(maxsize=4096)
def default(framework: str, version: str, name: str) -> Scalar:
    """The default of a setting in that version; None where it has none or did not exist yet."""
    values: dict[str, Scalar] = tables()[framework].get(name, {})
    held = [(release(since), value) for since, value in values.items() if release(since) <= release(version)]
    return max(held, key=lambda pair: pair[0])[1] if held else None


@dataclass(frozen=True)
class LaunchSettings:
    """One launch with its defaults; asked by the names that the framework's newest version (or TRL) uses."""

    launch: Launch

    @property
    def framework(self) -> str:
        """The framework's name; an empty one where it is not known."""
        return self.launch.framework or ""

    @property
    def version(self) -> str:
        """The version whose rules are applied: the newest known unless one is given."""
        return known(self.framework, self.launch.version)

    def given(self, name: str) -> Setting | None:
        """The setting as it was given, under the framework's own name or the one asked for."""
        return self.launch.settings.get(self.own_name(name))

    def own_name(self, name: str) -> str:
        """What the framework calls the setting; a newer name that was given stays."""
        own = str(tables()[self.framework].get("names", {}).get(name, name))
        return name if name in self.launch.settings else own

    def unreadable(self, name: str) -> bool:
        """Whether something was given that could not be read."""
        given = self.given(name)
        return given is not None and given.value is None

    def value(self, name: str) -> Scalar:
        """What holds: the given value, else the default; None where neither is known."""
        given = self.given(name)
        return default(self.framework, self.version, name) if given is None else given.value

    def number(self, name: str) -> float | None:
        """The value as a number; None where it is none."""
        value = self.value(name)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return None
        return None if value is None else float(value)

    def whole(self, name: str) -> int | None:
        """The value as a whole number."""
        number = self.number(name)
        return None if number is None or number != number // 1 else int(number)

    def flag(self, name: str) -> bool:
        """Whether the setting is on: true, or a word for it."""
        value = self.value(name)
        return value.strip().lower() in {"true", "1", "yes", "on"} if isinstance(value, str) else bool(value)

    def word(self, name: str) -> str:
        """The value in lower case; empty where there is none. A YAML ``no`` is read back from its boolean."""
        value = self.value(name)
        return "" if value is None else "no" if value is False else str(value).strip().lower()

    def where(self, *names: str) -> str:
        """The place of the first of these settings that was given; empty where all are defaults."""
        return next((given.origin for name in names if (given := self.given(name)) is not None), "")

    @property
    def world_size(self) -> int | None:
        """Training processes, where known."""
        return _whole(self.launch.world_size)

    @property
    def dataset_size(self) -> int | None:
        """Rows before any split, where known."""
        return _whole(self.launch.dataset_size)

    def changed(self, changes: Mapping[str, Scalar]) -> LaunchSettings:
        """The same launch with some settings changed (None: left out)."""
        kept = {
            name: setting
            for name, setting in self.launch.settings.items()
            if name not in changes and not any(self.own_name(each) == name for each in changes)
        }
        put = {self.own_name(name): Setting(value, SUGGESTED) for name, value in changes.items() if value is not None}
        return LaunchSettings(replace(self.launch, settings=MappingProxyType({**kept, **put})))


def _whole(setting: Setting | None) -> int | None:
    value = None if setting is None else setting.value
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
