"""Finds every detector in the folder of detectors; there is no list to edit.

It imports modules, so it is not part of the engine, which is given the result.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any, get_origin

from grpo_watch.engine.detector import Detector

PACKAGE = "grpo_watch.detectors"


def catalogue() -> dict[str, type[Detector]]:
    """Every detector by name, sorted; the folder is searched once per process."""
    return dict(_found())


@cache
def _found() -> dict[str, type[Detector]]:
    root = importlib.import_module(PACKAGE)
    modules = (info.name for info in pkgutil.walk_packages(root.__path__, f"{PACKAGE}."))
    found = {each.name(): each for name in modules for each in _detectors_in(importlib.import_module(name))}
    return dict(sorted(found.items()))


def _detectors_in(module: Any) -> Iterator[type[Detector]]:
    classes = inspect.getmembers(module, lambda member: inspect.isclass(member) and get_origin(member) is None)
    for _, member in classes:  # `list[int]` is a class in Python 3.10
        if issubclass(member, Detector) and member.__module__ == module.__name__ and not inspect.isabstract(member):
            yield member
