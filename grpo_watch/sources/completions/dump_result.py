"""Reads one file of completions in any format, which may be written to meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from grpo_watch.errors import SourceError
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.files.reading import inside, open_regular


@dataclass(frozen=True, slots=True)
class DumpResult:
    """What became of one file. ``signature`` is (size, mtime in ns) of what was read; None when it could not be opened.

    ``failure`` with ``skip``: why there is no grouping; ``gone`` marks a file that vanished.
    """

    grouping: Grouping | None = None
    signature: tuple[int, int] | None = None
    skip: Skip | None = None
    failure: str = ""
    gone: bool = False
    size: int = 0


class BadDumpError(Exception):
    """A file that can't be used as it is; the message says where and why, ``skip`` how it is counted."""

    def __init__(self, message: str, skip: Skip = Skip.TRUNCATED) -> None:
        super().__init__(message)
        self.skip = skip


def read_unchanged(path: Path, roots: Sequence[Path], read: Callable[[BinaryIO], Grouping]) -> DumpResult:
    """What ``read`` makes of a file that stays the same while it is read. Raises nothing that a file can cause.

    Args:
        path: the file.
        roots: folders that links may not lead out of.
        read: reads the open file; raises BadDumpError for one that can't be used.
    """
    try:
        descriptor = open_regular(path, roots)
    except FileNotFoundError:
        return DumpResult(gone=True)
    except (SourceError, OSError) as error:
        return DumpResult(skip=Skip.UNREADABLE if inside(path, roots) else Skip.OUTSIDE, failure=str(error))
    with os.fdopen(descriptor, "rb") as file:
        before = signature_of(os.fstat(file.fileno()))
        try:
            grouping = read(file)
        except BadDumpError as error:
            return DumpResult(signature=before, skip=error.skip, failure=f"{path.name}: {error}")
        except MemoryError:
            return DumpResult(signature=before, skip=Skip.TOO_LONG, failure=f"{path.name}: no memory is left for it")
        after = signature_of(os.fstat(file.fileno()))
    if before != after:
        return DumpResult(signature=after, skip=Skip.TRUNCATED, failure=f"{path.name}: changed while it was read")
    return DumpResult(grouping, before, size=before[0])


def signature_of(info: os.stat_result) -> tuple[int, int]:
    """Size in bytes and time of change in ns: another content has another one."""
    return info.st_size, info.st_mtime_ns
