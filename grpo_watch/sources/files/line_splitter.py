"""Turns the bytes of one file, read in pieces, into its lines and the places where they lay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from grpo_watch.sources.files.reading import BEFORE

EXCERPT = 4096
"""So much is given of a line that is too long to be held."""


class SplitLine(NamedTuple):
    """A line without its end, and where it lay: ``end`` is the offset of the next line.

    ``generation`` grows whenever the file starts over (rotation, truncation), ``too_long`` lines are cut to 4 KiB.
    """

    start: int
    end: int
    data: bytes
    generation: int
    too_long: bool = False


def line_of(start: int, end: int, data: bytes, generation: int, max_line: int) -> SplitLine:
    """A line from its bytes: without the carriage return at its end and the hole of zeros before it."""
    if data.endswith(b"\r"):
        data = data[:-1]
    if data.startswith(b"\0"):
        data = data.lstrip(b"\0")
    if len(data) > max_line:
        return SplitLine(start, end, data[:EXCERPT], generation, too_long=True)
    return SplitLine(start, end, data, generation)


class LineSplitter:
    """Takes pieces in order and gives the complete lines; holds the unfinished one back.

    ``position`` is where the next line starts, ``offset`` where the next piece lies.

    Args:
        generation: copied into the lines.
        bars: split at carriage returns too; empty pieces are passed over.
        max_line: longest line in bytes; longer ones are skipped without being held in memory.
        offset: where the first piece lies.
        passed: the bytes just before that.
    """

    def __init__(self, generation: int, max_line: int, *, bars: bool, offset: int = 0, passed: bytes = b"") -> None:
        self.generation, self.position, self.offset = generation, offset, offset
        self._bars, self._max_line = bars, max_line
        self._buffer = self._excerpt = b""
        self._cut = 0
        self._pieces: list[bytes] = []
        self._open = self._seen = 0
        self._passed = passed
        self._mark: bytes | None = None
        self._begun = 0
        self._rest: bytes | None = None

    @property
    def behind(self) -> bytes:
        """The last bytes before ``position``, as they were read."""
        if self._mark is not None:
            return self._mark
        return (self._passed + self._buffer[max(0, self._cut - BEFORE) : self._cut])[-BEFORE:]

    @property
    def before_line(self) -> bytes:
        """The last bytes before the line given out last, as they were read; asked for before the next one."""
        if self._rest is not None:
            return self._rest
        return (self._passed + self._buffer[max(0, self._begun - BEFORE) : self._begun])[-BEFORE:]

    def feed(self, data: bytes) -> None:
        """Take the piece that lies at ``offset``."""
        self.offset += len(data)
        self._rest = None
        self._pieces.append(data.replace(b"\r", b"\n") if self._bars else data)

    def pass_hole(self, count: int) -> None:
        """A hole of so many zeros lies at ``offset``, behind the lines given out: it is not read."""
        self._join()
        if self._buffer or self._mark is not None:
            self._skip()
        else:
            self.position += count
        self.offset += count
        self._passed = b"\0" * min(BEFORE, count)

    def lines(self) -> Iterator[SplitLine]:
        """The complete lines. All state is set before a line is given out: a cursor may be asked for."""
        if self._grows():
            return
        known = self._join()
        buffer = self._buffer
        while (end := buffer.find(b"\n", max(self._cut, known))) >= 0:
            data, start = buffer[self._cut : end], self.position
            self.position += end + 1 - self._cut
            self._begun, self._cut = self._cut, end + 1
            if self._mark is not None:
                yield self._skipped(start)
            elif data or not self._bars:
                yield self._line(start, data)
        self._hold_back()

    def _hold_back(self) -> None:
        self._pass(self._cut)
        if self._buffer[:1] == b"\0" and self._mark is None:
            self._drop_hole()
        if len(self._buffer) > self._max_line or self._mark is not None:
            self._skip()
        self._open = len(self._buffer)

    def rest(self) -> list[SplitLine]:
        """The unfinished last line, if there is one."""
        self._join()
        start, data, skipping = self.position, self._buffer[self._cut :], self._mark is not None
        self._rest = self.behind
        self._pass(len(self._buffer))
        if skipping:
            return [self._skipped(start)]
        self.position = self.offset
        return [self._line(start, data)] if data else []

    def _grows(self) -> bool:
        """Whether what came since only makes an unfinished line longer: one of megabytes is copied once, at its end."""
        if not self._open or not self._pieces:
            return False
        while self._seen < len(self._pieces) and b"\n" not in self._pieces[self._seen]:
            self._seen += 1
        return self._seen == len(self._pieces) and self._open + sum(map(len, self._pieces)) <= self._max_line

    def _join(self) -> int:
        """Put the pieces together; so many bytes from the beginning are known to hold no end of a line."""
        known = self._open + sum(map(len, self._pieces[: self._seen]))
        self._open = self._seen = 0
        if self._pieces:
            self._buffer = b"".join((self._buffer, *self._pieces))
            self._pieces.clear()
        return known

    def _pass(self, count: int) -> None:
        self._passed = (self._passed + self._buffer[max(0, count - BEFORE) : count])[-BEFORE:]
        self._buffer, self._cut = self._buffer[count:], 0

    def _line(self, start: int, data: bytes) -> SplitLine:
        return line_of(start, self.position, data, self.generation, self._max_line)

    def _drop_hole(self) -> None:
        """Pass over the hole of zeros that a writer leaves which continues at its old offset after a truncation."""
        zeros = len(self._buffer) - len(self._buffer.lstrip(b"\0"))
        self.position += zeros
        self._pass(zeros)

    def _skip(self) -> None:
        """Let go of the beginning of a line that is too long; ``position`` stays at its start."""
        if self._mark is None:
            self._mark = self.behind
        self._excerpt = (self._excerpt + self._buffer[:EXCERPT])[:EXCERPT]
        self._pass(len(self._buffer))

    def _skipped(self, start: int) -> SplitLine:
        self.position = self.offset - len(self._buffer) + self._cut
        excerpt, self._excerpt, self._mark = self._excerpt, b"", None
        return SplitLine(start, self.position, excerpt, self.generation, too_long=True)
