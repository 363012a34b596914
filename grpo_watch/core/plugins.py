"""Turns an entry point group into the objects that installed packages offer under it, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Any


@dataclass(frozen=True, slots=True)
class Plugin:
    """What one entry point gave: the loaded object, or the one-line problem why it can't be used."""

    name: str
    origin: str
    loaded: Any = None
    problem: str = ""


def plugins(group: str) -> tuple[Plugin, ...]:
    """Every entry point of the group, sorted by name. A package that fails to import is a problem, never an error."""
    found = sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))
    return tuple(_load(point) for point in found)


def _load(point: metadata.EntryPoint) -> Plugin:
    origin = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
    try:
        return Plugin(point.name, origin, point.load())
    except Exception as error:  # noqa: BLE001  a broken package must not stop the watch
        return Plugin(point.name, origin, problem=f"{origin}: {point.value} can't be loaded: {error}")
