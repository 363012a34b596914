"""What a detector is, and how the catalogue is found: by folder and by entry point, with no list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

from grpo_watch.core.course import Course
from grpo_watch.core.functions import RewardFunctions
from grpo_watch.core.learning import LearningSoFar
from grpo_watch.core.pace import Pace
from grpo_watch.core.plugins import Plugin, plugins
from grpo_watch.core.records import MetricRow, Reading, Record, Scalar, Setting, Severity, Stream, Verdict

OK = Reading(Verdict.OK)
SILENT: tuple[Reading, ...] = ()
"""A record that says nothing about the symptom (a row without the key): state is held, nothing is counted."""
QUIET: tuple[Reading, ...] = (OK,)

Bounds: TypeAlias = Mapping[str, tuple[float, float]]
"""Metric to its lowest and highest value, both allowed. What a row does not carry is within any bounds."""
ANY: Bounds = MappingProxyType({})
"""Bounds that every row is within."""
NEVER = (1.0, 0.0)
"""Bounds of a metric that no value is within: a row that carries it."""


@lru_cache(maxsize=256)
def no_data(reason: str, key: str = "") -> tuple[Reading, ...]:
    """The symptom can't be judged at this record; ``reason`` is shown to people who ask why a rule is blind."""
    return (Reading(Verdict.NO_DATA, key=key, message=reason),)


class RunView(Protocol):
    """What a detector may know of the run besides the record at hand (read-only).

    ``learning`` has taken every train row of the attempt up to and including the one at hand, ``pace`` those of all
    attempts; ``course`` has taken every train row and dumped batch of the run. ``rows`` counts the train rows of the
    primary channel and ``recent`` holds the newest 512 of them, whatever their attempt; ``heard`` is the latest time at
    which one was logged or read (Unix seconds). ``silent`` is the share of the newest train row's groups without a
    learning signal (None: it can't tell).
    """

    run: str
    framework: str | None
    version: str | None
    attempt: int
    step: int
    max_steps: int | None
    shows_end: bool
    in_folder: bool
    learning: LearningSoFar
    pace: Pace
    course: Course
    functions: RewardFunctions
    rows: int
    recent: deque[MetricRow]
    silent: float | None
    heard: float | None

    def setting(self, name: str) -> Scalar:
        """The configured value, or None when nobody said it."""

    def number(self, name: str) -> float | None:
        """The configured value as a number, or None."""

    def known(self, name: str) -> bool:
        """Whether the setting was read or inferred."""

    def seen(self, metric: str) -> bool:
        """Whether the canonical metric was ever logged in this run."""

    def newest(self, metric: str) -> float | None:
        """The value of the newest train row that carried the metric; None where it never was or is not finite."""


@dataclass(frozen=True, slots=True)
class Param:
    """A tunable of a detector: default, inclusive bounds, and one line of help (shown by ``explain``)."""

    default: float | int | bool | str
    help: str
    minimum: float | None = None
    maximum: float | None = None


class Detector:
    """Base of all detectors; a subclass in ``grpo_watch/detectors/<name>.py`` is in the catalogue by being there.

    One instance judges one run and one attempt. ``observe`` gets each record of the types in ``reads`` (metric rows of
    ``stream`` only) and answers with readings: ``SILENT`` where the record does not carry the key, ``no_data(...)``
    where it can't be judged, ``QUIET`` or a list of ``Reading`` otherwise.

    ``needs`` are alternatives of evidence: the rule is blind until every metric (or ``completions`` / ``checkpoints`` /
    ``run end``) of one alternative was seen. ``survives_attempts`` keeps the instance when a new attempt begins.

    ``quiet_while`` is a promise that saves most of the work on a healthy run: while its rule is at rest, the next train
    rows of the primary channel whose values are all finite and within these bounds would be answered with SILENT, QUIET
    or the same ``no_data``, and nothing later would depend on having seen them. They may then not be shown to it
    (``core/sleep.py``); all other records are. None: no such promise. ``keys_matter`` ends it at a row with other keys.
    With ``looks_back`` later answers may depend on that many of those rows, of the newest that carry a promised metric:
    they are shown before the next record that is, late but in their order, and what is answered is disregarded. So
    ``observe`` must take them in without asking the run.
    """

    reads: ClassVar[tuple[type, ...]] = (MetricRow,)
    stream: ClassVar[Stream] = Stream.TRAIN
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    survives_attempts: ClassVar[bool] = False
    params: ClassVar[Mapping[str, Param]] = MappingProxyType({})
    keys_matter: ClassVar[bool] = False
    looks_back: ClassVar[int] = 0
    quiet_while: Bounds | None = None

    def __init__(self, params: Mapping[str, Any] | None = None) -> None:
        chosen = dict(params or {})
        for name, param in self.params.items():
            setattr(self, name, chosen.pop(name, param.default))
        if chosen:
            raise ValueError(f"unknown parameters {sorted(chosen)}; known are {sorted(self.params)}")
        self.setup()

    def setup(self) -> None:
        """Create the windows. No I/O."""

    def observe(self, record: Any, run: RunView) -> Iterable[Reading]:
        """Judge one record."""
        raise NotImplementedError

    def blind_because(self, run: RunView) -> str | None:  # noqa: ARG002
        """Why the rule is blind although its evidence is there (beta = 0, a PiSSA adapter); None: it can judge."""
        return None

    @classmethod
    def stem(cls) -> str:
        """The module's stem, e.g. ``kl_stuck_at_zero``."""
        return cls.__module__.rsplit(".", 1)[-1]

    @classmethod
    def name(cls) -> str:
        """The rule id that this detector is made for, e.g. ``kl-stuck-at-zero``."""
        return cls.stem().replace("_", "-")


