"""Reads a weight file in chunks, and leaves the page cache as it was."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from grpo_watch.errors import ChangedWhileReadError

PROBES = 32
"""Places of a file that are looked at before it is read."""
STRETCH = 8 << 20
"""Bytes read before the kernel is asked to drop them: one call per stretch."""


class PageCache:
    """Has the kernel drop what one reader has read, in stretches.

    Args:
        descriptor: the open file.
        drops: False leaves everything as it is.
    """

    def __init__(self, descriptor: int, *, drops: bool) -> None:
        self._descriptor, self._drops = descriptor, drops
        self._start = self._end = 0

    def was_read(self, start: int, end: int) -> None:
        """Account for a range that is not needed any more."""
        if start != self._end or end - self._start > STRETCH:
            self.flush()
            self._start = start
        self._end = end

    def flush(self) -> None:
        """Drop what was not dropped yet."""
        if self._drops and self._end > self._start:
            with suppress(OSError):  # advice only
                os.posix_fadvise(self._descriptor, self._start, self._end - self._start, os.POSIX_FADV_DONTNEED)
        self._start = self._end


def is_uncached(descriptor: int, size: int) -> bool:
    """Whether a file has to come from the disk: most of it is not in the cache (not just written, not in use).

    Asks for single bytes spread over the file, without having any of them read. False where that can't be known.
    """
    if size < STRETCH or not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return False
    places = [number * (size - 1) // PROBES for number in range(PROBES)]
    try:
        return sum(_is_cached(descriptor, place) for place in places) * 2 < PROBES
    except OSError:
        return False


def _is_cached(descriptor: int, place: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], place, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


CHUNK = 1 << 18
"""Bytes read at once: they stay in the second-level cache while they are hashed and inspected."""
REPORTED = 1 << 20
"""Bytes after which the progress is reported and the page cache is seen to."""
PAGE, HUGE = 1 << 12, 1 << 21
MAPPED = 1 << 25
"""Bytes mapped at once, several pages: what is mapped counts as this process's memory, and mapping costs time."""
WIDTHS: Mapping[type[Any], int] = MappingProxyType({np.uint8: 1, np.uint16: 2, np.uint32: 4, np.uint64: 8})

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes just read; it may wait, which slows the reading down."""


class FileWindow(NamedTuple):
    """The bytes ``start`` to ``end`` of a file; ``views`` are the same as integers of 1, 2, 4 and 8 bytes."""

    start: int
    end: int
    raw: memoryview
    views: Mapping[type[Any], np.ndarray[Any, Any]]


class FileReader:
    """One reader of an open file with one buffer, into which ``preadv`` copies.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called with what was read, now and then.
        drops: whether the kernel shall drop what was read from its page cache.
    """

    def __init__(self, descriptor: int, name: str, progress: Progress | None = None, *, drops: bool = False) -> None:
        self._descriptor, self._name, self._progress = descriptor, name, progress
        self._cache = PageCache(descriptor, drops=drops)
        self._from = self._to = 0
        self.buffer = _buffer()
        self._raw = self.buffer.data
        self._whole, self._views = (self._raw,), _views(self.buffer)

    def read(self, start: int, count: int) -> Bytes:
        """``count`` (at most ``CHUNK``) bytes from an offset on, valid until the next call.

        Raises:
            ChangedWhileReadError: the file is shorter than it was.
        """
        self._fill(start, count)
        return self.buffer[:count]

    def window(self, at: int, until: int) -> FileWindow:
        """The bytes around an offset, valid until the next call; ``until`` is where reading on is of no use.

        Begins with a whole page, since these are copied faster, or at ``at`` where that would cut an element in two.

        Raises:
            ChangedWhileReadError: the file is shorter than it was.
        """
        start = at if at % 8 else at - at % PAGE
        count = min(CHUNK, until - start)
        self._fill(start, count)
        return FileWindow(start, start + count, self._raw, self._views)

    def _fill(self, start: int, count: int) -> None:
        target = self._whole if count == CHUNK else (self._raw[:count],)
        if os.preadv(self._descriptor, target, start) != count:
            self._fill_slowly(start, count)
        if start != self._to:
            self._tell()
            self._from = start
        self._to = start + count
        if self._to - self._from >= REPORTED:
            self._tell()

    def _fill_slowly(self, start: int, count: int) -> None:
        """A signal or a network file system may cut a read short."""
        done = 0
        while done < count:
            got = os.preadv(self._descriptor, (self._raw[done:count],), start + done)
            if got == 0:
                raise ChangedWhileReadError(f"{self._name}: truncated while it was read")
            done += got

    def close(self) -> None:
        """Nothing more is read."""
        self._tell()
        self._cache.flush()

    def _tell(self) -> None:
        """Account for what was read since the last time, which is one stretch of the file."""
        count = self._to - self._from
        if count:
            self._cache.was_read(self._from, self._to)
            self._from = self._to
            if self._progress is not None:
                self._progress(count)


class MappedReader:
    """Hands out the page cache itself, without a copy: half again as fast where the file is cached.

    A mapped file that its writer truncates, or that can't be read, kills the process with SIGBUS: only for processes
    that may be lost.
    """

    def __init__(self, descriptor: int, name: str, progress: Progress | None = None) -> None:
        self._descriptor, self._name, self._progress = descriptor, name, progress
        self._size = os.fstat(descriptor).st_size
        self._unreported = 0

    def window(self, at: int, until: int) -> FileWindow:
        """As of ``FileReader``; stays valid as long as it is held."""
        start = at - at % mmap.ALLOCATIONGRANULARITY
        count = min(MAPPED, until - start)
        try:
            mapped = mmap.mmap(self._descriptor, count, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
        except ValueError:  # the file is shorter than that
            raise ChangedWhileReadError(f"{self._name}: truncated while it was read") from None
        whole = np.frombuffer(mapped, np.uint8)
        skipped = (at - start) % 8  # so that no element is cut in two
        end = len(whole) if start + count == until else len(whole) - (len(whole) - skipped) % 8
        whole = whole[skipped:end]
        self._unreported += len(whole)
        if self._progress is not None and self._unreported >= REPORTED:
            self.close()
        return FileWindow(start + skipped, start + end, whole.data, _views(whole))

    def close(self) -> None:
        """Report what was not reported yet."""
        if self._progress is not None and self._unreported:
            self._progress(self._unreported)
        self._unreported = 0


def _views(raw: Bytes) -> Mapping[type[Any], np.ndarray[Any, Any]]:
    return {kind: raw[: len(raw) - len(raw) % width].view(kind) for kind, width in WIDTHS.items()}


def _buffer() -> Bytes:
    """``CHUNK`` bytes in a huge page where the system has them, which is up to a tenth faster."""
    area = mmap.mmap(-1, 2 * HUGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, np.uint8)
    first = -whole.ctypes.data % HUGE
    return whole[first : first + CHUNK]
