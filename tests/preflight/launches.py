"""Launches for tests, written in one line."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.frameworks.launches import Launch, LaunchSettings, launch_facts
from grpo_watch.preflight.assess import catalogue
from grpo_watch.preflight.findings import LaunchProblem

ORIGIN = "train.sh:3"
ASKED_FOR = frozenset({*(facts.package for facts in launch_facts().values()), "deepspeed"})
"""Packages whose installed version changes what preflight says."""


def hide_installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Make only these packages seem installed, of those that preflight asks for; underscores stand for dashes."""
    real, known = metadata.version, {name.replace("_", "-"): version for name, version in versions.items()}

    def version(name: str) -> str:
        if name in known:
            return known[name]
        if name in ASKED_FOR:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def launch(  # noqa: PLR0913  one line per launch is the point
    framework: str = "trl",
    version: str | None = "1.16.0",
    world_size: int | None = 1,
    rows: int | None = None,
    *,
    peft: bool | None = None,
    packages: dict[str, Scalar] | None = None,
    zero: dict[str, Scalar] | None = None,
    **settings: Any,
) -> Launch:
    """A launch whose settings all come from the same place; dots in names are written as ``__``; ``zero`` is a
    DeepSpeed configuration.
    """
    return Launch(
        framework,
        version,
        settings={name.replace("__", "."): Setting(value, ORIGIN) for name, value in settings.items()},
        world_size=None if world_size is None else Setting(world_size, "--world-size"),
        dataset_size=None if rows is None else Setting(rows, "--dataset-size"),
        deepspeed={name: Setting(value, "ds.json") for name, value in (zero or {}).items()},
        packages={name: Setting(value, "requirements.txt") for name, value in (packages or {}).items()},
        peft=peft,
    )


def judged(check: str, given: Launch) -> list[LaunchProblem]:
    """What one check says of a launch."""
    return list(catalogue()[check].judge(LaunchSettings(given)))
