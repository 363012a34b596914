"""Locks a state directory for one daemon; the kernel frees the lock when the holder dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from grpo_watch.errors import StateInUseError, UsageError

FILE = "lock"
CREDENTIALS = struct.Struct("3i")
OWNER_ONLY = 0o700
OTHERS = 0o077
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error codes of a full disk or an exhausted quota."""

log = logging.getLogger("grpo_watch.store")


class StateLock:
    """The lock of one state directory, held from construction to ``release``; the file holds the holder's pid.

    On a full disk a new directory can't be made; then the socket below is the only lock.
    The file disappears if the directory is removed while locked; then an abstract socket (Linux), named after the path,
    still shows that there is a holder.
    A missing directory is created for its owner only; one that others may enter causes a warning.

    Raises:
        StateInUseError: another process holds it; the message names that process.
        UsageError: the directory can't be made or written.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        self._mark: int | None = None
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
        self._mark = self._mark_place(folder)

    def _mark_place(self, folder: Path) -> int | None:
        try:
            above = folder.absolute().parent.stat()
            place = f"{above.st_dev}:{above.st_ino}:{folder.absolute().name}"
        except OSError:  # no room for it either
            place = str(folder.absolute())
        address = b"\0grpo-watch-state-" + hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest().encode()
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(address)
            mark.listen(1)
        except OSError as error:
            mark.close()
            holder = _holder(address) if error.errno == errno.EADDRINUSE else None
            if holder is None:
                return None  # no such sockets here, or another user's
            self.release()
            raise StateInUseError(
                f"{folder}: in use by another grpo-watch (pid {holder}), which goes on although the directory was "
                "removed; stop it or give this one its own --state-dir"
            ) from None
        return mark.detach()

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
            if error.errno not in FULL:  # a full disk: it is locked, but without the holder's pid
                self.release()
                raise UsageError(f"{folder}: state can't be kept there: {error.strerror or error}") from None

    def release(self) -> None:
        """Release the directory."""
        for descriptor in (self._mark, self._descriptor):
            if descriptor is not None:
                os.close(descriptor)


def _holder(address: bytes) -> int | None:
    """The process that listens at this address; None if it is another user's."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1.0)
        asking.connect(address)
        found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, user, _ = CREDENTIALS.unpack(found)
        return int(pid) if user in {os.geteuid(), 0} else None
    return None


def _warn(folder: Path) -> None:
    mode = folder.stat().st_mode & 0o777
    if mode & OTHERS:
        fields = {"path": str(folder), "mode": f"{mode:04o}", "fix": f"chmod 700 {folder}"}
        log.warning("the state directory is accessible to other users", extra={"fields": fields})
