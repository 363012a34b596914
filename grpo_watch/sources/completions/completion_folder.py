"""Turns a folder with one completions file per step into one summary per file."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, Stream
from grpo_watch.errors import SourceError
from grpo_watch.sources.base import KeptTexts, Skip
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.files.reading import inside, open_regular
from grpo_watch.sources.step_folder import EntryResult, StepFolder, SweepEntry

log = logging.getLogger("grpo_watch.source")


class DumpResult(EntryResult, frozen=True):
    """The result of one file. ``signature``: (size, mtime in ns) of the file read; None if it could not be opened.

    Without a grouping, ``failure`` is the reason.
    """

    grouping: Grouping | None = None
    signature: tuple[int, int] | None = None
    size: int = 0


class BadDumpError(Exception):
    """An unusable file; the message says where and why, ``skip`` how it is counted."""

    def __init__(self, message: str, skip: Skip = Skip.TRUNCATED) -> None:
        super().__init__(message)
        self.skip = skip


DumpReader: TypeAlias = Callable[[BinaryIO, "int | None", KeptTexts], Grouping]
"""Reads an open file, given G and how much of the texts is kept; raises BadDumpError if it is unusable."""


def read_unchanged(
    path: Path, roots: Sequence[Path], read: DumpReader, group_size: int | None, examples: KeptTexts
) -> DumpResult:
    """Apply ``read`` to a file, provided that it stays unchanged meanwhile; never raises.

    Top-level with plain arguments, so that a worker process can run it.
    """
    try:
        descriptor = open_regular(path, roots)
    except FileNotFoundError:
        return DumpResult(gone=True)
    except (SourceError, OSError) as error:
        return DumpResult(skip=Skip.UNREADABLE if inside(path, roots) else Skip.OUTSIDE, failure=str(error))
    with os.fdopen(descriptor, "rb") as file:
        before = signature_of(os.fstat(file.fileno()))
        try:
            grouping = read(file, group_size, examples)
        except BadDumpError as error:
            return DumpResult(signature=before, skip=error.skip, failure=f"{path.name}: {error}")
        except MemoryError:
            return DumpResult(signature=before, skip=Skip.TOO_LONG, failure=f"{path.name}: no memory is left for it")
        after = signature_of(os.fstat(file.fileno()))
    if before != after:
        return DumpResult(signature=after, skip=Skip.TRUNCATED, failure=f"{path.name}: changed while it was read")
    return DumpResult(grouping, before, size=before[0])


def signature_of(info: os.stat_result) -> tuple[int, int]:
    """Size in bytes and mtime in ns; changed content changes them."""
    return info.st_size, info.st_mtime_ns


RELIST = 30
"""Polls after which the folder is listed again although its mtime did not change (older files overwritten)."""


class CompletionFolder(StepFolder):
    """Reads the files of a folder by rising step; a file that a later attempt overwrites is read again.

    A file that repeats the previous one is counted as a duplicate and not emitted. A file that is too large is logged,
    and not retried until it changes.
    """

    def _begin(self, **_: Any) -> None:
        super()._begin()
        self._digest, self._prompts = self._known.get("digest"), self._known.get("prompts")
        self._newest = self._known.get("newest")
        self._files: dict[int, tuple[str, tuple[int, int]]] = {}
        self._asked: dict[int, int | None] = {}
        self._polls, self._modified, self._left = 0, -1, False

    @abstractmethod
    def _step_of(self, name: str) -> int | None:
        """Return the step in a file's name; None for files of another kind."""

    @abstractmethod
    def _reader(self, path: Path) -> DumpReader:
        """Return the reader of a file; it can be sent to another process."""

    @abstractmethod
    def _stream(self, step: int, grouping: Grouping) -> Stream:
        """Return the stream of a step's completions; called before they become the newest."""

    def _ready(self, step: int, entry: SweepEntry) -> bool:
        del step, entry
        return True

    def _new(self, seen: float | None) -> Iterator[Item]:
        if self._may_have_changed() or seen is None or self._left:
            self._left = not self._sweep.plan(self._entries(seen))
        yield from self._advance(seen, wait=False)

    def cursor(self) -> Cursor:
        """Where reading continues."""
        return self._sweep.cursor(self.name, {"digest": self._digest, "prompts": self._prompts, "newest": self._newest})

    @property
    def settling(self) -> bool:
        """Whether a file waits for a second look before it is read, or could not be parsed at first."""
        return self._left or bool(self._failed)

    def _may_have_changed(self) -> bool:
        """Whether a file appeared or the newest was rewritten; avoids listing thousands of files at each poll."""
        self._polls += 1
        try:
            modified = self._path.stat().st_mtime_ns
        except OSError:
            modified = -1
        changed, self._modified = modified != self._modified, modified
        return changed or bool(self._failed) or self._polls % RELIST == 0 or self._newest_was_rewritten()

    def _newest_was_rewritten(self) -> bool:
        if not self._files:
            return False
        name, signature = self._files[max(self._files)]
        try:
            return signature_of((self._path / name).stat()) != signature
        except OSError:
            return True

    def _listing(self) -> Iterator[tuple[str, tuple[int, int] | None]]:
        """Yield the folder's files by name, with their signatures."""
        with os.scandir(self._path) as listing:
            for item in listing:
                yield item.name, _signature(item)

    def _listed(self, seen: float | None) -> Mapping[int, SweepEntry]:
        del seen
        entries: dict[int, SweepEntry] = {}
        for name, signature in self._listing():
            step = self._step_of(name)
            if step is not None and signature is not None:
                entries[step] = SweepEntry(signature[1], signature)
                self._files[step] = name, signature
        return {step: entry for step, entry in entries.items() if self._ready(step, entry)}

    def _read(self, step: int, *, first: bool = False) -> None:
        size = self._asked[step] = self._group_size()
        path = self._path / self._files[step][0]
        arguments = (path, self._roots, self._reader(path), size, self._examples)
        self._work(step, read_unchanged, *arguments, first=first)

    def _collect(self, step: int, result: DumpResult | Exception, seen: float | None) -> Iterator[Item]:
        if self._asked.pop(step) != self._group_size():  # the configuration was read after work on this file began
            self._read(step, first=True)
            return
        name, listed = self._files[step]
        if isinstance(result, Exception):
            result = DumpResult(skip=Skip.UNREADABLE, failure=f"{name}: the reader failed: {result}")
        self._done(step, result.signature or listed, result)
        if result.skip is Skip.TOO_LONG:
            where = {"file": str(self._path / name), "reason": result.failure}
            log.warning("a file is not read", extra={"fields": where})
        if result.grouping is not None:
            yield from self._emit(step, result.grouping, result.size, seen)

    def _emit(self, step: int, grouping: Grouping, size: int, seen: float | None) -> Iterator[Item]:
        self.stats.bytes += size
        step = step if grouping.step is None else grouping.step
        if grouping.digest and grouping.digest == self._digest:
            self.stats.skip(Skip.DUPLICATE)
            return
        stream = self._stream(step, grouping)
        self._digest, self._prompts, self._newest = grouping.digest, grouping.prompts, step
        if grouping.row is not None:
            yield RawRow(self.name, ChannelKind.TRAINER_STATE, step, grouping.row, stream, self.segment, seen=seen)
        if grouping.row is None or grouping.groups:
            yield grouping.summary(self.name, step, stream, self.segment, seen)


def _signature(item: os.DirEntry[str]) -> tuple[int, int] | None:
    try:
        return signature_of(item.stat())
    except OSError:
        return None  # deleted meanwhile, or a dangling link
