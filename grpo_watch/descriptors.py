"""Reserves file descriptors for vital work, recognises a lack of them, and identifies unchanged files by stamps."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

WANTED = 65_536
"""Target of the soft limit, if the hard limit allows: 20 descriptors for each of a few thousand runs."""
KEPT = 256
"""Descriptors that open logs leave free: 128 for the status page's connections (``web.limits``), 48 for inotify
(``daemon.service``), the rest for receivers, the state and short-lived files. At most half of a low limit."""
LOOK = 16
"""Descriptors for one look for runs: one per level of the folder tree (``sources.walk``), and a few more."""
LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
ADVICE = "no file descriptor is left; raise the limit (`ulimit -n`, `LimitNOFILE=`) or watch fewer runs"


def raise_limit() -> None:
    """Raise the soft limit of this process, and of its children, towards the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


Stamp: TypeAlias = tuple[int, int, int]
"""Inode, size and modification time (ns) of a file; while they are unchanged, so is its content."""


def stamp(file: Path | None) -> Stamp | None:
    """The stamp of a file; None if it is missing or unreadable."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return found and (found.st_ino, found.st_size, found.st_mtime_ns)


def lacking(error: Exception) -> bool:
    """Whether the error is a lack of descriptors or memory, which says nothing about the file."""
    return isinstance(error, OSError) and error.errno in LACKING


def keep_some(descriptor: int) -> int:
    """Return a descriptor that stays open for long, on the lowest free number, if enough others are left.

    Raises:
        OSError: too few are left; the descriptor is closed.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and descriptor >= limit - min(KEPT, limit // 2):
        os.close(descriptor)
        raise OSError(errno.EMFILE, ADVICE)
    return descriptor


@contextmanager
def enough(count: int = LOOK) -> Iterator[None]:
    """Make sure, before and after the ``with`` block, that so many descriptors are free.

    Raises:
        OSError: too few are free.
    """
    _take(count)
    yield
    _take(count)


def _take(count: int) -> None:
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
