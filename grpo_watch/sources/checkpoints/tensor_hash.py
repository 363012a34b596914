"""Turns a weight file into exact checksums per tensor, with memory that does not grow with the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import xxhash

from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError, TensorFileError
from grpo_watch.sources.checkpoints.extents import Extent, human
from grpo_watch.sources.checkpoints.file_reader import CHUNK, WIDTHS, FileReader, MappedReader, Progress, is_uncached
from grpo_watch.sources.checkpoints.tensor_layout import read_layout

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
    *,
    expendable: bool = False,
) -> dict[str, TensorDigest]:
    """Digest every tensor of an open weight file, in file order.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called by each of the threads.
        threads: readers side by side, each with tensors of its own.
        layout: finds where its tensors lie; ``whole_file`` where they can't be distinguished.
        expendable: this process may be lost: a cached file may be mapped instead of copied.

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

    def reader() -> FileReader | MappedReader:
        if expendable and not drops:
            return MappedReader(descriptor, name, progress)
        return FileReader(descriptor, name, progress, drops=drops)

    tensors = _digest_all(extents, places, reader, threads)
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedWhileReadError(f"{name}: changed while it was read")
    return tensors


def _digest_all(
    extents: Sequence[Extent], places: Sequence[Extent], reader: Callable[[], FileReader | MappedReader], threads: int
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

    def __init__(self, reader: FileReader | MappedReader) -> None:
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
