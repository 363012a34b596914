"""One child process whose death the parent survives, and the setup of every child: isolation, limits, exit."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

FILES = 1_024
"""Descriptors: the soft limit that Linux gives a process by default, which is enough for every reader."""
_NEW_USERS, _NEW_NETWORK = 0x1000_0000, 0x4000_0000
"""``CLONE_NEWUSER`` and ``CLONE_NEWNET`` of linux/sched.h."""


def isolate() -> bool:
    """Limit the process's descriptors, forbid core dumps, and leave the network; returns whether it could leave.

    It leaves by moving into an empty network namespace, which takes Python 3.12, and as a user other than root a kernel
    that permits user namespaces and a process that has no thread yet. A process with capabilities
    stays in its namespace, because leaving would lose file access.
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
    soft, hard = resource.getrlimit(what)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(what, (most, hard))


def _is_capable() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(line.startswith("CapEff:") and int(line.split()[1], 16) for line in lines)


MEMORY = 3 << 30
"""Bytes of address space in addition to the program. pyarrow reserves one GB, and a dump of 2,048 completions of 40 KB
takes 1.2 GB with that, of which 160 MB are used."""
END_SECONDS = 3.0


class ChildLostError(Exception):
    """The child ended before it answered; the text is the signal that ended it, or ``nothing``."""


class Child:
    """A running process, and the pipe to it.

    Args:
        target: the function to run; gets the pipe's other end, then ``arguments``. It ends when the pipe is closed.
        name: of the process.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any, name: str) -> None:
        import multiprocessing  # noqa: PLC0415  most runs need no process

        context: Any = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return bool(self._process.is_alive())

    def send(self, value: Any) -> None:
        """Send a value.

        Raises:
            ChildLostError: it has ended.
        """
        try:
            self._pipe.send(value)
        except OSError:
            raise self._lost() from None

    def receive(self, seconds: float | None = None) -> Any:
        """The next value that it sends; ``seconds`` None waits without limit.

        Raises:
            ChildLostError: it ended first.
            TimeoutError: nothing came in time.
        """
        try:
            ready = self._pipe.poll(seconds)
            value = self._pipe.recv() if ready else None
        except (EOFError, OSError):
            raise self._lost() from None
        if not ready:
            raise TimeoutError
        return value

    def kill(self) -> None:
        """Kill it; a pending ``receive`` raises ``ChildLostError``."""
        self._process.kill()

    def close(self, seconds: float = END_SECONDS) -> None:
        """Close the pipe; kills a process that has not ended by itself after ``seconds``."""
        with suppress(OSError):
            self._pipe.close()
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(END_SECONDS)

    def _lost(self) -> ChildLostError:
        self._process.join(END_SECONDS)
        code = self._process.exitcode or 0
        return ChildLostError(signal.Signals(-code).name if code < 0 else "nothing")


def follow_parent() -> None:
    """Ignore Ctrl-C, which the parent handles, and exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import multiprocessing  # noqa: PLC0415  most runs need no process

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def bound_memory() -> None:
    """Limit the process's growth to ``MEMORY`` bytes of address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([pages * resource.getpagesize() + MEMORY, *limits]), hard))


def _follow(sentinel: int) -> None:
    from multiprocessing import connection  # noqa: PLC0415  as above

    connection.wait([sentinel])
    os._exit(1)
