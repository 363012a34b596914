"""Opens files of a run folder safely (regular, non-blocking, inside the roots) and identifies them later."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PosixPath

from grpo_watch.errors import SourceError

HEAD = 256
"""First bytes that distinguish a file from its successor under the same name and inode."""
BEFORE = 32
"""Bytes before the reading position that show whether a file was truncated and grew again."""

FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""``O_PATH`` (Linux) needs no permission to list the folder."""


class FixedRoot(PosixPath):
    """A root resolved when it was found; if a link replaces it later, the link's target counts as outside."""


def inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether ``path``, with every link resolved, lies under one of ``roots`` (themselves resolved)."""
    return _lies_under(real_path(path), roots)


def real_path(path: Path) -> Path:
    """Resolve links; unlike ``Path.resolve``, accepts a link to itself (opening it fails)."""
    return Path(os.path.realpath(path))


def open_regular(path: Path, roots: Sequence[Path]) -> int:
    """A read-only file descriptor of a regular file under ``roots``.

    Opened non-blocking, so that a FIFO named ``train.log`` can't hang the watcher. A job may swap a file or folder for
    a link at any moment, so only the checked file is opened.

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
    """Open a resolved path folder by folder without following links: one created since is refused."""
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
    """Return the bytes just before an offset."""
    start = max(0, offset - BEFORE)
    return os.pread(descriptor, offset - start, start)


def identity(node: tuple[int, int], head: bytes, behind: bytes) -> str:
    """Identify a file as read: device and inode (which may be reused), first bytes, bytes before the position."""
    return f"{node[0]}:{node[1]}:{head.hex()}:{behind.hex()}"


def inode_of(known: str) -> int:
    """Return the inode in an identity; -1 if it can't be parsed."""
    try:
        return int(known.split(":")[1])
    except (ValueError, IndexError):
        return -1


def inode_with_name(descriptor: int | None) -> int:
    """Return the inode of an open file that still has a name; 0 if it is closed or was deleted."""
    try:
        info = os.fstat(descriptor) if descriptor is not None else None
    except OSError:
        return 0
    return info.st_ino if info is not None and info.st_nlink else 0


def goes_on(descriptor: int, known: str, position: int) -> bool:
    """Whether the open file is the identified one, or a copy of it, up to ``position``.

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
    """Whether the open file has the first bytes of an identity."""
    begins = os.pread(descriptor, HEAD, 0).hex()
    return any(head and begins.startswith(head) for head in known.split(":")[2:3])


def _plain(text: bytes) -> bytes:
    """Turn carriage returns into line ends, as for logs with progress bars."""
    return text.replace(b"\r", b"\n")


BUDGET, RECORDS = 4 << 20, 8_000
"""Most bytes and records (lines, logged values) of one file read per turn of a live run: some tenths of a second, while
other runs wait. Short lines alone could fill the bytes with a million records."""


class TurnBudget:
    """Limits how much of a file one turn reads, so that other runs wait little; ``spent``: there is more to read."""

    def __init__(self) -> None:
        self.spent = False
        self.begin(0, live=False)

    def begin(self, position: int, *, live: bool) -> None:
        """Begin a turn at a position; unlimited unless ``live``."""
        self.spent = False
        self._last = position + BUDGET if live else math.inf
        self._records = RECORDS if live else math.inf

    def ends(self, position: int, records: int = 1) -> bool:
        """Whether the turn is over at this position, ``records`` records after the last call."""
        self._records -= records
        self.spent = position >= self._last or self._records <= 0
        return self.spent


@contextmanager
def opened(path: Path, roots: Sequence[Path]) -> Iterator[int]:
    """Yield a descriptor of a regular file under ``roots``, then close it.

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
    """Return the whole content of a small file.

    Raises:
        SourceError: larger than ``limit`` bytes, unreadable or outside ``roots``.
        FileNotFoundError: it vanished.
    """
    with opened(path, roots) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise SourceError(f"{path}: {size} bytes, at most {limit} are read")
        return os.pread(descriptor, size, 0)
