"""What each poll of a log has to give: a plain model of the reader, over a plain model of its files."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from grpo_watch.sources.files.reading import HEAD
from tests.model.tail_files import LOG, OUTSIDE, File, LogFiles


@dataclass(frozen=True)
class Reader:
    """Where a reader stands: in which file, what of it was given out, what was read, and how it began."""

    file: File
    given: bytes = b""
    seen: bytes = b""
    live: bool = True

    def is_in(self, file: File, prefix: bytes) -> bool:
        """Whether this file goes on from what was read: the same one, or a copy of it."""
        same = file.inode == self.file.inode or prefix != b""
        return same and file.content.startswith(prefix) and file.content.startswith(self.seen[:HEAD])


class ReaderModel(LogFiles):
    """``reader`` is where the reader stands."""

    reader: Reader

    def due(self) -> list[tuple[bytes, Reader]]:
        """The lines that a poll has to give now, each with where the reader stands behind it; it is moved on."""
        due: list[tuple[bytes, Reader]] = []
        reader = self._opened(self.reader) if not self.reader.live else self._checked(self.reader)
        if reader is None:
            return due
        reader = self._read(reader, due)
        while (after := self._following(reader)) is not None:
            if reader.given and reader.is_in(after, reader.given):
                reader = replace(reader, file=after)
            elif (copy := self._grown_copy(reader, after)) is not None:
                reader = replace(reader, file=copy)
            else:
                rest, reader = self._rest(reader), Reader(after, seen=after.content[:HEAD])
                due += [(rest, reader)] if rest else []
            reader = self._read(reader, due)
        self.reader = reader
        return due

    def _opened(self, reader: Reader) -> Reader | None:
        """Where a reader begins that was given a cursor."""
        named = self._named()
        if named is not None and reader.is_in(named, reader.given):
            return replace(reader, file=named, live=True)
        other = self._elsewhere(reader, reader.given)
        if other is not None:
            return replace(reader, file=other, live=True)
        return Reader(named) if named is not None else None

    def _checked(self, reader: Reader) -> Reader:
        """Where a reader goes on that holds its file open."""
        if reader.file.content.startswith(reader.seen):
            return reader
        copy = self._elsewhere(reader, reader.seen)
        return Reader(reader.file) if copy is None else replace(reader, file=copy)

    def _elsewhere(self, reader: Reader, prefix: bytes) -> File | None:
        others = {name: file for name, file in sorted(self.names.items()) if name != LOG}
        same = [file for file in others.values() if file.inode == reader.file.inode]
        copies = [file for name, file in others.items() if name.startswith(LOG)]
        return next((file for file in [*same, *copies] if reader.is_in(file, prefix)), None)

    def _following(self, reader: Reader) -> File | None:
        named, chain = self.names.get(LOG), self._chain()
        if named is reader.file:
            return None
        if reader.file in chain and chain.index(reader.file) + 1 < len(chain) - (named is not None):
            return chain[chain.index(reader.file) + 1]
        if named is OUTSIDE:
            return None
        return named if named is not None and named.content else self._grown_copy(reader, named)

    def _grown_copy(self, reader: Reader, after: File | None) -> File | None:
        """What the log's name led to between the file that is read, which has no name left, and the one it leads to."""
        others = {name: file for name, file in sorted(self.names.items()) if name != LOG and not file.packed}
        if after is not self.names.get(LOG) or reader.file in others.values() or not reader.given:
            return None
        copies = [file for name, file in others.items() if name.startswith(LOG)]
        grown = (file for file in copies if len(file.content) > len(reader.given))
        return next((file for file in grown if reader.is_in(file, reader.given)), None)

    def _read(self, reader: Reader, due: list[tuple[bytes, Reader]]) -> Reader:
        """The complete lines behind what was given."""
        content = reader.file.content
        for found in re.finditer(rb"[^\r\n]*[\r\n]" if self.bars else rb"[^\n]*\n", content[len(reader.given) :]):
            line = found[0][:-1].lstrip(b"\0")
            reader = Reader(reader.file, reader.given + found[0], content[:HEAD])
            due += [(line, reader)] if line or not self.bars else []
        rest = content[len(reader.given) :]
        hole = b"\0" * (len(rest) - len(rest.lstrip(b"\0")))
        return replace(reader, given=reader.given + hole, seen=content)

    def _rest(self, reader: Reader) -> bytes:
        return reader.file.content[len(reader.given) :].lstrip(b"\0")
