"""Recognises checkpoints whose weights are elsewhere: a clone without its large files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.sources.checkpoints.extents import opened

LARGEST_POINTER = 1024
"""Bytes; the specification of Git LFS allows fewer than that, and an annex key is shorter."""
POINTERS = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer"),
    (b"version http://git-media.io/", "a Git LFS pointer"),
    (b"/annex/objects/", "a git-annex pointer"),
)
INDEX = ".index.json"


def pointer(head: bytes) -> str:
    """What is in the place of a large file that begins so; empty for a file of its own."""
    return next((what for begin, what in POINTERS if head.startswith(begin)), "")


def why_absent(folder: Path, sizes: Mapping[str, int], wanted: Collection[str], roots: Sequence[Path]) -> str:
    """Why not one of a checkpoint's weight files is here; empty where at least one is.

    Args:
        folder: of the checkpoint.
        sizes: bytes of the files in it, by relative name.
        wanted: the chosen weight files, with their index.
        roots: folders that links may not lead out of.
    """
    files = [name for name in wanted if not name.endswith(INDEX)]
    if not files:
        return "the index names shards of which none is here" if wanted else ""
    if any(sizes[name] > LARGEST_POINTER for name in files):
        return ""
    found = [_stands_in(folder / name, roots) for name in files]
    return f"each weight file is {found[0]}" if all(found) else ""


def _stands_in(path: Path, roots: Sequence[Path]) -> str:
    try:
        with opened(path, roots) as descriptor:
            return pointer(os.pread(descriptor, LARGEST_POINTER, 0))
    except (OSError, SourceError):
        return ""
