"""Turns the configuration files in a run's folder into ``RunConfig`` records; each setting has its origin.

``training_args.bin`` is a pickle and is never opened.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash
from msgspec import Struct

from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Cursor, RunConfig, Scalar, Setting
from grpo_watch.engine.reward_functions import spelled
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.frameworks.framework_tables import frameworks, layout_of
from grpo_watch.sources.base import ChannelSource, Skip
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.settings import config_files
from grpo_watch.sources.settings.config_files import (
    FROM_ARGUMENTS,
    FROM_CHECKPOINT,
    FROM_LAUNCH,
    FROM_USER,
    of_framework,
    settings_alone,
)
from grpo_watch.sources.settings.documents import RefusedYamlError, plain_yaml, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grpo_watch.engine.records import Item

MAX_BYTES = 4 << 20
MAX_YAML_BYTES = 1 << 20


HYDRA = ".hydra"
HYDRA_OUTPUTS = "outputs"
"""Hydra's folder below the launch folder: ``outputs/<date>/<time>/.hydra``."""
MOST = 64
"""Most folders of dates and times that are listed."""


def framework_yaml(text: str, origin: str) -> RunConfig:
    """Read the settings of a framework whose data file has the keys, or a recipe's weights; no other YAML is used.

    A recipe (with two of a framework's recipe arguments) may belong to another run: only its weights of reward
    functions are taken, which the logged totals confirm or refute.

    Files that are no YAML (templates) are ignored.

    Raises:
        RefusedYamlError: it has aliases or is nested too deeply: it may be the run's, but is not read.
    """
    try:
        raw = plain_yaml(text)
    except RefusedYamlError:
        raise
    except ValueError:
        return settings_alone({})
    if not isinstance(raw, dict):
        return settings_alone({})
    if (found := of_framework(raw, origin)) is not None:
        return found
    recipe = any(len(raw.keys() & table.traces.recipe) > 1 for table in frameworks().values())
    weights = spelled(raw.get("reward_weights")) if recipe else None
    if weights is None:
        return settings_alone({})
    return settings_alone({"reward_weights": Setting(weights, f"{origin}: reward_weights")})


