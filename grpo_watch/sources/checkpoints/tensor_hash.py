"""Turns a weight file into exact checksums per tensor, with memory that does not grow with the file.

It is read in chunks, and the page cache is left as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import xxhash

from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError, TensorFileError
from grpo_watch.sources.checkpoints.extents import Extent, human
from grpo_watch.sources.checkpoints.tensor_layout import read_layout

PROBES = 32
"""Places of a file that are looked at before it is read."""
UNNOTICED = 8 << 20
"""Bytes of a file that takes no room worth freeing."""
STRETCH = 1 << 20
"""Bytes after which the progress is reported and the kernel is asked to drop what was read."""


def is_uncached(descriptor: int, size: int) -> bool:
    """Whether a file has to come from the disk: most of it is not in the cache (not just written, not in use).

    Asks for single bytes spread over the file, without having any of them read. False where that can't be known.
    """
    if size < UNNOTICED or not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
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
PAGE = 1 << 12
WIDTHS: Mapping[type[Any], int] = MappingProxyType({np.uint8: 1, np.uint16: 2, np.uint32: 4, np.uint64: 8})

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes just read; it may wait, which slows the reading down."""


class FileReader:
    """One reader of an open file with one buffer, into which ``preadv`` copies.

    ``raw`` holds the bytes ``start`` to ``end`` of the file, ``views`` the same as integers of 1, 2, 4 and 8 bytes.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called with what was read, now and then.
        drops: whether the kernel shall drop what was read from its page cache.
    """

    def __init__(self, descriptor: int, name: str, progress: Progress | None = None, *, drops: bool = False) -> None:
        self._descriptor, self._name, self._progress, self._drops = descriptor, name, progress, drops
        self.start = self.end = self._from = 0
        buffer: Bytes = np.empty(CHUNK, np.uint8)
        self.raw = buffer.data
        self.views = {kind: buffer.view(kind) for kind in WIDTHS}

    def hold(self, at: int, until: int, width: int) -> None:
        """Have the bytes around an offset, in elements of so many bytes; ``until`` is where reading on is of no use.

        Begins with a whole page, since these are copied faster, or at ``at`` where that would cut an element in two.

        Raises:
            ChangedWhileReadError: the file is shorter than it was.
        """
        if self.start <= at < self.end and not (at - self.start) % width:
            return
        start = at if at % 8 else at - at % PAGE
        if start != self.end:
            self.flush()
            self._from = start
        count = min(CHUNK, until - start)
        self.start, self.end = start, start + count
        done = 0
        while done < count:  # a signal or a network file system may cut a read short
            got = os.preadv(self._descriptor, (self.raw[done:count],), start + done)
            if got == 0:
                raise ChangedWhileReadError(f"{self._name}: truncated while it was read")
            done += got
        if self.end - self._from >= STRETCH:
            self.flush()

    def flush(self) -> None:
        """Account for what was read since the last time, which is one stretch of the file."""
        count = self.end - self._from
        if count and self._drops:
            with suppress(OSError):  # advice only
                os.posix_fadvise(self._descriptor, self._from, count, os.POSIX_FADV_DONTNEED)
        self._from = self.end
        if count and self._progress is not None:
            self._progress(count)


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
    descriptor: int, name: str, progress: Progress | None = None, layout: Layout = read_layout
) -> dict[str, TensorDigest]:
    """Digest every tensor of an open weight file, in file order; a place that tensors share is read once.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called with what was read.
        layout: finds where its tensors lie; ``whole_file`` where they can't be distinguished.

    Raises:
        TensorFileError: truncated, refused, or changed while it was read.
        OSError: the file can't be read.
    """
    before = os.fstat(descriptor)
    extents = layout(descriptor, name)
    places = {_place(extent): extent for extent in extents}
    spanned = sum(extent.end - extent.start for extent in places.values())
    if spanned > MOST_TIMES * before.st_size:
        spans = f"its tensors span {human(spanned)} of a file of {human(before.st_size)}"
        raise TensorFileError(f"{name}: refused: {spans} (at most {MOST_TIMES} times its size)")
    reader = FileReader(descriptor, name, progress, drops=is_uncached(descriptor, before.st_size))
    last = max((extent.end for extent in extents), default=0)
    read = {place: _digest(extent, reader, last) for place, extent in places.items()}
    reader.flush()
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedWhileReadError(f"{name}: changed while it was read")
    return {extent.name: read[_place(extent)] for extent in extents}


def _place(extent: Extent) -> tuple[Any, ...]:
    return extent.start, extent.end, extent.dtype, extent.shape, extent.strides


def _digest(extent: Extent, reader: FileReader, last: int) -> TensorDigest:
    """Checksum, number of non-finite elements and whether all elements are zero (a negative zero is one).

    All elements of a piece OR-ed together show both in one pass, as long as no exponent bit is missing in all of
    them; that is so for weights below 2, whose highest exponent bit is never set. Of a tensor with strides all
    bytes that it spans are read, and the checksum covers shape and strides as well.
    """
    checksum, union_of = xxhash.xxh3_128(), np.bitwise_or.reduce
    kind, exponent, unsigned = FLOATS.get(extent.dtype, PLAIN)
    width = WIDTHS[kind]
    nonfinite = seen = 0
    at, end = extent.start, extent.end
    while at < end:
        reader.hold(at, last, width)
        begin, stop = at - reader.start, min(reader.end, end) - reader.start
        checksum.update(reader.raw[begin:stop])
        at = reader.start + stop
        if exponent == NEVER and seen:
            continue
        piece = reader.views[kind][begin // width : stop // width]
        union = int(union_of(piece))
        if union & exponent == exponent:
            nonfinite += int(np.count_nonzero(piece & kind(exponent) == kind(exponent)))
        seen |= union
    if extent.strides:
        checksum.update(repr((extent.shape, extent.strides)).encode())
    zero = end > extent.start and not seen & unsigned
    return TensorDigest(extent.dtype, extent.shape, checksum.hexdigest(), nonfinite, zero)
