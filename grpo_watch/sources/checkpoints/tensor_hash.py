"""Computes exact checksums per tensor of a weight file, with memory that does not grow with the file.

Reads in chunks, and leaves the page cache as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import xxhash

from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError, TensorFileError
from grpo_watch.sources.checkpoints.extents import Extent, human
from grpo_watch.sources.checkpoints.tensor_layout import read_layout

PROBES = 32
"""Places of a file that are sampled before it is read."""
UNNOTICED = 8 << 20
"""Bytes of a file too small to be worth dropping from the page cache."""
STRETCH = 1 << 20
"""Bytes between two reports of progress, and requests that the kernel drop the pages read."""


def is_uncached(descriptor: int, size: int) -> bool:
    """Whether a file has to come from the disk: most of it is not in the cache (neither just written nor in use).

    Probes single bytes spread over the file without causing reads. False if unknown.
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
"""Bytes read at once; they stay in the second-level cache while they are hashed and inspected."""
PAGE = 1 << 12
Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes just read; may wait, to slow reading down."""


class FileReader:
    """Reads an open file into one buffer with ``preadv``.

    ``buffer`` and ``raw``, a view of it, hold the bytes ``start`` to ``end`` of the file.

    Args:
        descriptor: open for reading; its position is not used.
        name: the file's name in errors.
        progress: called now and then with the bytes read.
        drops: whether the kernel should drop the pages read from its page cache.
    """

    def __init__(self, descriptor: int, name: str, progress: Progress | None = None, *, drops: bool = False) -> None:
        self._descriptor, self._name, self._progress, self._drops = descriptor, name, progress, drops
        self.start = self.end = self._from = 0
        self.buffer = bytearray(CHUNK)
        self.raw = memoryview(self.buffer)

    def hold(self, at: int, until: int, width: int) -> None:
        """Fill the buffer around an offset, in elements of ``width`` bytes, at most up to ``until``.

        Begins at a page, since whole pages are copied faster, or at ``at`` if a page would split an element.

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
        """Account for the bytes read since the last call, at most one stretch of the file."""
        count = self.end - self._from
        if count and self._drops:
            with suppress(OSError):  # advice only
                os.posix_fadvise(self._descriptor, self._from, count, os.POSIX_FADV_DONTNEED)
        self._from = self.end
        if count and self._progress is not None:
            self._progress(count)


MOST_TIMES = 4
"""How often a file's bytes may be hashed if tensors overlap. Tied weights share one place and are hashed once; a model
whose layers are views of one fused storage needs twice its size."""


class Float(NamedTuple):
    """How non-finite floats look: all exponent bits, in the last two bytes of the element, are set.

    ``last``: last bytes with all their exponent bits set; ``before``: exponent bits of the byte before (0: none).
    """

    width: int
    last: bytes
    before: int = 0

    def nonfinite(self, buffer: bytearray, begin: int, stop: int) -> int:
        """Count the NaN and infinite elements between two bytes of the buffer.

        In weights below 2 no exponent has all bits of its last byte set, so the last bytes alone suffice.
        """
        last = buffer[begin + self.width - 1 : stop : self.width]
        if not any(byte in last for byte in self.last):
            return 0
        marks = last.translate(bytes(byte in self.last for byte in range(256)))
        if not self.before:
            return marks.count(1)
        others = buffer[begin + self.width - 2 : stop : self.width]
        marked = others.translate(bytes(byte & self.before == self.before for byte in range(256)))
        return (int.from_bytes(marks, "big") & int.from_bytes(marked, "big")).bit_count()

    def is_zero(self, piece: bytearray) -> bool:
        """Whether all elements are zero (including negative zeros)."""
        zeros = bytes(len(piece))
        if piece != zeros and self.last:
            piece[self.width - 1 :: self.width] = piece[self.width - 1 :: self.width].replace(b"\x80", b"\0")
        return piece == zeros


def _having(bits: int) -> bytes:
    return bytes(byte for byte in range(256) if byte & bits == bits)


FLOATS: Mapping[str, Float] = MappingProxyType(
    {
        "F64": Float(8, _having(0x7F), 0xF0),
        "F32": Float(4, _having(0x7F), 0x80),
        "F16": Float(2, _having(0x7C)),
        "BF16": Float(2, _having(0x7F), 0x80),
        "F8_E5M2": Float(1, _having(0x7C)),
        "F8_E4M3": Float(1, _having(0x7F)),
    }
)
"""Formats of floats; E4M3 has no infinity, and one NaN: all its bits set."""
PLAIN = Float(1, b"")
"""Other types are inspected byte by byte, up to the first nonzero one."""

Layout: TypeAlias = Callable[[int, str], tuple[Extent, ...]]


def digest_file(
    descriptor: int, name: str, progress: Progress | None = None, layout: Layout = read_layout
) -> dict[str, TensorDigest]:
    """Digest every tensor of an open weight file, in file order; shared places are read once.

    Args:
        descriptor: open for reading; its position is not used.
        name: the file's name in errors.
        progress: called with the bytes read.
        layout: locates its tensors; ``whole_file`` if they can't be distinguished.

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
    """Return checksum, number of non-finite elements, and whether all elements are zero.

    Tensors with strides are read over their whole span, and the checksum also covers shape and strides.
    """
    checksum, kind = xxhash.xxh3_128(), FLOATS.get(extent.dtype, PLAIN)
    nonfinite, zero = 0, extent.end > extent.start
    at, end = extent.start, extent.end
    while at < end:
        reader.hold(at, last, kind.width)
        begin, stop = at - reader.start, min(reader.end, end) - reader.start
        checksum.update(reader.raw[begin:stop])
        at = reader.start + stop
        nonfinite += kind.nonfinite(reader.buffer, begin, stop)
        zero = zero and kind.is_zero(reader.buffer[begin:stop])
    if extent.strides:
        checksum.update(repr((extent.shape, extent.strides)).encode())
    return TensorDigest(extent.dtype, extent.shape, checksum.hexdigest(), nonfinite, zero)
