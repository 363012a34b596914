"""Finds the versions of packages without importing them: what is installed here, what is pinned next to the launch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from grpo_watch.engine.records import Setting
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import LaunchDraft, read_text
from grpo_watch.preflight.inputs.program import RUNNERS

REQUIREMENTS = ("requirements*.txt", "requirements/*.txt", "constraints*.txt")
PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg", "environment.y*ml", "Dockerfile*", "uv.lock", "poetry.lock")
MAX_FILES = 30
MAX_WORDS = 12
ELSEWHERE = RUNNERS | {"docker", "podman", "singularity", "apptainer", "enroot", "kubectl", "ray", "sbatch"}
"""Commands that run another one in an environment of its own."""


class _Release(NamedTuple):
    version: str
    origin: str


def find_version(draft: LaunchDraft) -> None:
    """Set the version that the launch will run with, unless it is known already.

    The installed version counts before the pinned one where the launch would use it: a command that is
    started from here, and not through a runner with an environment of its own. A script or a configuration may be for
    another machine: there the pin next to it says more.
    """
    if draft.deepspeed and "deepspeed" not in draft.packages and (found := _release("deepspeed", draft)) is not None:
        draft.packages["deepspeed"] = Setting(*found)
    facts = launch_facts().get(draft.framework or "")
    if draft.version is not None or facts is None:
        return
    found = _release(facts.package, draft, report=True)
    if found is not None:
        draft.version, draft.version_origin = found


def runs_here(command: Sequence[str]) -> bool:
    """Whether a command would take the packages installed in this environment: none of its words leads elsewhere."""
    paths = [PurePath(word) for word in command[:MAX_WORDS]]
    interpreters = [path for path in paths if path.is_absolute() and path.parent.name == "bin"]
    return not any(path.name in ELSEWHERE for path in paths) and all(
        path.is_relative_to(sys.prefix) for path in interpreters
    )


def _release(package: str, draft: LaunchDraft, *, report: bool = False) -> _Release | None:
    """The version that counts; ``report`` notes the other one where two are known, and a range that is no version."""
    installed, (pinned, ranges) = _installed(package), _pinned(package, draft)
    first, second = (installed, pinned) if draft.runs_here else (pinned, installed)
    if report and first is not None and second is not None and first.version != second.version:
        draft.note(
            f"{package} {first.version} is judged ({first.origin}), not {second.version} ({second.origin}): "
            "say --framework-version if it is the other"
        )
    if report and first is None and second is None:
        for line in ranges:
            draft.note(f"{line} names no single version: say --framework-version")
    return first or second


def _installed(package: str) -> _Release | None:
    from importlib import metadata  # noqa: PLC0415  as slow as all readers together, and often not needed

    try:
        return _Release(metadata.version(package), f"{package} as installed here")
    except metadata.PackageNotFoundError:
        return None


def _pinned(package: str, draft: LaunchDraft) -> tuple[_Release | None, list[str]]:
    """The first exact pin, and the ranges that were read before it."""
    name = package.replace("-", "[-_]")
    pin = re.compile(rf"(?<![\w-]){name}(?:\[[^\]]*\])?\s*===?\s*v?(\d[\w.+]*)", re.IGNORECASE)
    table = re.compile(rf'^{name}\s*=\s*"(?:==)?(\d[\w.+]*)"', re.IGNORECASE | re.MULTILINE)
    lock = re.compile(rf'^name = "{name}"\nversion = "(\d[\w.+]*)"', re.MULTILINE)
    bound = re.compile(rf"(?<![\w-]){name}(?:\[[^\]]*\])?\s*(?:>=|~=|>|<|<=)\s*[\d.]+[^'\"\n]*", re.IGNORECASE)
    ranges: list[str] = []
    for file in _files(draft):
        try:
            text = read_text(file)
        except (OSError, SourceError, ValueError):
            continue  # a pin that can't be read is none; what is missing is asked for
        text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
        found = lock.search(text) if file.suffix == ".lock" else pin.search(text) or table.search(text)
        if found is not None:
            return _Release(found[1], f"{package} pinned in {draft.shown(file)}"), ranges
        if (open_bound := bound.search(text)) is not None:
            ranges.append(f"{draft.shown(file)}: {open_bound[0].strip()}")
    return None, ranges


def _files(draft: LaunchDraft) -> Iterator[Path]:
    """Requirement files where the launch runs and beside its scripts, locks last.

    An existing run has files of its own; the current folder counts only if the run lies below it.
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
