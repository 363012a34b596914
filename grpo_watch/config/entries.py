"""Finds what the settings file says of a run: the first ``runs:`` entry that its folder falls under."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from grpo_watch.config.schema import RunEntry


def entry_for(root: Path, entries: Sequence[RunEntry], files: Iterable[Path] = ()) -> RunEntry | None:
    """The first entry whose path (a folder, a file or a glob) is the run's root, one of its parents or its files."""
    places = [str(place) for place in (*(file.resolve() for file in files), root.resolve(), *root.resolve().parents)]
    for entry in entries:
        wanted = str(Path(entry.path).expanduser().absolute())
        if any(fnmatch(place, wanted) for place in places):
            return entry
    return None