def hydra_folder(folder: Path) -> Path | None:
    """Return the Hydra folder of the one job launched from ``folder``; None if there is none, or several.

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


def composed(text: str, origin: str) -> RunConfig:
    """Read the composed configuration; references to other keys (``${…}``) are dropped.

    Raises:
        ValueError: no YAML, or YAML with aliases.
    """
    raw = plain_yaml(text)
    found = of_framework(raw, origin) if isinstance(raw, Mapping) else None
    return found or settings_alone({})


def overrides(text: str, origin: str) -> RunConfig:
    """Read the list of overrides on the command line: ``key=value``, ``+key=value``, ``++key=value``.

    Raises:
        ValueError: no YAML, or YAML with aliases.
    """
    raw = plain_yaml(text)
    given = [entry.partition("=") for entry in raw if isinstance(entry, str)] if isinstance(raw, list) else []
    return of_framework({key.lstrip("+"): value for key, sign, value in given if sign}, origin) or settings_alone({})


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())[-MOST:]


CHECKPOINT, PACKAGES = "checkpoint", "packages"
"""Folders below the run's, beside Hydra's: the newest checkpoint's, and that of wandb's list of packages."""


class _Kind(Struct, frozen=True):
    """One kind of file: its names, its folder, its reader."""

    patterns: tuple[str, ...]
    read: Callable[[str, str], RunConfig]
    precedence: int
    below: str = ""
    limit: int = MAX_BYTES


ARGUMENTS = tuple(filter(None, (table.traces.arguments.file for table in frameworks().values())))
KINDS = (
    _Kind(ARGUMENTS, config_files.arguments, FROM_ARGUMENTS),
    _Kind(("README.md",), config_files.model_card, FROM_LAUNCH),
    _Kind(("ds_config*.json", "deepspeed*.json", "zero[0-3]*.json"), config_files.deepspeed, FROM_LAUNCH),
    _Kind(("requirements.txt",), config_files.requirements, FROM_LAUNCH, below=PACKAGES, limit=MAX_YAML_BYTES),
    _Kind(
        ("accelerate*.y*ml", "*accelerate_config.y*ml", "default_config.yaml"),
        config_files.accelerate,
        FROM_LAUNCH,
        limit=MAX_YAML_BYTES,
    ),
    _Kind(("overrides.yaml",), overrides, FROM_LAUNCH, below=HYDRA, limit=MAX_YAML_BYTES),
    _Kind(("config.yaml",), composed, FROM_LAUNCH, below=HYDRA, limit=MAX_YAML_BYTES),
    _Kind(("*.yaml", "*.yml", "config.json"), framework_yaml, FROM_LAUNCH, limit=MAX_YAML_BYTES),
    _Kind(("config.yaml",), framework_yaml, FROM_CHECKPOINT, below=CHECKPOINT, limit=MAX_YAML_BYTES),
    _Kind(("adapter_config.json",), config_files.adapter, FROM_CHECKPOINT, below=CHECKPOINT),
    _Kind(("config.json",), config_files.model_config, FROM_CHECKPOINT, below=CHECKPOINT),
)


def from_user(settings: Mapping[str, Scalar], origin: str = "--set") -> RunConfig:
    """Return the user's settings of a run, which win over everything read or inferred.

    Texts of numbers or booleans are converted. ``framework`` and ``framework_version`` are taken as well.

    Raises:
        UsageError: a name is not a known setting.
    """
    given = {name: typed(value) if isinstance(value, str) else value for name, value in settings.items()}
    framework, version = given.pop("framework", None), settings.get("framework_version")
    given.pop("framework_version", None)
    for name in given:
        if name not in SETTINGS:
            near = get_close_matches(name, [*SETTINGS, "framework", "framework_version"], 1)
            raise UsageError(f"{origin} {name}: no such setting{f'; did you mean {near[0]}?' if near else ''}")
    return RunConfig(
        str(framework) if framework is not None else None,
        str(version) if version is not None else None,
        {name: Setting(value, origin) for name, value in given.items()},
        precedence=FROM_USER,
    )


def read_run_config(
    folder: Path, roots: Sequence[Path] = (), segment: int = 0, channel: str = "run-config"
) -> list[RunConfig]:
    """Return the settings in ``folder``'s configuration files and its newest checkpoint's, one record per file."""
    source = RunConfigSource(channel, folder, roots or (folder,), segment=segment)
    return [item for item in source.poll(None) if isinstance(item, RunConfig)]


class RunConfigSource(ChannelSource):
    """Watches the configuration files of one folder and yields a record when a file appears or has new settings."""

    def _begin(self) -> None:
        self._given = {key: str(value) for key, value in self._known.items()}
        self._states: dict[str, tuple[int, int, int]] = {}

    def _new(self, seen: float | None) -> Iterator[Item]:
        del seen
        self.stats.problem = ""
        for kind, path in self._files():
            try:
                info = path.stat()
            except OSError:
                continue
            role = path.name if kind.below == CHECKPOINT else path.relative_to(self._path).as_posix()
            state = (info.st_ino, info.st_size, info.st_mtime_ns)
            if self._states.get(str(path)) == state:
                continue
            config = self._read(kind, path)
            self._states[str(path)] = state
            fingerprint = xxhash.xxh3_64_hexdigest(repr(config).encode()) if config is not None else ""
            if config is not None and self._given.get(role) != fingerprint:
                self._given[role] = fingerprint
                yield config

    def cursor(self) -> Cursor:
        """The last settings given, by file."""
        return Cursor(self.name, "", 0, dict(self._given))

    def _files(self) -> Iterator[tuple[_Kind, Path]]:
        """Yield existing files in a fixed order. A model card beside arguments names a library, not the framework."""
        names = self._names(self._path)
        folders = {CHECKPOINT: self._newest_checkpoint(names), HYDRA: self._hydra(names), PACKAGES: self._packages()}
        for kind in KINDS:
            if kind.below:
                folder = folders[kind.below]
                held = frozenset(self._names(folder)) if folder is not None else frozenset[str]()
                yield from ((kind, folder / name) for name in kind.patterns if folder is not None and name in held)
            elif kind.read is not config_files.model_card or not any(name in names for name in ARGUMENTS):
                fitting = {name for pattern in kind.patterns for name in fnmatch.filter(names, pattern)}
                yield from ((kind, self._path / name) for name in names if name in fitting)

    def _packages(self) -> Path | None:
        """Return the path of wandb's list of installed packages, beside its newest log."""
        try:
            kept = sorted(self._path.glob("wandb/*run-*/files/requirements.txt"))[-1:]
        except OSError:
            kept = []
        found = (path for path in (self._path / "files" / "requirements.txt", *kept) if path.is_file())
        return next((path.parent for path in found), None)

    def _names(self, folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in folder.iterdir())
        except OSError as error:
            if folder == self._path:
                self.stats.problem = f"{folder}: can't be listed: {error.strerror or error}"
            return []

    def _newest_checkpoint(self, names: Sequence[str]) -> Path | None:
        found = [(known[1], name, known[0].configured) for name in names if (known := layout_of(name)) is not None]
        for _, name, marker in sorted(found, reverse=True):
            if marker and (self._path / name / marker).exists():
                return self._path / name
        return None

    def _hydra(self, names: Sequence[str]) -> Path | None:
        if HYDRA not in names and HYDRA_OUTPUTS not in names:
            return None
        try:
            return hydra_folder(self._path)
        except OSError:
            return None

    def _read(self, kind: _Kind, path: Path) -> RunConfig | None:
        try:
            text = _text(path, self._roots, kind)
            found = kind.read(text, self._origin(kind, path))
        except SourceError as error:
            self.stats.skip(Skip.OUTSIDE, str(error))
            return None
        except OSError as error:
            self.stats.skip(Skip.UNREADABLE, f"{path}: {error.strerror or error}")
            return None
        except ValueError as error:
            self.stats.skip(Skip.BAD_VALUE, f"{path}: {error}")
            return None
        if not found.settings and found.framework is None:
            if kind.read is config_files.arguments:
                self.stats.skip(Skip.BAD_VALUE, f"{path}: none of its keys is a setting that is known")
            return None
        return replace(found, channel=self.name, segment=self.segment, precedence=kind.precedence)

    def _origin(self, kind: _Kind, path: Path) -> str:
        return f"checkpoint-*/{path.name}" if kind.below == CHECKPOINT else path.relative_to(self._path).as_posix()


def _text(path: Path, roots: Sequence[Path], kind: _Kind) -> str:
    """Return the file's text.

    Raises:
        SourceError: it lies outside the roots or is no regular file.
        OSError: it can't be read.
        ValueError: it is too large for such a file.
    """
    with os.fdopen(open_regular(path, roots), "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > kind.limit:
            raise ValueError(f"{size} bytes, more than the limit of {kind.limit} for such files")
        return file.read(kind.limit).decode("utf-8", "replace")
