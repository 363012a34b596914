"""Wakes the engine when there is something to read: a bell that a watched folder, a worker or a signal rings.

Files are always polled; inotify (by watchdog) only makes the poll immediate: on network file systems it sees nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from grpo_watch.mounts import MOUNTS, network_type

log = logging.getLogger("grpo_watch.waker")


class Waker(Protocol):
    """A bell."""

    def wait(self, timeout: float) -> None:
        """Return when the bell was rung since the last call, or after ``timeout`` seconds."""

    def ring(self) -> None:
        """Wake the waiting thread; safe from any thread."""


class EventWaker:
    """The bell of the running daemon."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def wait(self, timeout: float) -> None:
        """Return when the bell was rung since the last call, or after ``timeout`` seconds."""
        self._rung.wait(timeout)
        self._rung.clear()

    def ring(self) -> None:
        """Wake the waiting thread; safe from any thread."""
        self._rung.set()


class FileEvents:
    """Rings a waker whenever something is written in one of the watched folders.

    Watching may fail (no inotify handles left, a folder that vanishes); the daemon then polls, which it does anyway.
    Folders on a network file system are not watched: what another machine writes there rings nothing.

    Args:
        waker: what is rung.
        mounts: where the mounted file systems are listed.
    """

    def __init__(self, waker: Waker, mounts: Path = MOUNTS) -> None:
        from watchdog.events import FileSystemEventHandler  # noqa: PLC0415  some users switch it off
        from watchdog.observers import Observer  # noqa: PLC0415

        self._changed: SimpleQueue[Path] = SimpleQueue()
        changed = self._changed

        class Handler(FileSystemEventHandler):
            """Rings for what changes a folder's files, not for files being opened or read (we do that ourselves)."""

            def on_created(self, event: Any) -> None:
                changed.put(Path(os.fsdecode(event.src_path)).parent)
                waker.ring()

            on_modified = on_moved = on_created

        logging.getLogger("watchdog").setLevel(logging.CRITICAL)  # it grumbles when it is stopped; what fails, raises
        self._handler: Any = Handler()
        self._observer: Any = Observer()
        self._watches: dict[Path, Any] = {}
        self._reported = False
        self._mounts = mounts
        self._polled: set[Path] = set()

    def start(self) -> None:
        """Begin; without inotify nothing happens."""
        try:
            self._observer.start()
        except OSError as error:
            self._give_up(error)

    def watch(self, folders: Iterable[Path]) -> None:
        """Watch exactly these folders (not what lies below them)."""
        wanted = set(folders)
        self._polled &= wanted
        for folder in self._watches.keys() - wanted:
            self._observer.unschedule(self._watches.pop(folder))
        for folder in wanted - self._watches.keys() - self._polled:
            self._add(folder)

    def changed(self) -> frozenset[Path]:
        """The watched folders in which something was written since the last call."""
        folders = set()
        while not self._changed.empty():  # the only consumer
            folders.add(self._changed.get())
        return frozenset(folders)

    def stop(self) -> None:
        """End the observer's threads."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join(1.0)

    def _add(self, folder: Path) -> None:
        if network_type(folder, self._mounts):
            self._polled.add(folder)
            return
        try:
            self._watches[folder] = self._observer.schedule(self._handler, str(folder), recursive=False)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            log.info("some folders can't be watched; polling continues", extra={"fields": {"error": str(error)}})
