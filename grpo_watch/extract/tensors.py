"""Turns a safetensors file into exact checksums per tensor, with memory that does not grow with the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import xxhash

from grpo_watch.core.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError
from grpo_watch.extract.safetensors import Extent, read_header

CHUNK = 1 << 20
"""Bytes read at once: fits the second-level cache, so that counting after hashing costs no second trip to memory."""

_FLOATS: Mapping[str, tuple[type[Any], int, int]] = MappingProxyType(
    {
        "F64": (np.uint64, 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF),
        "F32": (np.uint32, 0x7F80_0000, 0x7FFF_FFFF),
        "F16": (np.uint16, 0x7C00, 0x7FFF),
        "BF16": (np.uint16, 0x7F80, 0x7FFF),
    }
)
"""How a float looks as an integer: its type, the exponent bits (all set: NaN or infinite), all bits but the sign."""


def digest_file(descriptor: int, name: str, progress: Callable[[int], None] | None = None) -> dict[str, TensorDigest]:
    """Digest every tensor of an open safetensors file.

    Reads with ``preadv`` into one buffer instead of mapping: a mapped file that is truncated by its writer kills the
    process with SIGBUS. xxhsum reads the same way; the copy comes from the page cache.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        progress: called with the number of bytes just read.

    Raises:
        TensorFileError: truncated, refused, or changed while it was read.
        OSError: the file can't be read.
    """
    before = os.fstat(descriptor)
    reader = _Reader(descriptor, name, progress)
    tensors = {extent.name: reader.digest(extent) for extent in read_header(descriptor, name)}
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangedWhileReadError(f"{name}: changed while it was read")
    return tensors


class _Reader:
    """Hashes and inspects tensors of one file through one buffer."""

    def __init__(self, descriptor: int, name: str, progress: Callable[[int], None] | None) -> None:
        self._descriptor, self._name, self._progress = descriptor, name, progress
        self._buffer = np.empty(CHUNK, np.uint8)
        self._scratch = np.empty(CHUNK, np.uint8)

    def digest(self, extent: Extent) -> TensorDigest:
        """Checksum, number of non-finite elements and whether all elements are zero."""
        checksum = xxhash.xxh3_128()
        nonfinite, zero = 0, extent.end > extent.start
        for start in range(extent.start, extent.end, CHUNK):
            chunk = self._read(start, min(CHUNK, extent.end - start))
            checksum.update(chunk.data)
            nonfinite += self._nonfinite(chunk, extent.dtype)
            zero = zero and _all_zero(chunk, extent.dtype)
            if self._progress is not None:
                self._progress(len(chunk))
        return TensorDigest(extent.dtype, extent.shape, checksum.hexdigest(), nonfinite, zero)

    def _read(self, start: int, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        done = 0
        while done < count:
            got = os.preadv(self._descriptor, [self._buffer[done:count].data], start + done)
            if got == 0:
                raise ChangedWhileReadError(f"{self._name}: truncated while it was read")
            done += got
        return self._buffer[:count]

    def _nonfinite(self, chunk: np.ndarray[Any, np.dtype[np.uint8]], dtype: str) -> int:
        if dtype not in _FLOATS:
            return 0
        kind, exponent, _ = _FLOATS[dtype]
        scratch = self._scratch[: len(chunk)].view(kind)
        np.bitwise_and(chunk.view(kind), kind(exponent), out=scratch)
        # the maximum alone is several times cheaper than counting, and nearly always enough
        return int(np.count_nonzero(scratch == exponent)) if int(scratch.max()) == exponent else 0


def _all_zero(chunk: np.ndarray[Any, np.dtype[np.uint8]], dtype: str) -> bool:
    """Whether every element is zero; a negative zero is one."""
    if dtype not in _FLOATS:
        return not chunk.any()
    kind, _, unsigned = _FLOATS[dtype]
    return not np.bitwise_and(chunk.view(kind), kind(unsigned)).any()
