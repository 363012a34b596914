"""Turns a weight file into exact checksums per tensor, with memory that does not grow with the file.

It is read in chunks, and the page cache is left as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xxhash

from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError, TensorFileError
from grpo_watch.sources.checkpoints.extents import Extent, human
from grpo_watch.sources.checkpoints.tensor_layout import read_layout

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
PAGE = 1 << 12
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
        buffer: Bytes = np.empty(CHUNK, np.uint8)
        self._raw = buffer.data
        self._views = {kind: buffer.view(kind) for kind in WIDTHS}

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
        done = 0
        while done < count:  # a signal or a network file system may cut a read short
            got = os.preadv(self._descriptor, (self._raw[done:count],), start + done)
            if got == 0:
                raise ChangedWhileReadError(f"{self._name}: truncated while it was read")
            done += got
        if start != self._to:
            self._tell()
            self._from = start
        self._to = start + count
        if self._to - self._from >= REPORTED:
            self._tell()

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


BATCH = 1 << 25
"""Bytes of neighbouring tensors that one thread reads in one go, so that small ones cost no reading of their own."""

MOST_TIMES = 4
"""How often a file's bytes may be hashed where tensors overlap. Tied weights share one place and are hashed once; a
model whose layers are views of one fused storage needs twice its size."""

FLOATS: Mapping[str, tuple[type[Any], int, int]] = MappingProxyType(
    {
        "F64": (np.uint64, 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF),
        "F32": (np.uint32, 0x7F80_0000, 0x7FFF_FFFF),
        "F16": (np.uint16, 0x7C00, 0x7FFF),
        "BF16": (np.uint16, 0x7F80, 0x7FFF),
        "F8_E5M2": (np.uint8, 0x7C, 0x7F),
        "F8_E4M3": (np.uint8, 0x7F, 0x7F),
    }
)
"""How a float looks as an integer: its type, the exponent bits (all set: NaN or infinite), all bits but the sign.

E4M3 has no infinity, and one NaN: all its bits set."""

NEVER = -1
"""Exponent bits of a type without numbers that are not finite: no union of elements has them all."""
PLAIN = (np.uint8, NEVER, 0xFF)
"""Of every other type the bytes; they are looked at only until one is not zero."""

Layout: TypeAlias = Callable[[int, str], tuple[Extent, ...]]


def digest_file(
    descriptor: int,
    name: str,
    progress: Progress | None = None,
    threads: int = 1,
    layout: Layout = read_layout,
) -> dict[str, TensorDigest]:
    """Digest every tensor of an open weight file, in file order.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called by each of the threads.
        threads: readers side by side, each with tensors of its own.
        layout: finds where its tensors lie; ``whole_file`` where they can't be distinguished.

    Raises:
        TensorFileError: truncated, refused, or changed while it was read.
        OSError: the file can't be read.
    """
    before = os.fstat(descriptor)
    extents = layout(descriptor, name)
    places = list({_place(extent): extent for extent in extents}.values())
    spanned = sum(extent.end - extent.start for extent in places)
    if spanned > MOST_TIMES * before.st_size:
        spans = f"its tensors span {human(spanned)} of a file of {human(before.st_size)}"
        raise TensorFileError(f"{name}: refused: {spans} (at most {MOST_TIMES} times its size)")
    drops = is_uncached(descriptor, before.st_size)

    tensors = _digest_all(extents, places, lambda: FileReader(descriptor, name, progress, drops=drops), threads)
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedWhileReadError(f"{name}: changed while it was read")
    return tensors


def _digest_all(
    extents: Sequence[Extent], places: Sequence[Extent], reader: Callable[[], FileReader], threads: int
) -> dict[str, TensorDigest]:
    """Each place is read once, however many tensors share it; the readers take the next batch when they are done."""
    waiting = iter(_batches(places))
    read: dict[tuple[Any, ...], TensorDigest] = {}
    lock = Lock()

    def work() -> None:
        own = reader()
        hasher = TensorHasher(own)
        while True:
            with lock:
                batch = next(waiting, None)
            if batch is None:
                return own.close()
            for extent, digest in zip(batch, hasher.digest(batch), strict=True):
                read[_place(extent)] = digest

    if threads < 2:  # noqa: PLR2004  no other thread
        work()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()
    return {extent.name: read[_place(extent)] for extent in extents}


def _batches(extents: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Neighbours in the file, together about ``BATCH`` bytes or one larger tensor."""
    batch: list[Extent] = []
    for extent in extents:
        if batch and extent.end - batch[0].start > BATCH:
            yield batch
            batch = []
        batch.append(extent)
    if batch:
        yield batch


def _place(extent: Extent) -> tuple[Any, ...]:
    return extent.start, extent.end, extent.dtype, extent.shape, extent.strides


class TensorHasher:
    """Hashes and inspects tensors of one file; what one reading brought in serves all tensors that lie in it."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._scratch = np.empty(CHUNK, np.uint8)

    def digest(self, batch: Sequence[Extent]) -> list[TensorDigest]:
        """Checksum, number of non-finite elements and whether all elements are zero (a negative zero is one), of each.

        All elements of a piece OR-ed together show both in one pass, as long as no exponent bit is missing in all of
        them; that is so for weights below 2, whose highest exponent bit is never set. Of a tensor with strides all
        bytes that it spans are read, and the checksum covers shape and strides as well.
        """
        window, union_of = self._reader.window, np.bitwise_or.reduce
        last = max(extent.end for extent in batch)
        digests: list[TensorDigest] = []
        low = high = 0
        for extent in batch:
            checksum = xxhash.xxh3_128()
            kind, exponent, unsigned = FLOATS.get(extent.dtype, PLAIN)
            width = WIDTHS[kind]
            nonfinite = seen = 0
            at, end = extent.start, extent.end
            while at < end:
                if not low <= at < high or (at - low) % width:
                    low, high, raw, views = window(at, last)
                begin, stop = at - low, min(high, end, at + CHUNK) - low
                checksum.update(raw[begin:stop])
                at = low + stop
                if exponent == NEVER and seen:
                    continue
                piece = views[kind][begin // width : stop // width]
                union = int(union_of(piece))
                if union & exponent == exponent:
                    nonfinite += self._count(piece, kind(exponent))
                seen |= union
            if extent.strides:
                checksum.update(repr((extent.shape, extent.strides)).encode())
            zero = end > extent.start and not seen & unsigned
            digests.append(TensorDigest(extent.dtype, extent.shape, checksum.hexdigest(), nonfinite, zero))
        return digests

    def _count(self, elements: Any, exponent: Any) -> int:
        """The maximum alone is several times cheaper than counting, and nearly always enough."""
        scratch = self._scratch.view(elements.dtype)[: len(elements)]
        np.bitwise_and(elements, exponent, out=scratch)
        return int(np.count_nonzero(scratch == exponent)) if scratch.max() == exponent else 0
