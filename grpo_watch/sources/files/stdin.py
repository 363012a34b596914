"""Spools a stream that can't be read twice (standard input) to a file that the other sources can follow."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Protocol

from grpo_watch import lazy_re as re

CHUNK = 64 << 10
ROTATE_BYTES = 64 << 20
"""Bytes after which a live spool begins a new file; at most twice this lies on the disk."""
JSON_ROW = re.compile(rb'\s{0,100}\{\s{0,100}"')
"""How a JSON row begins; a dictionary that Python printed has single quotes."""
DOCKER = b'{"log":'
"""Docker's json-file driver wraps console lines into objects."""


class InputStream(Protocol):
    """The stream interface: ``sys.stdin.buffer``."""

    def read1(self, size: int, /) -> bytes:
        """Return some bytes as soon as there are any; empty at the end."""


class Spool:
    """Copies a stream to ``folder``, under a name that fits its first line: JSON lines or a console.

    One chunk is held in memory. With ``rotate`` a file of more than that many bytes is renamed (at a line's end) and
    removed at the next turn: by then, a reader that follows the name has read it.

    Args:
        stream: the stream to copy.
        folder: an empty folder for the spool alone.
        rotate: bytes per file; None: one file, however long.
    """

    def __init__(self, stream: InputStream, folder: Path, rotate: int | None = None) -> None:
        self._stream, self._folder, self._rotate = stream, folder, rotate
        self.paths = (folder / "stdin.log", folder / "stdin.jsonl")
        self._over = threading.Event()

    @property
    def ended(self) -> bool:
        """Whether the stream has ended and is fully written."""
        return self._over.is_set()

    def copy(self) -> Path | None:
        """Copy until the stream ends; returns the file, or None if no data came."""
        try:
            head = self._first_line()
            if not head:
                return None
            json_lines = JSON_ROW.match(head) is not None and not head.startswith(DOCKER)
            path = self.paths[1 if json_lines else 0]
            self._copy(path, head)
            return path
        finally:
            self._over.set()

    def _first_line(self) -> bytes:
        """Return the data up to the first line end (or a chunk without one): it shows the file's kind."""
        head = b""
        while b"\n" not in head.lstrip() and len(head) < CHUNK and (data := self._stream.read1(CHUNK)):
            head += data
        return head

    def _copy(self, path: Path, head: bytes) -> None:
        made = self._folder / ".new"
        file = made.open("xb", buffering=0)
        try:
            file.write(head)
            made.rename(path)
            while data := self._stream.read1(CHUNK):
                cut = data.rfind(b"\n") + 1
                if self._rotate is None or not cut or os.fstat(file.fileno()).st_size < self._rotate:
                    file.write(data)
                    continue
                file.write(data[:cut])
                file.close()
                path.replace(self._folder / ".old")
                file = path.open("xb", buffering=0)
                file.write(data[cut:])
        finally:
            file.close()
