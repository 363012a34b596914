"""Holds a state directory for one daemon: a lock that the kernel frees when its holder dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from pathlib import Path

from grpo_watch.errors import StateInUseError, UsageError

FILE = "lock"
OWNER_ONLY = 0o700
OTHERS = 0o077
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where there is no room, or no more of it for this user or process."""

log = logging.getLogger("grpo_watch.store")


class StateLock:
    """The lock of one state directory, held from construction to ``release``; the file holds the holder's pid.

    On a full disk a new directory can't be made, and nothing is held.
    A directory that is not there is made for its owner only; of one that others may enter a warning is logged.

    Raises:
        StateInUseError: another process holds it; the message names that process.
        UsageError: the directory can't be made or written.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        try:
            folder.mkdir(OWNER_ONLY, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in FULL:
                raise UsageError(
                    f"{folder}: state can't be kept there: {error.strerror or error} (give another --state-dir)"
                ) from None
        else:
            self._lock(folder, self._descriptor)
            _warn(folder)

    def _lock(self, folder: Path, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            if not isinstance(error, BlockingIOError):
                raise UsageError(f"{folder}: can't be locked: {error.strerror or error}") from None
            raise StateInUseError(
                f"{folder}: in use by another grpo-watch (pid {holder}); stop it or give this one its own --state-dir"
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            if error.errno not in FULL:  # there it is locked, only who holds it can't be said
                self.release()
                raise UsageError(f"{folder}: state can't be kept there: {error.strerror or error}") from None

    def release(self) -> None:
        """Free the directory."""
        if self._descriptor is not None:
            os.close(self._descriptor)


def _warn(folder: Path) -> None:
    mode = folder.stat().st_mode & 0o777
    if mode & OTHERS:
        fields = {"path": str(folder), "mode": f"{mode:04o}", "fix": f"chmod 700 {folder}"}
        log.warning("the state directory is accessible to other users", extra={"fields": fields})
