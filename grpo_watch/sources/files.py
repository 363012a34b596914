"""Opens files of a run folder safely (regular ones, never blocking, inside the roots) and tells files apart."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from grpo_watch.errors import SourceError

HEAD = 256
"""So many first bytes tell a file from its successor under the same name and inode."""
BEFORE = 32
"""So many bytes before the reading position tell a file that was truncated and grew again from one that only grew."""


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


def before(descriptor: int, offset: int) -> bytes:
    """The bytes just before an offset."""
    start = max(0, offset - BEFORE)
    return os.pread(descriptor, offset - start, start)


def identity(node: tuple[int, int], head: bytes, behind: bytes) -> str:
    """Names a file as it was read: device and inode (which may be reused), first bytes, bytes before the position."""
    return f"{node[0]}:{node[1]}:{head.hex()}:{behind.hex()}"


def inode_of(known: str) -> int:
    """The inode that an identity names; -1 where it can't be read."""
    try:
        return int(known.split(":")[1])
    except (ValueError, IndexError):
        return -1


def goes_on(descriptor: int, known: str, position: int) -> bool:
    """Whether the open file is the one an identity speaks of, or a copy of it, up to ``position``.

    The device may change when the file system is mounted anew; an empty beginning proves nothing of another inode.
    """
    try:
        _, inode, head, behind = known.split(":")
        first, last = bytes.fromhex(head), bytes.fromhex(behind)
    except ValueError:
        return False
    info = os.fstat(descriptor)
    if info.st_size < position or (str(info.st_ino) != inode and not (first and position)):
        return False
    found = before(descriptor, position)
    return os.pread(descriptor, len(first), 0) == first and _plain(found) == _plain(last)


def _plain(text: bytes) -> bytes:
    """Carriage returns as line ends, as logs with progress bars are read."""
    return text.replace(b"\r", b"\n")
