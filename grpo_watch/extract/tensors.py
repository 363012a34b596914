"""Turns a weight file into exact checksums per tensor, with memory that does not grow with the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import xxhash

from grpo_watch.core.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError
from grpo_watch.extract.extents import Extent
from grpo_watch.extract.layout import read_layout
from grpo_watch.extract.page_cache import PageCache, is_uncached

CHUNK = 1 << 18
"""Bytes read at once: they stay in the second-level cache while they are hashed and inspected."""

PAGE = 4096

FLOATS: Mapping[str, tuple[type[Any], int, int]] = MappingProxyType(
    {
        "F64": (np.uint64, 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF),
        "F32": (np.uint32, 0x7F80_0000, 0x7FFF_FFFF),
        "F16": (np.uint16, 0x7C00, 0x7FFF),
        "BF16": (np.uint16, 0x7F80, 0x7FFF),
    }
)
"""How a float looks as an integer: its type, the exponent bits (all set: NaN or infinite), all bits but the sign."""

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Layout: TypeAlias = Callable[[int, str], tuple[Extent, ...]]
Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes just read; it may wait, which slows the reading down."""


def digest_file(
    descriptor: int, name: str, progress: Progress | None = None, threads: int = 1, layout: Layout = read_layout
) -> dict[str, TensorDigest]:
    """Digest every tensor of an open weight file, in file order.

    Reads with ``preadv`` into one buffer per thread instead of mapping: a mapped file that is truncated by its writer
    kills the process with SIGBUS. xxhsum reads the same way; the copy comes from the page cache.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called by each of the threads.
        threads: readers side by side, each with a tensor of its own.
        layout: says where its tensors lie; ``whole_file`` where they can't be told apart.

    Raises:
        TensorFileError: truncated, refused, or changed while it was read.
        OSError: the file can't be read.
    """
    before = os.fstat(descriptor)
    extents = layout(descriptor, name)
    drops = is_uncached(descriptor, before.st_size)
    tensors = _digest_all(extents, lambda: TensorReader(descriptor, name, progress, drops=drops), threads)
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedWhileReadError(f"{name}: changed while it was read")
    return tensors


def _digest_all(extents: Sequence[Extent], reader: Callable[[], TensorReader], threads: int) -> dict[str, TensorDigest]:
    """Each place is read once, however many tensors share it; the readers take the next one when they are done."""
    waiting = iter(list({_place(extent): extent for extent in extents}.values()))
    read: dict[tuple[Any, ...], TensorDigest] = {}
    lock = Lock()

    def work() -> None:
        own = reader()
        while True:
            with lock:
                extent = next(waiting, None)
            if extent is None:
                return own.close()
            read[_place(extent)] = own.digest(extent)

    if threads < 2:  # noqa: PLR2004  no other thread
        work()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()
    return {extent.name: read[_place(extent)] for extent in extents}


def _place(extent: Extent) -> tuple[Any, ...]:
    return extent.start, extent.end, extent.dtype, extent.shape, extent.strides


class TensorReader:
    """Hashes and inspects tensors of one file through one buffer."""

    def __init__(self, descriptor: int, name: str, progress: Progress | None = None, *, drops: bool = False) -> None:
        self._descriptor, self._name, self._progress = descriptor, name, progress
        self._cache = PageCache(descriptor, drops=drops)
        self._buffer, self._scratch = _aligned(), _aligned()

    def digest(self, extent: Extent) -> TensorDigest:
        """Checksum, number of non-finite elements and whether all elements are zero.

        Of a tensor with strides all bytes that it spans are read, and the checksum covers shape and strides as well.
        """
        checksum = xxhash.xxh3_128()
        nonfinite, zero = 0, extent.end > extent.start
        start = extent.start
        while start < extent.end:
            chunk = self.read(start, min(_until_page(start), extent.end - start))
            start += len(chunk)
            checksum.update(chunk.data)
            broken, blank = self._inspect(chunk, extent.dtype)
            nonfinite, zero = nonfinite + broken, zero and blank
        if extent.strides:
            checksum.update(repr((extent.shape, extent.strides)).encode())
        return TensorDigest(extent.dtype, extent.shape, checksum.hexdigest(), nonfinite, zero)

    def read(self, start: int, count: int) -> Bytes:
        """The bytes from an offset on, valid until the next call.

        Raises:
            ChangedWhileReadError: the file is shorter than it was.
        """
        whole = self._buffer if count == CHUNK else self._buffer[:count]
        done = os.preadv(self._descriptor, [whole.data], start)
        while done < count:
            got = os.preadv(self._descriptor, [whole[done:].data], start + done)
            if got == 0:
                raise ChangedWhileReadError(f"{self._name}: truncated while it was read")
            done += got
        self._cache.was_read(start, start + count)
        if self._progress is not None:
            self._progress(count)
        return whole

    def close(self) -> None:
        """Nothing more is read."""
        self._cache.flush()

    def _inspect(self, chunk: Bytes, dtype: str) -> tuple[int, bool]:
        """Number of non-finite elements, and whether every element is zero (a negative zero is one).

        All elements OR-ed together tell both in one pass, as long as no exponent bit is missing in all of them; that
        is so for weights below 2, whose highest exponent bit is never set.
        """
        if dtype not in FLOATS:
            return 0, not np.bitwise_or.reduce(chunk)
        kind, exponent, unsigned = FLOATS[dtype]
        elements = chunk.view(kind)
        union = int(np.bitwise_or.reduce(elements))
        if union & exponent != exponent:
            return 0, not union & unsigned
        scratch = self._scratch[: len(chunk)].view(kind)
        np.bitwise_and(elements, kind(exponent), out=scratch)
        # the maximum alone is several times cheaper than counting, and nearly always enough
        return int(np.count_nonzero(scratch == exponent)) if int(scratch.max()) == exponent else 0, False


def _until_page(start: int) -> int:
    """Bytes to read at an offset so that the next read begins with a page: copies between whole pages are faster."""
    beyond = start % PAGE
    return CHUNK if beyond % 8 else CHUNK - beyond  # elements must not be cut in two


def _aligned() -> Bytes:
    """A buffer at the start of a page: measured up to 1.3 times as fast as one that begins anywhere."""
    raw = np.empty(CHUNK + PAGE, np.uint8)
    first = -raw.ctypes.data % PAGE
    return raw[first : first + CHUNK]
