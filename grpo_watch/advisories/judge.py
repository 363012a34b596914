"""Applies the advisories to a run's or a launch's versions and settings, at once or as they become known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from msgspec import Struct, field

from grpo_watch.advisories.entries import Advisory, advisories, advisories_of, in_range
from grpo_watch.engine.expression import RAW
from grpo_watch.engine.record_parts import AdvisoryMet
from grpo_watch.engine.records import RunConfig, Scalar, Setting

VERSION_OF = "package:"
"""Prefix of the settings that hold the version of a package."""
NEVER_OFF = frozenset({"world_size", "adapter", "deepspeed_stage"})
"""Settings that have no default if a launch leaves them open."""


class Setup(Struct, frozen=True):
    """Versions and settings of a run or a launch.

    ``settings`` holds canonical names, frameworks' own as ``raw:<key>``, and versions as ``package:<name>``.
    ``complete``: all given settings are known, as for a launch; absent ones have their default, or are off if no
    default is known.
    """

    framework: str | None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    complete: bool = False


class Match(Struct, frozen=True):
    """An advisory whose condition is met.

    ``version`` is the package's and ``origin`` where it was read; without a version, the match is undecided. ``given``
    are the settings that meet the condition, in words; ``needs`` are settings still to be known.
    """

    advisory: Advisory
    version: str | None
    origin: str
    given: tuple[str, ...] = ()
    where: str = ""
    needs: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether version and condition are both known to be met."""
        return self.version is not None and not self.needs

    @property
    def settle(self) -> str:
        """What to look up to decide an undecided match, in words; empty if nothing is known."""
        if self.version is None:
            return f"pip show {self.advisory.package}"
        name = next(iter(self.needs), "").removeprefix(RAW)
        return "--world-size N" if name == "world_size" else f"the value of {name}" if name else ""

    def record(self) -> AdvisoryMet:
        """The record for the engine of an advisory that applies."""
        advisory = self.advisory
        return AdvisoryMet(
            advisory.id,
            advisory.package,
            self.version or "",
            advisory.severity.value,
            advisory.title,
            advisory.fix,
            ", ".join(self.given),
            advisory.shows,
        )


def judge(setup: Setup, package: str | None = None) -> Iterator[Match]:
    """The advisories that apply, or may apply, to a setup, by id."""
    for advisory in advisories() if package is None else advisories_of(package):
        if (match := judge_by(advisory, setup)) is not None:
            yield match


def judge_by(advisory: Advisory, setup: Setup) -> Match | None:
    """The match of one advisory; None if it does not apply."""
    if advisory.frameworks and setup.framework not in advisory.frameworks:
        return None
    found = setup.settings.get(f"{VERSION_OF}{advisory.package}")
    version = None if found is None else str(found.value)
    affected = None if version is None else in_range(advisory.affected, version)
    if affected is False:
        return None
    met = advisory.condition.evaluate(lambda name: _value(advisory, setup, name))
    if met is False or (met is None and affected is None):
        return None
    needs = () if met else tuple(name for name in advisory.condition.names if _value(advisory, setup, name) is None)
    known = [(name, setup.settings[name]) for name in advisory.condition.names if name in setup.settings]
    values = ((name, str(each.value).lower() if isinstance(each.value, bool) else each.value) for name, each in known)
    return Match(
        advisory,
        version if affected else None,
        found.origin if found is not None and affected else "",
        tuple(f"{name.removeprefix(RAW)} {value}" for name, value in values),
        next((setting.origin for _, setting in known), ""),
        needs,
    )


def _value(advisory: Advisory, setup: Setup, name: str) -> Scalar:
    if name in setup.settings:
        return setup.settings[name].value
    whole = setup.settings.get(name.rpartition(".")[0])
    if whole is not None and whole.value is None:  # given as a mapping that can't be read
        return None
    default = advisory.default(name) if setup.complete else None
    return False if default is None and setup.complete and name not in NEVER_OFF else default


class AdvisoryLedger:
    """The versions and settings of one run so far; the lowest precedence wins, then the newer."""

    def __init__(self) -> None:
        self._framework: tuple[int, str | None] = (99, None)
        self._settings: dict[str, tuple[int, Setting]] = {}
        self._applying: dict[str, AdvisoryMet] = {}

    @property
    def setup(self) -> Setup:
        """The setup so far."""
        return Setup(self._framework[1], {name: setting for name, (_, setting) in self._settings.items()})

    def add_config(self, config: RunConfig) -> Iterator[AdvisoryMet]:
        """The advisories that apply since this configuration, then those that no longer do."""
        if config.framework is not None and config.precedence <= self._framework[0]:
            self._framework = config.precedence, config.framework
        if config.version is not None and config.framework is not None:
            self._put(f"{VERSION_OF}{config.framework}", Setting(config.version, config.channel), config.precedence)
        for name, setting in config.settings.items():
            self._put(name, setting, config.precedence)
        versions = sorted(name.removeprefix(VERSION_OF) for name in self._settings if name.startswith(VERSION_OF))
        matches = (match for package in versions for match in judge(self.setup, package) if match.applies)
        applying = {match.advisory.id: match.record() for match in matches}
        before, self._applying = self._applying, applying
        yield from (bug for name, bug in applying.items() if before.get(name) != bug)
        yield from (replace(bug, applies=False) for name, bug in before.items() if name not in applying)

    def _put(self, name: str, setting: Setting, precedence: int) -> None:
        known = self._settings.get(name)
        if known is None or precedence <= known[0]:
            self._settings[name] = precedence, setting
