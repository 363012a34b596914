"""What is watched: paths and addresses as they are named, and those that are waited for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_watch.config.schema import Settings
from grpo_watch.daemon.run_reader import newest_write
from grpo_watch.errors import UsageError
from grpo_watch.safe_text import visible
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.trackers.wandb_api.remote import is_remote, parse_place


def watched_paths(paths: Sequence[str], settings: Settings) -> list[str]:
    """The paths of the command line, else those of the settings file, as absolute ones.

    Raises:
        UsageError: there are none, or one is of a kind that is not watched.
    """
    named = list(paths) or [entry.path for entry in settings.runs]
    if not named:
        raise UsageError("nothing to watch: pass the run's output folder, or list it under runs: in grpo-watch.yaml")
    for path in named:
        if path == "-" or ("://" in path and not is_remote(path)):
            raise UsageError(f"{path}: unsupported; use a folder, glob, file or wandb://ENTITY/PROJECT[/RUN]")
    return [str(parse_place(path)) if is_remote(path) else str(Path(path).expanduser().absolute()) for path in named]


def newest_below(folder: Path, allow_roots: Sequence[Path]) -> str:
    """The run below the folder that was written last, where a command names none; says on standard error which.

    Raises:
        UsageError: there is none.
    """
    found = Discoverer(allow_roots).discover(folder)
    if not found:
        raise UsageError(
            "no PATH was given and no run was found below the current folder: pass the run's output folder"
            " (`run` also takes runs: in grpo-watch.yaml)"
        )
    newest = max(found, key=newest_write)
    path = str(next(iter(newest.files), newest.root))
    others = f" of {len(found)}" if len(found) > 1 else ""
    sys.stderr.write(f"grpo-watch: no PATH given, taking the newest run{others} below this folder: {visible(path)}\n")
    return path


def missing(places: Sequence[str]) -> Iterator[str]:
    """What is waited for: paths that are not there yet, and folders that hold nothing."""
    for place in places:
        if is_remote(place) or any(char in place for char in "*?["):
            continue
        if not Path(place).exists():
            yield f"waiting for {place}"
        elif Path(place).is_dir() and _is_empty(Path(place)):
            yield f"waiting for a run in {place}, which is empty"


def _is_empty(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is None
    except OSError:
        return False  # discovery reports the error
