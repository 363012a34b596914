"""A framework's knowledge of launches, for preflight: facts in ``launch.yaml``, arithmetic in ``launch.py``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.detectors.shared.batch_plan import release
from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.frameworks.framework_tables import folders
from grpo_watch.shipped_yaml import shipped_yaml

NO_SETTINGS: Mapping[str, Setting] = MappingProxyType({})
SHIPPED_ZERO = re.compile(r"zero([0-3])(_offload)?")
SUGGESTED = "suggested"
"""Origin of a setting that preflight itself changes to try a fix."""


class ProgramFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a command that starts a framework is recognised, and how its arguments are read.

    Attributes:
        commands: its commands, each with the subcommands that train.
        modules: found in the path of a script or a module that it ships.
        own_arguments: arguments that identify it in a file of any name, such as ``train.py``.
        revealing: flags that make a user's own script count as one of it, with a note.
        accelerates: whether its command starts accelerate, whose options are among its own.
        profiles: accelerate's configurations that it ships, each with the number of processes and perhaps a ZeRO stage.
        overrides: whether it takes words ``key=value``, as Hydra does, beside a few flags.
        needs_config: whether its values are unknown without a ``--config``.
        toml: whether words that end in ``.toml`` name configurations, also behind an ``@``.
    """

    commands: Mapping[str, frozenset[str]] = {}
    modules: str = ""
    own_arguments: frozenset[str] = frozenset()
    revealing: frozenset[str] = frozenset()
    accelerates: bool = False
    profiles: Mapping[str, tuple[int, ...]] = {}
    overrides: bool = False
    needs_config: bool = False
    toml: bool = False


class LaunchFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One framework in a ``launch.yaml``.

    Attributes:
        newest: the newest version whose rules were read; the maker's if another framework makes the batches.
        first: the first version with GRPO whose defaults and rules were read.
        package: the package that this version is of.
        rank: of several frameworks that fit the same file, the one with the lowest rank is meant.
        maker: the framework that makes the batches, in words; ``pins_maker``: each release pins the maker's version.
        on_trainer: whether the Hugging Face trainer counts its steps.
        imported_as: the module that its scripts import.
        any_setting, all_settings, file_name: names at the top of its configurations, and a pattern of their path.
        version_setting, world_setting: settings in which a run records its version and its processes.
        refers_to_settings: whether values may be ``${references}`` to others.
        devices: names of the settings for devices per node and nodes, if it starts its own workers.
        torchrun_by_variables: whether it starts torchrun if ``NPROC_PER_NODE`` or ``NNODES`` is set.
        trains_adapter: whether it trains an adapter unless a setting says otherwise.
        loads_dtype_of_arguments, loads_models_dtype: whether weights have the type that the model's arguments name, or
            else the model's own.
        replaces_batch: whether a per-device batch that does not hold whole groups becomes one of a whole group.
        whole_batch_dumped_since: a version.
        needs_no_group: settings with which a group of one can learn.
        common: its name for a setting that all frameworks have; empty if none is known.
        names: its own names for settings that its maker (or its newest version) names differently.
        program: how its commands are recognised and read; never inherited.
        extends: the framework whose facts it inherits, and whose rules if it has no ``launch.py``.
        defaults: a setting's default: first version to value, which holds until the next one; before the first the
            setting did not exist.
    """

    name: str
    newest: str
    package: str
    rank: int
    first: str | None = None
    program: ProgramFacts = ProgramFacts()
    extends: str = ""
    maker: str = ""
    pins_maker: bool = False
    on_trainer: bool = False
    imported_as: str = ""
    any_setting: frozenset[str] = frozenset()
    all_settings: frozenset[str] = frozenset()
    file_name: str = ""
    version_setting: str = ""
    world_setting: str = ""
    refers_to_settings: bool = False
    devices: tuple[tuple[str, ...], ...] = ()
    torchrun_by_variables: bool = False
    trains_adapter: bool = False
    loads_dtype_of_arguments: bool = False
    loads_models_dtype: bool = False
    replaces_batch: bool = False
    whole_batch_dumped_since: str | None = None
    needs_no_group: tuple[str, ...] = ()
    common: Mapping[str, str] = {}
    names: Mapping[str, str] = {}
    defaults: Mapping[str, Mapping[str, bool | int | float | str | None]] = {}

    def default(self, version: str, name: str) -> Scalar:
        """The default of a setting in that version; None if it has none or did not exist yet."""
        values = self.defaults.get(name, {})
        held = [(release(since), value) for since, value in values.items() if at_least(version, since)]
        return max(held, key=lambda pair: pair[0])[1] if held else None

    def configures(self, tops: Collection[str], file: str) -> bool:
        """Whether a configuration with these names at its top is this framework's."""
        if self.file_name and re.search(self.file_name, file):
            return True
        wanted = self.any_setting or self.all_settings
        fits = not self.any_setting or not self.any_setting.isdisjoint(tops)
        return bool(wanted) and fits and self.all_settings <= set(tops)

    def assumed(self) -> str:
        """The version assumed if none was given, in words."""
        if self.pins_maker:
            return f"{self.maker} {self.newest}, which {self.name} pins,"
        return f"{self.newest}, the newest known,"

    def older_than_known(self, version: str | None) -> tuple[str, ...]:
        """A line if the version is older than the first whose rules were read, else empty."""
        if version is None or self.first is None or at_least(version, self.first):
            return ()
        oldest = f"the oldest known are those of {self.first} (--framework-version)"
        return (f"the rules of {version} are not known; {oldest}",)

    def newer_than_known(self, version: str | None) -> tuple[str, ...]:
        """A line if the version, patch releases aside, is newer than any whose rules were read, else empty."""
        if version is None or release(version)[:2] <= release(self.newest)[:2]:
            return ()
        return (f"{version} is newer than {self.newest}, whose rules are applied",)


