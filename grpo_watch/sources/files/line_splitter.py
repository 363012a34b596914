"""Splits the bytes of one file, read in pieces, into lines with their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from grpo_watch.sources.files.reading import BEFORE

EXCERPT = 4096
"""Bytes returned of a line that is too long to be held."""


class SplitLine(NamedTuple):
    """A line without its line end; ``end`` is the offset of the next line.

    ``generation`` grows whenever the file starts over (rotation, truncation); ``too_long`` lines are cut to 4 KiB.
    """

    start: int
    end: int
    data: bytes
    generation: int
    too_long: bool = False


class LineSplitter:
    """Takes pieces in order and yields complete lines; holds the unfinished line back.

    ``position`` is the offset of the next line, ``offset`` that of the next piece; ``before_line`` are the raw bytes
    just before the last yielded line.

    Args:
        generation: copied into the lines.
        max_line: longest line in bytes; longer ones are skipped without being held in memory.
        bars: split at carriage returns too; empty pieces are skipped.
        offset: offset of the first piece.
        passed: the bytes just before that.
    """

    def __init__(self, generation: int, max_line: int, *, bars: bool, offset: int = 0, passed: bytes = b"") -> None:
        self.generation, self.position, self.offset = generation, offset, offset
        self.before_line = passed
        self._bars, self._max_line = bars, max_line
        self._held = bytearray()  # grows and shrinks in place: a line of megabytes may come in small pieces
        self._searched = 0  # bytes of it that hold no line end
        self._passed = passed
        self._excerpt = b""
        self._before_skipped: bytes | None = None

    @property
    def behind(self) -> bytes:
        """The raw bytes just before ``position``."""
        return self._passed if self._before_skipped is None else self._before_skipped

    def add(self, data: bytes) -> None:
        """Add the piece at ``offset``."""
        self.offset += len(data)
        self._held += data.replace(b"\r", b"\n") if self._bars else data

    def pass_hole(self, count: int) -> None:
        """Skip a hole of ``count`` zeros at ``offset``, after the lines yielded so far."""
        if self._held or self._before_skipped is not None:
            self._skip()
        else:
            self.position += count
        self.offset += count
        self._passed = b"\0" * min(BEFORE, count)

    def lines(self) -> Iterator[SplitLine]:
        """Yield the complete lines. All state is set before each line, so a cursor may be taken at any time."""
        while (end := self._held.find(b"\n", self._searched)) >= 0:
            start, data = self._pass_line(end + 1)
            if self._before_skipped is not None:
                yield self._skipped(start)
            elif len(data) > 1 or not self._bars:
                yield self._line(start, data[:-1])
        if self._held.startswith(b"\0") and self._before_skipped is None:
            # a hole: the writer continues at its old offset after a truncation
            self._pass(len(self._held) - len(self._held.lstrip(b"\0")))
            self.position = self.offset - len(self._held)
        if len(self._held) > self._max_line or self._before_skipped is not None:
            self._skip()
        self._searched = len(self._held)

    def rest(self) -> list[SplitLine]:
        """Return the unfinished last line, if any."""
        start, data = self._pass_line(len(self._held))
        if self._before_skipped is not None:
            return [self._skipped(start)]
        return [self._line(start, data)] if data else []

    def _pass_line(self, length: int) -> tuple[int, bytes]:
        """Drop a whole line; returns its offset and its bytes."""
        start, data = self.position, bytes(self._held[:length])
        self.before_line = self.behind
        self._pass(length)
        self.position = self.offset - len(self._held)
        return start, data

    def _pass(self, count: int) -> None:
        self._passed = (self._passed + self._held[max(0, count - BEFORE) : count])[-BEFORE:]
        del self._held[:count]
        self._searched = 0

    def _line(self, start: int, data: bytes) -> SplitLine:
        data = data.removesuffix(b"\r").lstrip(b"\0")
        too_long = len(data) > self._max_line
        return SplitLine(start, self.position, data[:EXCERPT] if too_long else data, self.generation, too_long)

    def _skip(self) -> None:
        """Drop the beginning of a line that is too long; ``position`` stays at its start."""
        self._before_skipped = self.behind
        self._excerpt = (self._excerpt + self._held[:EXCERPT])[:EXCERPT]
        self._pass(len(self._held))

    def _skipped(self, start: int) -> SplitLine:
        excerpt, self._excerpt, self._before_skipped = self._excerpt, b"", None
        return SplitLine(start, self.position, excerpt, self.generation, too_long=True)
