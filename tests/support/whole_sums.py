"""Refuses ``sum()`` of floats in what is replayed: it rounds otherwise from Python 3.12 on."""

from __future__ import annotations

import builtins
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import pytest

import grpo_watch.detectors
import grpo_watch.engine


@contextmanager
def whole_sums_only() -> Iterator[None]:
    """Engine and detectors may add whole numbers only with ``sum()``; an AssertionError elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _modules():
            patch.setattr(module, "sum", _whole_sum, raising=False)
        yield


def _modules() -> Iterator[ModuleType]:
    for package in (grpo_watch.engine, grpo_watch.detectors):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield import_module(found.name)


def _whole_sum(values: Iterable[int]) -> int:
    listed = list(values)
    assert not any(isinstance(value, float) for value in listed), "floats are added with plain_sum"
    return builtins.sum(listed)
