"""Wakes the engine when there is something to read: after work, a signal, or a write in a watched folder.

One inotify descriptor serves all folders. Events only trigger an immediate poll; network file systems send none.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

from grpo_watch.mounts import MOUNTS, network_type

MOST_FOLDERS = 20_000
"""Most watched folders; further ones are polled. The kernel takes about 1 KB for each."""
MODIFY, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x2, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
ONLYDIR, IGNORED, OVERFLOW, IS_FOLDER = 0x0100_0000, 0x8000, 0x4000, 0x4000_0000
WANTED = MODIFY | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF | ONLYDIR
HEADER = struct.Struct("iIII")
READ_BYTES = 1 << 16

log = logging.getLogger("grpo_watch.waker")


class Waker:
    """Wakes the running daemon at calls of ``ring`` and at writes in watched folders.

    Folders that can't be watched (no inotify, no watches left, a network file system) are in ``polled``.

    Args:
        mounts: the file that lists mounted file systems.
        most: most folders watched.
    """

    def __init__(self, mounts: Path = MOUNTS, most: int = MOST_FOLDERS) -> None:
        self._mounts, self._most = mounts, most
        self._rung, self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(self._rung, False)
        os.set_blocking(self._bell, False)
        self._inotify = _Inotify.open()
        self._poll = select.poll()
        for descriptor in (self._rung, self._inotify.descriptor if self._inotify is not None else None):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
        self._lock = Lock()
        self._folders: dict[int, Path] = {}
        self._watches: dict[Path, int] = {}
        self._asked: set[Path] = set()
        self._remote: dict[int, bool] = {}
        self.polled: frozenset[Path] = frozenset()
        """Folders that the last round could not watch."""
        self.watched: frozenset[Path] = frozenset()
        """Folders in which a write wakes the engine, as of the last round."""
        self._unwatched: set[Path] = set()
        self.structure = Event()
        """Set when files or folders came, went or were renamed, or a file changed for which ``quiet`` is False."""
        self.quiet: Callable[[Path], bool] = lambda _: False
        """Whether growth of this file can't change the set of runs."""
        self._reported = False

    # for the engine's thread

    def wait(self, timeout: float) -> None:
        """Return after a ``ring`` or a change in a watched folder since the last call, or after ``timeout`` seconds."""
        self._poll.poll(timeout * 1000.0)
        with suppress(BlockingIOError):
            while os.read(self._rung, READ_BYTES):
                pass

    def changed(self) -> frozenset[Path]:
        """Files in watched folders that grew since the last call, and folders that changed otherwise."""
        if self._inotify is None:
            return frozenset()
        changed: set[Path] = set()
        with self._lock:
            for event in self._inotify.events():
                self._take(event, changed)
        return frozenset(changed)

    # for any thread

    def ring(self) -> None:
        """Wake the waiting thread."""
        with self._lock, suppress(BlockingIOError, OSError):  # full: already rung; closed: nobody waits
            os.write(self._bell, b"\0")

    # for the thread of discovery

    def watch(self, folder: Path) -> None:
        """Watch a folder without its subfolders; call it before listing the folder, so that no change is missed."""
        self._asked.add(folder)
        if folder not in self._watches and not self._add(folder):
            self._unwatched.add(folder)

    def forget_others(self) -> None:
        """End the watches of folders that were not passed to ``watch`` since the last call."""
        with self._lock:
            for folder in self._watches.keys() - self._asked:
                self._remove(folder)
            self.watched = frozenset(self._watches)
        self.polled = frozenset(self._unwatched)
        self._asked, self._unwatched = set(), set()

    def close(self) -> None:
        """Close the descriptors; later calls of ``ring`` have no effect."""
        with self._lock:
            if self._inotify is not None:
                os.close(self._inotify.descriptor)
                self._inotify = None
            os.close(self._rung)
            os.close(self._bell)
            self._rung = self._bell = -1

    def _add(self, folder: Path) -> bool:
        if self._inotify is None or len(self._watches) >= self._most:
            return False
        try:
            if self._is_remote(folder):
                return False
            with self._lock:
                number = self._inotify.add(folder)
                before = self._folders.get(number)
                if before is not None:  # the folder was renamed
                    self._watches.pop(before, None)
                self._folders[number], self._watches[folder] = folder, number
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR} and not self._reported:
                self._reported = True
                fields = {"error": str(error), "fix": "raise fs.inotify.max_user_watches"}
                log.info("some folders can't be watched; polling continues", extra={"fields": fields})
            return False
        return True

    def _is_remote(self, folder: Path) -> bool:
        device = folder.stat().st_dev
        if device not in self._remote:
            self._remote[device] = bool(network_type(folder, self._mounts))
        return self._remote[device]

    def _remove(self, folder: Path) -> None:
        number = self._watches.pop(folder, None)
        if number is not None and self._inotify is not None:
            self._folders.pop(number, None)
            self._inotify.remove(number)

    def _take(self, event: _FileEvent, changed: set[Path]) -> None:
        folder = self._folders.get(event.number)
        if event.mask & OVERFLOW:
            changed.update(self._watches)
            self.structure.set()
        elif event.mask & IGNORED:
            self._folders.pop(event.number, None)
            if folder is not None and self._watches.get(folder) == event.number:
                del self._watches[folder]
                self.structure.set()
        elif folder is None:
            self.structure.set()
        else:
            path = folder / event.name
            if event.mask & MODIFY:
                changed.add(path)
                if not self.quiet(path):
                    self.structure.set()
                return
            changed.add(folder)
            self.structure.set()
            if event.mask & (MOVE_SELF | DELETE_SELF):
                path = folder
            if event.mask & (MOVED_FROM | MOVE_SELF | DELETE_SELF) and (event.mask & IS_FOLDER or path == folder):
                for below in [one for one in self._watches if one == path or path in one.parents]:
                    self._remove(below)


class _FileEvent(NamedTuple):
    number: int
    mask: int
    name: str


class _Inotify:
    """The kernel's calls (Linux)."""

    def __init__(self, library: ctypes.CDLL, descriptor: int) -> None:
        self._library, self.descriptor = library, descriptor

    @classmethod
    def open(cls) -> _Inotify | None:
        try:
            library = ctypes.CDLL(None, use_errno=True)
            descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            return None
        return cls(library, descriptor) if descriptor >= 0 else None

    def add(self, folder: Path) -> int:
        number: int = self._library.inotify_add_watch(self.descriptor, os.fsencode(folder), WANTED)
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
        return number

    def remove(self, number: int) -> None:
        self._library.inotify_rm_watch(self.descriptor, number)

    def events(self) -> Iterator[_FileEvent]:
        while True:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, length = HEADER.unpack_from(data, at)
                at += HEADER.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                yield _FileEvent(number, mask, os.fsdecode(name))