LABEL = "label:"
"""What a label of the user's is called in ``Override.match``."""


@dataclass(frozen=True, slots=True)
class Override:
    """What an overlay changes of a rule for some runs only.

    ``match`` holds patterns (``*``, ``?``) for ``run``, ``framework`` and the user's labels (``label:team``), all of
    which must fit; a run whose framework is not known (yet), or without the label, fits no pattern of it. ``changes``
    are checked values of the rule's fields, ``params`` whole.
    """

    match: Mapping[str, str]
    changes: Mapping[str, Any]
    where: str = ""

    def fits(self, run: str, framework: str | None, labels: Mapping[str, str]) -> bool:
        """Whether the run is meant."""
        known = {"run": run, "framework": framework, **{f"{LABEL}{name}": value for name, value in labels.items()}}
        return all(
            (said := known.get(key)) is not None and fnmatchcase(said, wanted) for key, wanted in self.match.items()
        )


_BY_KEY = frozenset({"params", "labels", "hints"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A detector (or a ``when`` expression) with parameters, distances and a severity.

    Fires when ``step - first_step >= for_steps`` and at least ``min_observations`` records breach; resolves after
    ``keep_firing_steps`` without a breach. ``where`` is ``file:line`` of its definition. ``hints`` say what to do in a
    framework for which ``hint`` is not right.
    """

    name: str
    detector: str | None = None
    when: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    for_steps: int = 0
    keep_firing_steps: int = 0
    min_observations: int = 3
    severity: Severity = Severity.WARNING
    summary: str = ""
    hint: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    enabled: bool = True
    overrides: tuple[Override, ...] = ()

    @property
    def anywhere(self) -> bool:
        """Whether the rule is enabled for any run at all."""
        return self.enabled or any(override.changes.get("enabled") for override in self.overrides)

    def on(self, run: str, framework: str | None, labels: Mapping[str, str] = MappingProxyType({})) -> Rule:
        """The rule as it is for one run: itself with every override that fits, the later ones over the earlier."""
        rule = self
        for override in self.overrides:
            if override.fits(run, framework, labels):
                rule = rule.changed(override.changes, override.where)
        return rule

    def changed(self, changes: Mapping[str, Any], where: str) -> Rule:
        """The rule with some of its fields changed; mappings key by key. A new ``hint`` stands for all frameworks."""
        before = replace(self, hints={}) if "hint" in changes else self
        merged = {key: {**getattr(before, key), **changes[key]} for key in changes.keys() & _BY_KEY}
        changes = {"hints": before.hints, **changes}
        return replace(self, **{**changes, **merged}, where=where)

    def advice(self, framework: str | None) -> str:
        """What to do, in the words of the run's framework where the rule has some."""
        return self.hints.get(framework or "", self.hint)


GROUP = "grpo_watch.detectors"
"""The entry point group under which packages offer detectors: a detector class, or a module that holds some."""


@dataclass(frozen=True, slots=True)
class ThirdParty:
    """Detectors of installed packages by name, the package and version of each, and what could not be used."""

    detectors: Mapping[str, type[Detector]]
    origins: Mapping[str, str]
    problems: tuple[str, ...]


def catalogue(package: str = GROUP) -> dict[str, type[Detector]]:
    """Every detector by name, sorted: the package's, found by scanning its folder, and those of third parties."""
    return dict(sorted({**third_party(package).detectors, **_own(package)}.items()))


def third_party(package: str = GROUP) -> ThirdParty:
    """What installed packages offer under the entry point group of that name. None of it replaces an own detector."""
    own, found, origins, problems = _own(package), {}, {}, []
    for plugin in plugins(package):
        for name, each in _offered(plugin):
            if plugin.problem:
                problems.append(plugin.problem)
            elif not (inspect.isclass(each) and issubclass(each, Detector)):
                problems.append(f"{plugin.origin}: {plugin.name} is no detector")
            elif name in own or name in found:
                problems.append(f"{plugin.origin}: there is already a detector {name}")
            else:
                found[name], origins[name] = each, plugin.origin
    return ThirdParty(found, origins, tuple(problems))


def _offered(plugin: Plugin) -> list[tuple[str, Any]]:
    """What an entry point offers, each with its rule id.

    A class has the entry point's name, as has the only one of a module; of several each has its own, ``LowReward`` is
    ``low-reward``.
    """
    if not inspect.ismodule(plugin.loaded):
        return [(plugin.name.replace("_", "-"), plugin.loaded)]
    classes = list(_detectors_in(plugin.loaded))
    if len(classes) == 1:
        return [(plugin.name.replace("_", "-"), classes[0])]
    return [(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", each.__name__).lower(), each) for each in classes]


def _own(package: str) -> dict[str, type[Detector]]:
    modules = map(importlib.import_module, _modules(package))
    return {detector.name(): detector for module in modules for detector in _detectors_in(module)}


def _modules(package: str) -> Iterator[str]:
    root = importlib.import_module(package)
    for info in pkgutil.iter_modules(root.__path__, f"{package}."):
        yield info.name


def _detectors_in(module: Any) -> Iterator[type[Detector]]:
    for _, member in inspect.getmembers(module, inspect.isclass):
        if issubclass(member, Detector) and member.__module__ == module.__name__ and not inspect.isabstract(member):
            yield member


__all__ = [
    "ANY",
    "NEVER",
    "OK",
    "QUIET",
    "SILENT",
    "Bounds",
    "Detector",
    "Override",
    "Param",
    "Record",
    "Rule",
    "RunView",
    "Setting",
    "ThirdParty",
    "catalogue",
    "no_data",
    "third_party",
]
