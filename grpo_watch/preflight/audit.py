"""Collects the known versions and settings of a launch or a run for the advisories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from grpo_watch.advisories.entries import packages
from grpo_watch.advisories.judge import VERSION_OF, Match, Setup, judge
from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import Setting, Tick
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch
from grpo_watch.pipeline.offline import read_run
from grpo_watch.preflight.inputs.framework_version import installed_in
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch
from grpo_watch.preflight.launch_setup import setup_of
from grpo_watch.sources.discovery.discover import ChannelContent, FoundRun, discover

SCHEMA = "grpo-watch/audit/1"
ABOUT = ("id", "package", "severity", "title", "wrong", "shows", "fix", "fixed", "threads")
"""Fields of an applying advisory in the JSON."""
SAYS_NOTHING = frozenset(
    {
        ChannelContent.COMPLETIONS_JSONL,
        ChannelContent.COMPLETIONS_PARQUET,
        ChannelContent.COMPLETION_DUMPS,
        ChannelContent.ROLLOUT_SUMMARIES,
        ChannelContent.WANDB_TABLES,
        ChannelContent.CHECKPOINTS,
        ChannelContent.PROBE,
    }
)
"""Channels without versions and settings."""


@dataclass(frozen=True)
class Audit:
    """One run or launch, and the advisories that apply to it or may apply."""

    name: str
    setup: Setup
    matches: tuple[Match, ...]

    @property
    def versions(self) -> Mapping[str, Setting]:
        """The packages with a known version, sorted, each with its source."""
        settings = sorted(self.setup.settings.items())
        return {name.removeprefix(VERSION_OF): given for name, given in settings if name.startswith(VERSION_OF)}

    @property
    def judged(self) -> bool:
        """Whether the version of any package with advisories is known; without one, none could apply."""
        return not packages().isdisjoint(self.versions)

    @property
    def applying(self) -> tuple[Match, ...]:
        """The advisories whose version and condition are known to be met."""
        return tuple(match for match in self.matches if match.applies)

    @property
    def open(self) -> tuple[Match, ...]:
        """The advisories that lack a version or a setting."""
        return tuple(match for match in self.matches if not match.applies)


def audit(
    path: Path | None, command: Sequence[str], options: GivenOptions, folder: Path, environ: Mapping[str, str]
) -> list[Audit]:
    """Audit the runs below a path, a launch file, or a command.

    Raises:
        UsageError: there is no run and no launch.
    """

    def launched() -> list[Audit]:
        launch = read_launch(path, command, options, folder, environ)
        return [_of(launch.text, setup_of(launch))]

    if path is None or command:
        return launched()
    if (folder / path).is_file():  # a script or a configuration, otherwise a log
        try:
            return launched()
        except UsageError:
            runs = discover(folder / path)
            if not runs:
                raise
    else:
        runs = discover(folder / path)
    found = [_of(run.name, _of_run(run, path, options, folder, environ)) for run in runs]
    return found or launched()


def _of(name: str, setup: Setup) -> Audit:
    return Audit(name, setup, tuple(judge(setup)))


def _of_run(found: FoundRun, path: Path, options: GivenOptions, folder: Path, environ: Mapping[str, str]) -> Setup:
    """Versions and settings from the run's logs and configurations; those of its recorded launch fill gaps."""
    channels = tuple(channel for channel in found.channels if channel.what not in SAYS_NOTHING)
    read = read_run(replace(found, channels=channels), (), catalogue(), Tick(0.0, live=False))
    known = read.pipeline.setup
    place = found.root if found.root.is_dir() else path
    try:
        launched = setup_of(read_launch(place, (), options, folder, environ))
    except UsageError:
        return _by_options(known, options)
    settings = {**launched.settings, **known.settings}
    return Setup(known.framework or launched.framework, settings, launched.complete)


def _by_options(known: Setup, options: GivenOptions) -> Setup:
    """Versions and settings of the run without a recorded launch; versions from the options fill gaps."""
    installed = {} if options.python is None else installed_in(options.python)
    framework = known.framework or options.framework
    launch = Launch(
        framework=framework,
        version=options.version,
        version_origin="--framework-version",
        packages={name: Setting(version, f"--python {options.python}") for name, version in installed.items()},
    )
    versions = {name: given for name, given in setup_of(launch).settings.items() if name.startswith(VERSION_OF)}
    return Setup(framework, {**versions, **known.settings})


def document(audits: Sequence[Audit]) -> dict[str, Any]:
    """The JSON document of ``audit --format json``."""
    return {"schema": SCHEMA, "audits": [_audited(each) for each in audits]}


def _audited(one: Audit) -> dict[str, Any]:
    versions = {name: {"version": given.value, "from": given.origin} for name, given in one.versions.items()}
    return {
        "name": one.name,
        "framework": one.setup.framework,
        "judged": one.judged,
        "versions": versions,
        "applies": [_applying(match) for match in one.applying],
        "open": [
            {"id": match.advisory.id, "package": match.advisory.package, "settle": match.settle} for match in one.open
        ],
    }


def _applying(match: Match) -> dict[str, Any]:
    advisory = msgspec.to_builtins(match.advisory)
    found = {"version": match.version, "version_from": match.origin, "settings": match.given, "where": match.where}
    return {**{key: advisory[key] for key in ABOUT}, **found}
