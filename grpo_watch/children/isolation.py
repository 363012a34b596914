"""Takes from a process that parses foreign files what parsing never needs: the network, core dumps, descriptors."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

FILES = 1_024
"""Descriptors: the soft limit that Linux gives a process by default, which every reader lives with."""
_NEW_USERS, _NEW_NETWORK = 0x1000_0000, 0x4000_0000
"""``CLONE_NEWUSER`` and ``CLONE_NEWNET`` of linux/sched.h."""


def isolate() -> bool:
    """Bound the process's descriptors, forbid core dumps, and leave the network; whether it could leave.

    It leaves by moving into an empty network namespace, which takes Python 3.12, and as a user other than root a kernel
    that permits user namespaces and a process that has no thread yet. One that holds capabilities keeps them and stays:
    it may read files by them that it could not read from a user namespace.
    """
    _bound(resource.RLIMIT_CORE, 0)
    _bound(resource.RLIMIT_NOFILE, FILES)
    unshare = getattr(os, "unshare", None)
    if unshare is None:
        return False
    ways = (_NEW_NETWORK, *(() if _is_capable() else (_NEW_USERS | _NEW_NETWORK,)))
    for way in ways:
        with suppress(OSError):
            unshare(way)
            return True
    return False


def _bound(what: int, most: int) -> None:
    """Lower a soft limit."""
    soft, hard = resource.getrlimit(what)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(what, (most, hard))


def _is_capable() -> bool:
    """Whether the process holds capabilities, as root does."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(line.startswith("CapEff:") and int(line.split()[1], 16) for line in lines)
