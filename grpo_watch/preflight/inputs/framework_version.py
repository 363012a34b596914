"""Finds the versions of packages without importing them: installed in this environment, or pinned beside the launch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from grpo_watch.advisories.entries import advisories, packages
from grpo_watch.engine.records import Setting
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import LaunchDraft, read_text
from grpo_watch.preflight.inputs.program import KNOWN

REQUIREMENTS = ("requirements*.txt", "requirements/*.txt", "constraints*.txt")
PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg", "environment.y*ml", "Dockerfile*", "uv.lock", "poetry.lock")
GIVEN = "--framework-version"
MAX_FILES = 30
MAX_WORDS = 12
ELSEWHERE = KNOWN.runners | {"docker", "podman", "singularity", "apptainer", "enroot", "kubectl", "ray", "sbatch"}
"""Commands that run another one in their own environment."""


def find_version(draft: LaunchDraft) -> None:
    """Set the version that the launch will run with, unless it is already known.

    The installed version counts before the pinned one if the launch would use it: a command started from here, not
    through a runner with its own environment. A script or a configuration may be for another machine: the pin next to
    it then says more.
    """
    facts = launch_facts().get(draft.framework or "")
    own = "" if facts is None else facts.package
    if draft.environment_of is not None:
        _from_environment(draft.environment_of, own, draft)
    elif facts is not None and draft.version is None and (found := _release(own, draft, report=True)) is not None:
        draft.version, draft.version_origin = str(found.value), found.origin
    for package in sorted(_concerned(draft) - draft.packages.keys() - {own}):
        if draft.environment_of is None and (found := _release(package, draft)) is not None:
            draft.packages[package] = found


def _concerned(draft: LaunchDraft) -> set[str]:
    """Packages below the framework whose version advisories depend on."""
    if draft.framework is None:
        return set()
    any_framework = {advisory.package for advisory in advisories() if not advisory.frameworks}
    uses_deepspeed = bool(draft.deepspeed) or draft.value("deepspeed") is not None
    return any_framework if uses_deepspeed else any_framework - {"deepspeed"}


def _from_environment(place: Path, own: str, draft: LaunchDraft) -> None:
    """Read versions from the names of an environment's ``dist-info`` folders, without running anything in it."""
    found = installed_in(place)
    origin = f"--python {draft.shown(place)}"
    for package in packages() & found.keys():
        draft.packages[package] = Setting(found[package], origin)
    if own in found and draft.version_origin != GIVEN:
        draft.version, draft.version_origin = found[own], origin


def installed_in(place: Path) -> dict[str, str]:
    """Package versions in the environment of an interpreter (``env/bin/python``) or a folder (``env``).

    Raises:
        UsageError: no packages are installed there.
    """
    root = place.parent.parent if place.parent.name in {"bin", "Scripts"} else place
    folders = [root, *sorted(root.glob("lib*/python3*/*-packages")), *sorted(root.glob("Lib/site-packages"))]
    names = [path.name.removesuffix(".dist-info") for folder in folders for path in folder.glob("*-*.dist-info")]
    if not names:
        raise UsageError(f"--python {place}: no installed packages there (pass env/bin/python or the environment)")
    pairs = (name.rpartition("-") for name in names)
    return {package.lower().replace("_", "-"): version for package, _, version in pairs}


def runs_here(command: Sequence[str]) -> bool:
    """Whether a command would use this environment's packages: none of its words names another environment."""
    paths = [PurePath(word) for word in command[:MAX_WORDS]]
    interpreters = [path for path in paths if path.is_absolute() and path.parent.name == "bin"]
    return not any(path.name in ELSEWHERE for path in paths) and all(
        path.is_relative_to(sys.prefix) for path in interpreters
    )


def _release(package: str, draft: LaunchDraft, *, report: bool = False) -> Setting | None:
    """The version that counts; with ``report`` the draft notes the other one if both are known."""
    installed, pinned = _installed(package), _pinned(package, draft)
    first, second = (installed, pinned) if draft.runs_here else (pinned, installed)
    if report and first is not None and second is not None and first.value != second.value:
        draft.note(
            f"{package} {first.value} is judged ({first.origin}), not {second.value} ({second.origin}): "
            "say --framework-version if it is the other"
        )
    return first or second


def _installed(package: str) -> Setting | None:
    from importlib import metadata  # noqa: PLC0415  as slow as all readers together, and often not needed

    try:
        return Setting(metadata.version(package), f"{package} as installed here")
    except metadata.PackageNotFoundError:
        return None


def _pinned(package: str, draft: LaunchDraft) -> Setting | None:
    """The first exact pin; ranges are ignored."""
    name = package.replace("-", "[-_]")
    pin = re.compile(rf"(?<![\w-]){name}(?:\[[^\]]*\])?\s*===?\s*v?(\d[\w.+]*)", re.IGNORECASE)
    table = re.compile(rf'^{name}\s*=\s*"(?:==)?(\d[\w.+]*)"', re.IGNORECASE | re.MULTILINE)
    lock = re.compile(rf'^name = "{name}"\nversion = "(\d[\w.+]*)"', re.MULTILINE)
    for file in _files(draft):
        try:
            text = read_text(file)
        except ValueError:
            continue  # an unreadable pin is ignored; a missing version is asked for
        text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
        found = lock.search(text) if file.suffix == ".lock" else pin.search(text) or table.search(text)
        if found is not None:
            return Setting(found[1], f"{package} pinned in {draft.shown(file)}")
    return None


def _files(draft: LaunchDraft) -> Iterator[Path]:
    """Requirement files where the launch runs and beside its scripts, locks last.

    For an existing run the current folder counts only if it contains the run.
    """
    seen: set[Path] = set()
    run, here = draft.run_folder, [draft.folder]
    elsewhere = run is not None and not run.is_relative_to(draft.folder)
    for folder in here + draft.folders if run is None else draft.folders + ([] if elsewhere else here):
        for pattern in REQUIREMENTS + PROJECTS:
            for file in sorted(folder.glob(pattern)):
                if file.is_file() and file not in seen and len(seen) < MAX_FILES:
                    seen.add(file)
                    yield file
