"""Reads a binary log that another process appends to, and notices when its name leads to another file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from grpo_watch.descriptors import keep_some
from grpo_watch.engine.records import Cursor, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import inode_with_name, open_regular

HEAD = 256
"""This many first bytes name a file: they hold the writer's clock (TensorBoard) or the run's id (wandb)."""
CHUNK = 1 << 20


class FileFrame(NamedTuple):
    """One record of a framed file: where it and the next begin, its payload; ``damage`` says why it has none."""

    start: int
    end: int
    payload: bytes
    damage: str = ""


class GrowingFile:
    """A file that grows at its end.

    ``ready`` opens it once it is there; ``problem`` says in one line why it can't be read. ``restarted`` turns true
    when the file is not the one that ``cursor`` (or the last call) spoke of: reading begins at 0 again.
    """

    def __init__(self, path: Path, roots: Sequence[Path], cursor: Cursor | None = None) -> None:
        self.path, self.problem, self.restarted, self.bytes = path, "", False, 0
        self._roots = tuple(roots)
        self._identity = cursor.identity if cursor is not None else ""
        self._descriptor: int | None = None
        self._cached: tuple[int, bytes] = (0, b"")

    def ready(self, position: int) -> bool:
        """Whether there is something to read; sets ``restarted`` when ``position`` lies in another file."""
        self.restarted, self._cached = False, (0, b"")
        try:
            if self._descriptor is not None:
                named, held = self.path.stat(), os.fstat(self._descriptor)
                if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
                    self.close()
            if self._descriptor is None:
                self._descriptor = keep_some(open_regular(self.path, self._roots))
            self.problem = ""
            self.restarted = self._is_other(position)
            self._identity = os.pread(self._descriptor, HEAD, 0).hex()
        except FileNotFoundError:
            return self._descriptor is not None
        except SourceError as error:
            self.problem = str(error)
            return False
        except OSError as error:
            self.problem = f"{self.path}: can't be read: {error.strerror or error}; check permissions and the mount"
            self.close()
            return False
        return True

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at ``offset``, fewer than ``size`` at the end of the file (or when it can't be read any more)."""
        start, held = self._cached
        if offset < start or offset + size > start + len(held):
            self._cached = start, held = offset, self._pread(offset, max(size, CHUNK))
        return held[offset - start : offset - start + size]

    def cursor(self, source: str, position: int, state: Mapping[str, Scalar]) -> Cursor:
        """Where reading would continue."""
        return Cursor(source, self._identity, position, state)

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere."""
        return inode_with_name(self._descriptor)

    def close(self) -> None:
        """Free the file handle."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _pread(self, offset: int, size: int) -> bytes:
        if self._descriptor is None:
            return b""
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError as error:
            self.problem = f"{self.path}: can't be read: {error.strerror or error}; check permissions and the mount"
            return b""
        self.bytes = max(self.bytes, offset + len(data))
        return data

    def _is_other(self, position: int) -> bool:
        """Whether the open file is neither the known one nor a copy of it."""
        descriptor = self._descriptor or 0
        known = bytes.fromhex(self._identity)
        return position > os.fstat(descriptor).st_size or os.pread(descriptor, len(known), 0) != known