@lru_cache(maxsize=1)
def launch_facts() -> Mapping[str, LaunchFacts]:
    """The frameworks whose launches can be judged, by name, in order of rank."""
    raw: dict[str, dict[str, Any]] = {}
    for folder in folders():
        if (path := folder / "launch.yaml").is_file():
            raw |= shipped_yaml(path)
    found = []
    for name, own in raw.items():
        base = raw.get(own.get("extends", ""), {})
        defaults = {**base.get("defaults", {}), **own.get("defaults", {})}
        whole = {"name": name, **base, "program": {}, **own, "defaults": defaults}
        found.append(msgspec.convert(whole, LaunchFacts))
    return MappingProxyType({facts.name: facts for facts in sorted(found, key=lambda facts: (facts.rank, facts.name))})


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a training run, as far as it could be read without running anything.

    ``settings`` holds the framework's own flat names (dotted where it nests: verl, NeMo-RL, OpenRLHF, axolotl's
    ``trl.num_generations``), only given values and never a default. A value is an int, float, bool or str. It is None
    if something was given that could not be read (``$BATCH`` that nothing sets): that is not the default, and
    everything computed from it is unknown. A null in the input means the default and is left out. Lists are written as
    their items joined by a space, as on a command line. ``Setting.origin`` is ``train.sh:14``, ``train.yaml:12:3`` or
    ``command line``. ``version`` is the framework's own, but TRL's for unsloth, axolotl and open-r1, whose batches TRL
    makes; ``version_origin`` says so. ``deepspeed`` is a DeepSpeed configuration with dotted names
    (``zero_optimization.stage``; ``"auto"`` is the trainer's value). ``dataset_size``: rows before any split ratio
    among the settings is applied. ``packages`` are versions of other packages (``deepspeed``). ``complete`` is False if
    settings may be given in parts that could not be read (a ``**`` in Python, a program that is not here), so that
    nothing is known to have its default. ``peft`` is None if the input leaves it open. ``unresolved`` has a line for
    each unreadable part and why; ``text`` describes the input in a few words.
    """

    framework: str | None = None
    version: str | None = None
    version_origin: str = ""
    settings: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    world_size: Setting | None = None
    dataset_size: Setting | None = None
    deepspeed: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    packages: Mapping[str, Setting] = field(default_factory=lambda: NO_SETTINGS)
    complete: bool = True
    peft: bool | None = None
    unresolved: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class LaunchSettings:
    """One launch with its defaults; settings have the names of the framework's newest version (or TRL's)."""

    launch: Launch

    @property
    def framework(self) -> str:
        """The framework's name; empty if unknown."""
        return self.launch.framework or ""

    @property
    def facts(self) -> LaunchFacts:
        """The facts about the framework's launches."""
        return launch_facts()[self.framework]

    @property
    def version(self) -> str:
        """The version whose rules apply: the newest known one unless another is given."""
        return self.launch.version or self.facts.newest

    def given(self, name: str) -> Setting | None:
        """The setting as it was given, under the framework's own name or under ``name``; None if it was not."""
        return self.launch.settings.get(self.own_name(name))

    def own_name(self, name: str) -> str:
        """The framework's name of the setting; a newer name is kept if that was given."""
        own = self.facts.names.get(name, name)
        return name if name in self.launch.settings else own

    def name_of(self, what: str) -> str:
        """The framework's name of a common setting (``group``, ``temperature``, …); empty if unknown."""
        return self.facts.common.get(what, "")

    def unreadable(self, name: str) -> bool:
        """Whether a value was given that could not be read."""
        given = self.given(name)
        return given is not None and given.value is None

    def value(self, name: str) -> Scalar:
        """The value in force: the given one, else the default; None if neither is known."""
        given = self.given(name)
        return self.facts.default(self.version, name) if given is None else given.value

    def number(self, name: str) -> float | None:
        """The value as a number, or None."""
        value = self.value(name)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return None
        return None if value is None else float(value)

    def whole(self, name: str) -> int | None:
        """The value as a whole number, or None."""
        number = self.number(name)
        return None if number is None or number != number // 1 else int(number)

    def product(self, *names: str) -> int:
        """The product of whole numbers; unknown ones count as 1."""
        return prod(self.whole(name) or 1 for name in names)

    def flag(self, name: str) -> bool:
        """Whether the setting is on: true, or a word for it."""
        value = self.value(name)
        return value.strip().lower() in {"true", "1", "yes", "on"} if isinstance(value, str) else bool(value)

    def word(self, name: str) -> str:
        """The value in lower case, or an empty string. A YAML ``no`` is read back from its boolean."""
        value = self.value(name)
        return "" if value is None else "no" if value is False else str(value).strip().lower()

    def where(self, *names: str) -> str:
        """The place of the first of these settings that was given; empty if all are defaults."""
        return next((given.origin for name in names if (given := self.given(name)) is not None), "")

    def zero(self) -> tuple[Setting | None, Setting | None]:
        """DeepSpeed's ZeRO stage and the device of an offloaded optimizer.

        From its configuration, or from the short name of one that a framework ships (``zero3_offload``).
        """
        stage = self.launch.deepspeed.get("zero_optimization.stage")
        device = self.launch.deepspeed.get("zero_optimization.offload_optimizer.device")
        named = SHIPPED_ZERO.fullmatch(self.word("deepspeed"))
        if named is not None and stage is None:
            where = self.where("deepspeed")
            stage = Setting(int(named[1]), where)
            device = device or (Setting("cpu", where) if named[2] else None)
        return stage, device

    @property
    def world_size(self) -> int | None:
        """Training processes, or None."""
        return _whole(self.launch.world_size)

    @property
    def dataset_size(self) -> int | None:
        """Rows before any split, or None."""
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


def at_least(version: str, bound: str) -> bool:
    """Whether ``version`` is ``bound`` or newer; a pre-release counts as its release."""
    return release(version) >= release(bound)
