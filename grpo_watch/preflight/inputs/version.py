"""Finds the version of a framework without importing it: what is installed, else what is pinned beside the launch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.preflight.inputs.draft import Draft, read_text

PACKAGES = {
    "trl": "trl",
    "unsloth": "trl",
    "axolotl": "trl",
    "open-r1": "trl",
    "ms-swift": "ms-swift",
    "ms-swift-megatron": "ms-swift",
    "verl": "verl",
    "openrlhf": "openrlhf",
    "nemo-rl": "nemo-rl",
}
"""The package whose version decides the batch arithmetic (TRL makes the batches of unsloth, axolotl and open-r1)."""

REQUIREMENTS = ("requirements*.txt", "requirements/*.txt", "constraints*.txt")
PROJECTS = ("pyproject.toml", "setup.py", "setup.cfg", "environment.y*ml", "Dockerfile*", "uv.lock", "poetry.lock")
MAX_FILES = 30


def find_version(draft: Draft) -> None:
    """Set the version that the launch will run with, unless it is known already."""
    package = PACKAGES.get(draft.framework or "")
    if draft.version is not None or package is None:
        return
    try:
        draft.version, draft.version_origin = metadata.version(package), f"{package} as installed here"
    except metadata.PackageNotFoundError:
        _pinned(package, draft)


def _pinned(package: str, draft: Draft) -> None:
    name = package.replace("-", "[-_]")
    pin = re.compile(rf"(?<![\w-]){name}(?:\[[^\]]*\])?\s*===?\s*v?(\d[\w.+]*)", re.IGNORECASE)
    lock = re.compile(rf'^name = "{name}"\nversion = "(\d[\w.+]*)"', re.MULTILINE)
    bound = re.compile(rf"(?<![\w-]){name}(?:\[[^\]]*\])?\s*(?:>=|~=|>|<|<=)\s*[\d.]+[^'\"\n]*", re.IGNORECASE)
    for file in _files(draft):
        try:
            text = read_text(file)
        except (OSError, SourceError, ValueError):
            continue  # a pin that can't be read is none; what is missing is asked for
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        found = (lock if file.suffix == ".lock" else pin).search(text)
        if found is not None:
            draft.version, draft.version_origin = found[1], f"{package} pinned in {draft.shown(file)}"
            return
        if (open_bound := bound.search(text)) is not None:
            draft.note(f"{draft.shown(file)}: {open_bound[0].strip()} names no single version: say --framework-version")


def _files(draft: Draft) -> Iterator[Path]:
    """Requirement files where the launch runs and beside its scripts, locks last."""
    seen: set[Path] = set()
    for folder in (draft.folder, *draft.folders):
        for pattern in REQUIREMENTS + PROJECTS:
            for file in sorted(folder.glob(pattern)):
                if file.is_file() and file not in seen and len(seen) < MAX_FILES:
                    seen.add(file)
                    yield file
