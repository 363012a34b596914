"""Turns a file that grows, rotates and is truncated into the complete lines that were added to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from grpo_watch.core.records import Cursor
from grpo_watch.errors import SourceError
from grpo_watch.sources.files import file_identity, open_regular

HEAD = 256
"""So many first bytes tell a file from its successor under the same name and inode."""
BEFORE = 32
"""So many bytes before the reading position tell a file that was truncated and grew again from one that only grew."""
EXCERPT = 4096
"""So much is given of a line that is too long to be held."""


class Line(NamedTuple):
    """A line without its end, and where it lay: ``end`` is the offset of the next line.

    ``generation`` grows whenever the file begins anew (rotation, truncation), ``too_long`` lines are cut to 4 KiB.
    """

    start: int
    end: int
    data: bytes
    generation: int
    too_long: bool = False


class Tail:
    """Reads the lines of one file by polling; holds the last, unfinished line back until its end arrives.

    Survives rotation by rename (the old file is finished first), truncation in place, copytruncate, deletion and
    re-creation with the same inode, and a file that appears later. ``problem`` says in one line why it can't be read.

    Args:
        path: the file.
        roots: folders that links may not lead out of.
        cursor: where an earlier reader stopped; ignored (and ``generation`` starts at 1) when the file is another one.
        bars: split at carriage returns too, as consoles with progress bars need it; empty pieces are passed over.
        max_line: longest line in bytes; longer ones are skipped without being held in memory.
        chunk: bytes per read.
    """

    def __init__(
        self,
        path: Path,
        roots: Sequence[Path],
        cursor: Cursor | None = None,
        *,
        bars: bool = False,
        max_line: int = 8 << 20,
        chunk: int = 1 << 20,
    ) -> None:
        self.path, self.problem, self.generation, self.bytes = path, "", 0, 0
        self._roots, self._bars, self._max_line, self._chunk = tuple(roots), bars, max_line, chunk
        self._expected = (cursor.identity, cursor.position) if cursor is not None and cursor.identity else None
        self._descriptor: int | None = None
        self._forget()

    def _forget(self) -> None:
        """Begin at offset 0. ``_buffer[_cut:]`` holds what was read but not given out; it starts at ``position``."""
        self.position = self._offset = self._cut = 0
        self._buffer = self._head = self._before = self._excerpt = b""
        self._skipping = False

    def read(self) -> Iterator[Line]:
        """The lines that were completed since the last call. Never blocks; errors are told in ``problem``."""
        try:
            if self._descriptor is None and not self._open():
                return
            self._check()
            yield from self._drain()
            while self._replaced():
                yield from self._drain()
                yield from self._rest()
                if not self._reopen():
                    return
                yield from self._drain()
        except OSError as error:
            self._lose(error)

    def finish(self) -> Iterator[Line]:
        """What is left, the unfinished last line included: the input has ended."""
        yield from self.read()
        yield from self._rest()

    def cursor(self, source: str, position: int | None = None) -> Cursor:
        """Where reading would go on: behind the line given out last, or at an earlier ``position``."""
        if self._descriptor is None and self._expected is not None:
            return Cursor(source, *self._expected)
        position = self.position if position is None else position
        return Cursor(source, self._identity(position), position)

    def close(self) -> None:
        """Free the file handle."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        """Open the path if it is there, and go on where the expected reader stopped if it is the same file."""
        try:
            self._descriptor = open_regular(self.path, self._roots)
        except FileNotFoundError:
            return False
        except SourceError as error:
            self.problem = str(error)
            return False
        self.problem = ""
        if self._expected is not None:
            identity, position = self._expected
            self._expected = None
            if self._is(identity, position):
                self.position = self._offset = position
                self._before = self._at(position)
            else:
                self.generation += 1
        return True

    def _reopen(self) -> bool:
        """Change from a file that was finished to the one that has its name now."""
        try:
            descriptor = open_regular(self.path, self._roots)
        except SourceError as error:
            self.problem = str(error)
            return False
        self.close()
        self._descriptor, self.problem = descriptor, ""
        self._forget()
        self.generation += 1
        return True

    def _replaced(self) -> bool:
        """Whether the name leads to another file than the one that is open."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        opened = os.fstat(self._file)
        return (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)

    def _check(self) -> None:
        """Begin anew when the open file is not a continuation of what was read."""
        size = os.fstat(self._file).st_size
        head = os.pread(self._file, HEAD, 0)
        if size < self._offset or not head.startswith(self._head) or self._at(self._offset) != self._before:
            self._forget()
            self.generation += 1
        self._head = head

    def _drain(self) -> Iterator[Line]:
        """Give out complete lines until nothing more can be read."""
        while True:
            yield from self._lines()
            data = os.pread(self._file, self._chunk, self._offset)
            if not data:
                return
            if len(self._head) < HEAD and self._offset == len(self._head):
                self._head += data[: HEAD - len(self._head)]
            self._offset += len(data)
            self.bytes += len(data)
            self._before = (self._before + data[-BEFORE:])[-BEFORE:]
            self._buffer += data.replace(b"\r", b"\n") if self._bars else data

    def _lines(self) -> Iterator[Line]:
        """The complete lines in the buffer. All state is set before a line is given out: a cursor may be asked for."""
        buffer = self._buffer
        while (end := buffer.find(b"\n", self._cut)) >= 0:
            data, start = buffer[self._cut : end], self.position
            self.position += end + 1 - self._cut
            self._cut = end + 1
            if self._skipping:
                yield self._skipped(start)
            elif data or not self._bars:
                yield self._line(start, data)
        self._buffer, self._cut = self._buffer[self._cut :], 0
        if self._buffer[:1] == b"\0":
            self._drop_hole()
        if len(self._buffer) > self._max_line or self._skipping:
            self._skip()

    def _line(self, start: int, data: bytes) -> Line:
        if data.endswith(b"\r"):
            data = data[:-1]
        if data.startswith(b"\0"):
            data = data.lstrip(b"\0")
        if len(data) > self._max_line:
            return Line(start, self.position, data[:EXCERPT], self.generation, too_long=True)
        return Line(start, self.position, data, self.generation)

    def _drop_hole(self) -> None:
        """Pass over the hole of zeros that a writer leaves which goes on at its old offset after a truncation."""
        rest = self._buffer.lstrip(b"\0")
        if not self._skipping:
            self.position += len(self._buffer) - len(rest)
            self._buffer = rest

    def _skip(self) -> None:
        """Let go of the beginning of a line that is too long; ``position`` stays at its start."""
        self._excerpt = (self._excerpt + self._buffer[:EXCERPT])[:EXCERPT]
        self._buffer, self._skipping = b"", True

    def _skipped(self, start: int) -> Line:
        self.position = self._offset - len(self._buffer) + self._cut
        excerpt, self._excerpt, self._skipping = self._excerpt, b"", False
        return Line(start, self.position, excerpt, self.generation, too_long=True)

    def _rest(self) -> Iterator[Line]:
        """The unfinished last line, if there is one."""
        start, data = self.position, self._buffer[self._cut :]
        self._buffer, self._cut = b"", 0
        if self._skipping:
            yield self._skipped(start)
        elif data:
            self.position = self._offset
            yield self._line(start, data)

    def _lose(self, error: OSError) -> None:
        """The file can't be read (stale handle, permission): say so, and try to go on at the same place next time."""
        self.problem = f"{self.path}: can't be read: {error.strerror or error}; check permissions and the mount"
        if self._descriptor is not None:
            self._expected = (self._identity(self.position), self.position)
            self.close()
            self._forget()

    @property
    def _file(self) -> int:
        if self._descriptor is None:
            raise FileNotFoundError(self.path)
        return self._descriptor

    def _at(self, offset: int) -> bytes:
        """The bytes just before an offset."""
        start = max(0, offset - BEFORE)
        return os.pread(self._file, offset - start, start)

    def _identity(self, position: int) -> str:
        if self._descriptor is None:
            return ""
        try:
            return f"{file_identity(self._descriptor, self._head)}:{self._at(position).hex()}"
        except OSError:
            return ""

    def _is(self, identity: str, position: int) -> bool:
        """Whether the open file is the one a cursor speaks of (its device may change when it is mounted anew)."""
        try:
            _, inode, head, before = identity.split(":")
            known, last = bytes.fromhex(head), bytes.fromhex(before)
        except ValueError:
            return False
        same = str(os.fstat(self._file).st_ino) == inode and os.fstat(self._file).st_size >= position
        return same and os.pread(self._file, len(known), 0) == known and self._at(position) == last
