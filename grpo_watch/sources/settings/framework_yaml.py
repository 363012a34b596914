"""Reads the YAML of a launch, as a framework or Hydra keeps it, into canonical settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from grpo_watch.engine.records import Setting
from grpo_watch.engine.reward_functions import spelled
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.python_literal import atom
from grpo_watch.frameworks.setting_names import flatten
from grpo_watch.sources.settings.config_files import ConfigFile, RefusedYamlError, of_framework, plain_yaml

HYDRA = ".hydra"
HYDRA_OUTPUTS = "outputs"
"""Where Hydra puts its folder, below the folder of the launch: ``outputs/<date>/<time>/.hydra``."""
MOST = 64
"""Folders of dates and times that are listed."""


def framework_yaml(text: str, origin: str) -> ConfigFile:
    """The settings of a framework whose data file knows the keys, and a recipe's weights; no other YAML is used.

    A recipe (two of the arguments that a framework's recipes give) may lie next to a run that was made with another
    one: only the weights of the reward functions are taken from it, which the logged totals confirm or refuse.

    Files that are no YAML (templates) give nothing: what lies in a folder may be anyone's.

    Raises:
        RefusedYamlError: it has aliases or is nested too deeply: it may be the run's, and is not read.
    """
    try:
        raw = plain_yaml(text)
    except RefusedYamlError:
        raise
    except ValueError:
        return ConfigFile()
    if not isinstance(raw, dict):
        return ConfigFile()
    if (found := of_framework(raw, origin)) is not None:
        return found
    recipe = any(len(raw.keys() & table.traces.recipe) > 1 for table in frameworks().values())
    weights = spelled(raw.get("reward_weights")) if recipe else None
    if weights is None:
        return ConfigFile()
    return ConfigFile({"reward_weights": Setting(weights, f"{origin}: reward_weights")})


def hydra_folder(folder: Path) -> Path | None:
    """The Hydra folder of the one job launched from ``folder``; None where there is none, or nothing shows which.

    Raises:
        OSError: a folder can't be listed.
    """
    if (folder / HYDRA).is_dir():
        return folder / HYDRA
    if not (folder / HYDRA_OUTPUTS).is_dir():
        return None
    found: list[Path] = []
    for date in _folders(folder / HYDRA_OUTPUTS):
        found += [time / HYDRA for time in _folders(date) if (time / HYDRA).is_dir()]
    return found[0] if len(found) == 1 else None


def composed(text: str, origin: str) -> ConfigFile:
    """The composed configuration; what refers to another key (``${…}``) is not resolved and gives nothing.

    Raises:
        ValueError: no YAML, or YAML with aliases.
    """
    raw = plain_yaml(text)
    return _read(flatten(raw), origin) if isinstance(raw, Mapping) else ConfigFile()


def overrides(text: str, origin: str) -> ConfigFile:
    """The list of what was given on the command line: ``key=value``, ``+key=value``, ``++key=value``.

    Raises:
        ValueError: no YAML, or YAML with aliases.
    """
    raw = plain_yaml(text)
    given = [entry.partition("=") for entry in raw if isinstance(entry, str)] if isinstance(raw, list) else []
    return _read(((key.lstrip("+"), value) for key, sign, value in given if sign), origin)


def _read(leaves: Iterable[tuple[str, object]], origin: str) -> ConfigFile:
    return of_framework({key: _value(value) for key, value in leaves}, origin) or ConfigFile()


def _value(value: object) -> object:
    """Numbers that YAML takes for texts (``1e-6``) become such; quotes of the command line come off."""
    if not isinstance(value, str):
        return value
    text = value.strip("'\"") if len(value) > 1 else value
    return int(text) if text.isdecimal() else atom(text)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())[-MOST:]
