"""Opens files of a run folder safely: regular files only, never blocking, never out of the allowed roots."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from grpo_watch.errors import SourceError


def inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether ``path``, with every link resolved, lies under one of ``roots`` (themselves resolved)."""
    real = _real(path)
    return any(real == root or root in real.parents for root in map(_real, roots))


def _real(path: Path) -> Path:
    """Links resolved; unlike ``Path.resolve``, a link that leads to itself is no error here (opening it is)."""
    return Path(os.path.realpath(path))


def open_regular(path: Path, roots: Sequence[Path]) -> int:
    """A read-only file descriptor of a regular file under ``roots``.

    Opened non-blocking, so that a FIFO named ``train.log`` can't hang the watcher.

    Raises:
        SourceError: a link leads out of the roots, or the path is no regular file.
        OSError: it can't be opened (missing, no permission, out of handles).
    """
    if not inside(path, roots):
        raise SourceError(f"{path}: a link leads out of the run folder; list its target under allow_roots to read it")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceError(f"{path}: not a regular file")
    return descriptor


def file_identity(descriptor: int, head: bytes) -> str:
    """Names a file as it is now: device, inode and a fingerprint of its first bytes (an inode may be reused)."""
    info = os.fstat(descriptor)
    return f"{info.st_dev}:{info.st_ino}:{head.hex()}"
