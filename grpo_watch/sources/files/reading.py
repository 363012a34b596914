"""Opens files of a run folder safely (regular ones, never blocking, inside the roots) and recognises them again."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PosixPath

from grpo_watch.errors import SourceError

HEAD = 256
"""This many first bytes distinguish a file from its successor under the same name and inode."""
BEFORE = 32
"""This many bytes before the reading position show that a file was truncated and grew again."""

FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""``O_PATH`` (Linux) needs no right to list the folder."""


class FixedRoot(PosixPath):
    """A root as it was resolved when it was found: what a link leads to that has taken its place lies outside."""


def inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether ``path``, with every link resolved, lies under one of ``roots`` (themselves resolved)."""
    return _lies_under(real_path(path), roots)


def real_path(path: Path) -> Path:
    """Links resolved; unlike ``Path.resolve``, a link that leads to itself is no error here (opening it is)."""
    return Path(os.path.realpath(path))


def open_regular(path: Path, roots: Sequence[Path]) -> int:
    """A read-only file descriptor of a regular file under ``roots``.

    Opened non-blocking, so that a FIFO named ``train.log`` can't hang the watcher. A job may swap a
    file or a folder for a link at any moment: the file that was checked is opened, or none.

    Raises:
        SourceError: a link leads out of the roots, or the path is no regular file.
        OSError: it can't be opened (missing, no permission, out of handles).
    """
    real = real_path(path)
    if not _lies_under(real, roots):
        raise SourceError(f"{path}: a link leads out of the run folder; list its target under allow_roots to read it")
    try:
        descriptor = _open_resolved(real)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceError(f"{path}: not a regular file")
    return descriptor


def _lies_under(real: Path, roots: Sequence[Path]) -> bool:
    resolved = (root if isinstance(root, FixedRoot) else real_path(root) for root in roots)
    return any(real == root or root in real.parents for root in resolved)


def _open_resolved(real: Path) -> int:
    """Open a resolved path folder by folder, and follow no link: one that was put in since leads nowhere."""
    *folders, name = real.relative_to(real.anchor).parts or (".",)
    place = os.open(real.anchor, FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, FOLDER | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = below
        return os.open(name, FILE | os.O_NOFOLLOW, dir_fd=place)
    finally:
        os.close(place)


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


def inode_with_name(descriptor: int | None) -> int:
    """The inode of an open file that has a name somewhere; 0 of one that is closed or was deleted."""
    try:
        info = os.fstat(descriptor) if descriptor is not None else None
    except OSError:
        return 0
    return info.st_ino if info is not None and info.st_nlink else 0


def goes_on(descriptor: int, known: str, position: int) -> bool:
    """Whether the open file is the one an identity is about, or a copy of it, up to ``position``.

    The device may change when the file system is mounted again; an empty beginning proves nothing about another inode.
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


def begins_as(descriptor: int, known: str) -> bool:
    """Whether the open file has the first bytes that an identity names."""
    begins = os.pread(descriptor, HEAD, 0).hex()
    return any(head and begins.startswith(head) for head in known.split(":")[2:3])


def _plain(text: bytes) -> bytes:
    """Carriage returns as line ends, as logs with progress bars are read."""
    return text.replace(b"\r", b"\n")


BUDGET, RECORDS = 4 << 20, 8_000
"""Bytes and records (lines, logged values) of one file that one turn of a live run reads: some tenths of a second, in
which other runs wait. Of short lines the bytes alone would be a million."""


class TurnBudget:
    """What one turn may read of a file, so that no run waits long for another; ``spent``: there is more to read."""

    def __init__(self) -> None:
        self.spent = False
        self.begin(0, live=False)

    def begin(self, position: int, *, live: bool) -> None:
        """A turn begins at a position; without ``live`` it has no bounds."""
        self.spent = False
        self._last = position + BUDGET if live else math.inf
        self._records = RECORDS if live else math.inf

    def ends(self, position: int, records: int = 1) -> bool:
        """Whether the turn is over at this position, so many records further than when asked last."""
        self._records -= records
        self.spent = position >= self._last or self._records <= 0
        return self.spent


@contextmanager
def opened(path: Path, roots: Sequence[Path]) -> Iterator[int]:
    """A descriptor of a regular file under ``roots``, closed afterwards.

    Raises:
        SourceError: it can't be opened or read, or lies outside ``roots``.
        FileNotFoundError: it vanished.
    """
    try:
        descriptor = open_regular(path, roots)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror or error}") from None


def read_small(path: Path, roots: Sequence[Path], limit: int) -> bytes:
    """The whole content of a small file.

    Raises:
        SourceError: larger than ``limit`` bytes, unreadable or outside ``roots``.
        FileNotFoundError: it vanished.
    """
    with opened(path, roots) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise SourceError(f"{path}: {size} bytes, at most {limit} are read")
        return os.pread(descriptor, size, 0)
