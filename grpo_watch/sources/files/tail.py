"""Follows a file that grows, rotates and is truncated, and yields its new complete lines."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from grpo_watch.descriptors import ADVICE, keep_some, lacking
from grpo_watch.engine.records import Cursor
from grpo_watch.errors import SourceError
from grpo_watch.sources.files import rotated
from grpo_watch.sources.files.decompress import Unpacker, is_packed
from grpo_watch.sources.files.line_splitter import LineSplitter, SplitLine
from grpo_watch.sources.files.reading import (
    BEFORE,
    HEAD,
    TurnBudget,
    before,
    begins_as,
    goes_on,
    identity,
    inode_of,
    inode_with_name,
    open_regular,
)

LINES_APART = 64
"""Lines between two checks of the turn's budget."""

__all__ = ["SplitLine", "Tail"]


class Tail:
    """Reads the lines of one file by polling; holds the last, unfinished line back until its end arrives.

    No line is lost and none comes twice when the file grows, is rotated by renaming (also several times between two
    polls, if the old files are numbered, and while no reader runs), is deleted and created again, is replaced by a
    grown copy (rsync), is led elsewhere by a link inside the roots, or appears later. A successor counts once it holds
    a byte. ``problem``: why it can't be read. Limits of the file system:

    - Truncation in place loses the lines written since the last poll; copytruncate only those written between the copy
      and the truncation, as long as the copy lies next to the file under a name that begins like it.
    - A file truncated and grown past the position counts as unchanged if its first 256 bytes and the 32 before the
      position are the same.
    - A file that was cut back but not to nothing is read again from its beginning (``generation`` grows).
    - A file deleted or replaced twice between two polls, and kept under no other name, is lost.

    Args:
        path, roots: the file; folders that links may not lead out of.
        cursor: where an earlier reader stopped; ignored (and ``generation`` starts at 1) when the file is another one.
        bars: split at carriage returns too, as consoles with progress bars need it; empty pieces are skipped.
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
        self._roots, self._bars, self.max_line, self._chunk = tuple(roots), bars, max_line, chunk
        self._expected = (cursor.identity, cursor.position) if cursor is not None and cursor.identity else None
        self._descriptor: int | None = None
        self._node, self._left = (0, 0), ("", 0)
        self._packed: Unpacker | None = None
        self._opened: dict[int, Unpacker] = {}
        self.turn, self._taken = TurnBudget(), 0
        self._begin()

    def _begin(self, position: int = 0, passed: bytes = b"") -> None:
        self._head = b""
        self._last = passed
        self._split = LineSplitter(self.generation, self.max_line, bars=self._bars, offset=position, passed=passed)

    @property
    def position(self) -> int:
        """Offset of the next line."""
        return self._split.position

    def read(self, *, live: bool = False) -> Iterator[SplitLine]:
        """Yield the lines completed since the last call. Never blocks; errors are in ``problem``.

        ``live``: at most one turn's lines, so that no other run waits for this file.
        """
        lines = self._lines()
        self.turn.begin(self._taken, live=live)
        if not live:
            yield from lines
            return
        for number, line in enumerate(lines, 1):
            yield line
            if not number % LINES_APART and self.turn.ends(self._taken, LINES_APART):
                lines.close()
                return

    def _lines(self) -> Generator[SplitLine, None, None]:
        try:
            if self._descriptor is None and not self._open():
                return
            if self._packed is not None:
                self._packed.follow(self._roots, self._split.offset)
            self._check()
            if self._packed is None and not self._split.offset and is_packed(self._head):  # it was empty when opened
                self.close()
                if not self._open():
                    return
            yield from self._drain()
            while not self.turn.ends(self._taken, 0) and (following := self._following()) is not None:
                yield from self._drain()
                if self.turn.ends(self._taken, 0):
                    break
                rest = self._change(following)
                if rest is None:
                    return
                yield from rest
                yield from self._drain()
            self.problem = self._packed.notice if self._packed is not None else ""
        except SourceError as error:
            self.problem = str(error)
        except OSError as error:
            self._lose(error)

    def finish(self) -> Iterator[SplitLine]:
        """Yield the remaining lines, including an unfinished last one: the input has ended."""
        yield from self.read()
        yield from self._split.rest()

    def cursor(self, source: str, position: int | None = None) -> Cursor:
        """Return where reading continues: after the last yielded line, or at an earlier ``position`` of this file."""
        if self._descriptor is None and self._expected is not None:
            return Cursor(source, *self._expected)
        here = self._split.position if position is None else position
        return Cursor(source, self._identity(here), here)

    def before(self, source: str, line: SplitLine) -> Cursor:
        """Return where reading continues with the last yielded line, which may be the last one of the previous file."""
        own = (identity(self._node, self._head, self._split.before_line), line.start)
        return Cursor(source, *(own if line.generation == self.generation else self._left))

    @property
    def held(self) -> int:
        """The inode of the open file while it has a name."""
        return inode_with_name(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._packed is not None:
            self._packed.close()
            self._packed = None

    def _open(self) -> bool:
        """Open the file if it exists, and continue where the expected reader stopped if that can be found."""
        if self._expected is None:
            descriptor = self._try(rotated.oldest(self.path))
            return descriptor is not None and self._read_from(descriptor)
        known, position = self._expected
        descriptor = self._try(self.path, position)
        if descriptor is not None and self._goes_on(descriptor, known, position):
            return self._read_from(descriptor, position)
        other = self._elsewhere(known, position)
        if other is None:
            return descriptor is not None and self._read_from(descriptor, restarted=True)
        if descriptor is not None:
            self._drop(descriptor)
        return self._read_from(other, position)

    def _drop(self, descriptor: int) -> None:
        os.close(descriptor)
        text = self._opened.pop(descriptor, None)
        if text is not None:
            text.close()

    def _read_from(self, descriptor: int, position: int = 0, *, restarted: bool = False) -> bool:
        try:
            info, head = os.fstat(descriptor), os.pread(descriptor, HEAD, 0)
            passed = before(descriptor, position)
        except OSError:
            self._drop(descriptor)
            raise
        self._use(descriptor, info)
        self._expected = None
        self.generation += restarted
        self._begin(position, passed)
        self._head = head
        return True

    def _use(self, descriptor: int, info: os.stat_result) -> None:
        """Read this file, or a packed file's text, from here on."""
        self.close()
        self._descriptor, self._packed = descriptor, self._opened.pop(descriptor, None)
        self._node = (info.st_dev, info.st_ino) if self._packed is None else self._packed.node

    def _goes_on(self, descriptor: int, known: str, position: int) -> bool:
        try:
            return goes_on(descriptor, known, position)
        except OSError:
            self._drop(descriptor)
            raise

    def _try(self, path: Path, position: int = 0) -> int | None:
        """Open a file's text, up to ``position`` at least; None if it is missing or refused."""
        text = None
        try:
            descriptor = keep_some(open_regular(path, self._roots))
            if is_packed(os.pread(descriptor, HEAD, 0)):
                text = Unpacker(path, descriptor)
                text.first(position)
        except FileNotFoundError:
            self.problem = ""
            return None
        except SourceError as error:
            self.problem = str(error)
            return None
        if text is None:
            return descriptor
        self._opened[text.memory] = text
        return text.memory

    def _elsewhere(self, known: str, position: int) -> int | None:
        """Find a file beside the path that continues the known one: renamed, or copied before a truncation.

        It may be packed since; then its text is opened.
        """
        for path in chain(*rotated.other_names(self.path, inode_of(known))):
            if (descriptor := self._continuation(path, known, position, packed=True)) is not None:
                return descriptor
        return None

    def _continuation(self, path: Path, known: str, position: int, *, packed: bool = False) -> int | None:
        """Return the open file if it continues the known one; ``packed``: or its text, if it is packed."""
        try:
            descriptor = open_regular(path, self._roots)
            if packed and is_packed(os.pread(descriptor, HEAD, 0)):
                text = Unpacker(path, descriptor)
                text.first(HEAD)
                descriptor = text.memory
                self._opened[descriptor] = text
                text.fill_to(position if begins_as(descriptor, known) else 0)
            if self._goes_on(descriptor, known, position):
                return descriptor
            self._drop(descriptor)
        except (OSError, SourceError) as error:
            if lacking(error):
                raise  # it may be the sought file
        return None

    def _following(self) -> Path | None:
        """Return the next file: the name's new file if it holds data, or a rotated one between.

        If there is none, a grown copy of the open file may have been rotated away.
        """
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = None
        if named is not None and (named.st_dev, named.st_ino) == self._node:
            return None
        following = rotated.successor(self.path, self._node, packed=self._packed is not None)
        ready = following != self.path or (named is not None and named.st_size > 0)
        return following if ready else self._grown_copy()

    def _change(self, following: Path) -> list[SplitLine] | None:
        """Switch to the next file; returns the old one's remaining lines, or None if the next can't be opened."""
        old, position = self._split, self._split.position
        descriptor = self._try(following, position)
        if descriptor is None:
            return None
        self._left = (self._identity(position), position)
        if self._goes_on(descriptor, *self._left):
            self._read_from(descriptor, position)
            return []
        other = (self._grown_copy() or self._behind_packed()) if following == self.path else None
        if other is not None:
            self._drop(descriptor)
            return self._change(other)
        self._read_from(descriptor, restarted=True)
        return old.rest()

    def _grown_copy(self) -> Path | None:
        """Return where reading continues when the open file has no name left and the log's name leads to another file.

        A grown copy took the name (rsync), and was renamed since. A copy without new data is a backup.
        """
        position = self._split.position
        known = self._identity(position)
        same, copies = rotated.other_names(self.path, self._node[1])
        for path in copies if not same else ():
            descriptor = self._continuation(path, known, position)
            if descriptor is None:
                continue
            grown = os.fstat(descriptor).st_size > position
            os.close(descriptor)
            if grown:
                return path
        return None

    def _behind_packed(self) -> Path | None:
        """Return the file after the packed copy of the open file, which has no name left; both were rotated."""
        places = rotated.chain(self.path, packed=True)
        for place, following in zip(places[-3::-1], places[-2::-1], strict=False):
            descriptor = None if self.held else self._continuation(place, *self._left, packed=True)
            if descriptor is not None:
                self._drop(descriptor)
                return following
        return None

    def _check(self) -> None:
        """Start over if the open file doesn't continue the data read so far, or continue in its copy if any."""
        if not self._intact():
            offset = self._split.offset
            known = identity(self._node, self._head, self._last)
            copy = self._elsewhere(known, offset) if self._head and offset else None
            if copy is None:
                self.generation += 1
                self._begin()
            else:
                self._use(copy, os.fstat(copy))
        self._head = os.pread(self._file, HEAD, 0)

    def _intact(self) -> bool:
        """Whether the open file still holds the data read from it."""
        size, offset = os.fstat(self._file).st_size, self._split.offset
        head = os.pread(self._file, HEAD, 0)
        return size >= offset and head.startswith(self._head) and before(self._file, offset) == self._last

    def _drain(self) -> Iterator[SplitLine]:
        while True:
            yield from self._split.lines()
            offset = self._split.offset
            data = b"" if self.turn.ends(self._taken, 0) else os.pread(self._file, self._chunk, offset)
            if not data:
                filled = 0 if self.turn.spent or self._packed is None else self._packed.fill()
                self._taken += filled
                if filled:
                    continue
                return
            self._taken += len(data)
            if data[0] == 0 and not data.strip(b"\0") and (end := self._hole(offset)) != offset:
                if end is None:
                    return
                self._last = b"\0" * min(BEFORE, end - offset)
                self._split.pass_hole(end - offset)
                continue
            if len(self._head) < HEAD and offset == len(self._head):
                self._head += data[: HEAD - len(self._head)]
            self.bytes += len(data)
            self._last = (self._last + data[-BEFORE:])[-BEFORE:]
            self._split.add(data)

    def _hole(self, offset: int) -> int | None:
        """Return where the data after a hole at ``offset`` begins; None if there is none yet."""
        try:
            return os.lseek(self._file, offset, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else offset

    def _lose(self, error: OSError) -> None:
        """Report that the file can't be read (stale handle, permission), and retry at the same place next time."""
        advice = ADVICE if lacking(error) else f"{error.strerror or error}; check permissions and the mount"
        self.problem = f"{self.path}: can't be read: {advice}"
        if self._descriptor is not None:
            position = self._split.position
            self._expected = (self._identity(position), position)
            self.close()

    @property
    def _file(self) -> int:
        if self._descriptor is None:
            raise FileNotFoundError(self.path)
        return self._descriptor

    def _identity(self, position: int) -> str:
        """Identify the file as read up to ``position``, from memory: it may be another file by now."""
        behind = self._split.behind
        if position != self._split.position:
            with suppress(OSError):
                behind = before(self._file, position) if self._intact() else behind
        return identity(self._node, self._head, behind) if self._node != (0, 0) else ""
