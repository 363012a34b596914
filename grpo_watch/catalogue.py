"""Finds every detector: those of this package by looking into its folder, those of others by their entry points.

There is no list to edit; each package is searched once per process. This loads modules, so it is outside the
engine, which is given what was found.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, get_origin

from grpo_watch.engine.detector import Detector

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


@cache
def third_party(package: str) -> ThirdParty:
    """What installed packages offer under the entry point group of that name. None of it replaces an own detector."""
    own, found, origins, problems = _own(package), {}, {}, []
    for point in sorted(metadata.entry_points(group=package), key=lambda each: (each.name, each.value)):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001  a broken package must not stop the watch
            problems.append(f"{origin}: {point.value} can't be loaded: {error}")
            continue
        for name, each in _offered(point.name, loaded):
            if not (inspect.isclass(each) and issubclass(each, Detector)):
                problems.append(f"{origin}: {point.name} is no detector")
            elif name in own or name in found:
                problems.append(f"{origin}: there is already a detector {name}")
            else:
                found[name], origins[name] = each, origin
    return ThirdParty(found, origins, tuple(problems))


def _offered(point: str, loaded: Any) -> list[tuple[str, Any]]:
    """What an entry point offers, each with its rule id.

    A class has the entry point's name, as has the only one of a module; of several each has its own, ``LowReward`` is
    ``low-reward``.
    """
    classes = list(_detectors_in(loaded)) if inspect.ismodule(loaded) else [loaded]
    if len(classes) == 1:
        return [(point.replace("_", "-"), classes[0])]
    return [(each.name(), each) for each in classes]


@cache
def _own(package: str) -> Mapping[str, type[Detector]]:
    modules = map(importlib.import_module, _modules(package))
    return {detector.name(): detector for module in modules for detector in _detectors_in(module)}


def _modules(package: str) -> Iterator[str]:
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, f"{package}."):
        yield info.name


def _detectors_in(module: Any) -> Iterator[type[Detector]]:
    classes = inspect.getmembers(module, lambda member: inspect.isclass(member) and get_origin(member) is None)
    for _, member in classes:  # `list[int]` is a class for Python 3.10
        if issubclass(member, Detector) and member.__module__ == module.__name__ and not inspect.isabstract(member):
            yield member
