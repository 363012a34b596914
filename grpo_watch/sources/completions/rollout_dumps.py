"""Recognises dumps of rollouts, one file per step, by their names and first rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath

from grpo_watch.frameworks.dump_formats import RolloutDumps, rollout_dumps

FOLDER = re.compile(r"rollout|generation|completion|dump", re.IGNORECASE)


def format_of(path: PurePath, row: Mapping[str, object]) -> RolloutDumps | None:
    """The format of a file by its name and its first decoded line."""
    return next((one for one in rollout_dumps() if one.named(path) and one.keys <= row.keys()), None)


def may_be_dump(path: PurePath) -> bool:
    """Whether a file of this name may be a dump."""
    return any(one.named(path) for one in rollout_dumps())


def is_step_folder(name: str) -> bool:
    """Whether a folder of this name may hold the dump of one step."""
    return any(one.inner and one.file.fullmatch(name) for one in rollout_dumps())


def folder_of(path: Path) -> Path:
    """The folder that holds the dumps of all steps, one of which this file is."""
    known = next((one for one in rollout_dumps() if one.named(path)), None)
    return path.parents[known.depth] if known is not None else path.parent


def holds_dump(path: Path, head: bytes) -> tuple[bool, str | None]:
    """Whether a file that begins with ``head`` is a dump, and whose: None for rows that no framework is known to write.

    Those count as one in a folder with such a name, so that they are reported and not passed over.
    """
    row = _first_row(head) if may_be_dump(path) else None
    if row is None:
        return False, None
    known = format_of(path, row)
    texts = sum(isinstance(value, str) or value is None for value in row.values())
    called = FOLDER.search(path.parent.name) is not None
    return known is not None or (called and texts > 1), known.framework if known is not None else None


def _first_row(head: bytes) -> Mapping[str, object] | None:
    """The first line decoded; of a line longer than the part read, its visible keys."""
    line = head.split(b"\n", 1)[0]
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        row = {key.decode(): None for key in re.findall(rb'"([a-z_]{1,20})": ?[\["\d-]', line)}
    return row if isinstance(row, dict) else None
