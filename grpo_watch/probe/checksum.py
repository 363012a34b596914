"""Exact checksums of tensors, computed on the device that holds them.

A tensor is read as its bytes in index order, in little-endian signed words of 32 bits (zeros fill the last one). Its
checksum is the sum of ``word[k] * RADIX ** k`` modulo 2**64. Integer sums have no rounding and no order, so that any
device gives the same answer, and the sums of shards add up to that of the whole tensor.

``RADIX`` is 5 modulo 8, so it is odd and the powers of two in ``RADIX ** k - 1`` are those in ``4 * k``. Hence a change
of one word always changes the sum, and so does an exchange of two words less than 2**31 apart. Other changes cancel by
chance only: about 2**-64 for arbitrary words, 2**-33 where no more than sign bits change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

RADIX = 0x9E3779B97F4A7C15
"""The golden ratio in 64 bits (Knuth, The Art of Computer Programming 6.4), whose remainder by 8 is 5."""
WORD = 4
"""Bytes of a word."""
MODULUS = 1 << 64
CHUNK_CPU, CHUNK_DEVICE = 1 << 15, 1 << 22
"""Words read at a time: 256 KiB of products fit a core's cache; 32 MiB keep an accelerator busy."""


class Hasher:
    """Sums words on one device, with two buffers of ``CHUNK`` 64-bit integers, independent of the size of the tensors.

    Args:
        torch: the torch module that the job uses.
        device: the tensors' device.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self.chunk = CHUNK_CPU if device.type == "cpu" else CHUNK_DEVICE
        self._powers: Any = None
        self._products: Any = None

    def sum(self, tensor: Any, offset: int = 0) -> Any:
        """The sum over a piece whose bytes are contiguous in the whole tensor.

        Args:
            tensor: of any shape and type.
            offset: bytes of the whole tensor before it.

        Returns:
            A tensor of one int64 on the device.
        """
        total = None
        for words, at in self._words(tensor, offset):
            one = self._sum(words) * power(RADIX, at) if at else self._sum(words)
            total = one if total is None else total + one  # a small tensor takes two operations, not five
        return self._torch.zeros((), dtype=self._torch.int64, device=self._device) if total is None else total

    def _words(self, tensor: Any, offset: int) -> Iterator[tuple[Any, int]]:
        """Chunks of words with the index of their first word; nothing larger than a chunk is copied."""
        torch = self._torch
        if not tensor.is_contiguous():
            row = tensor[0].numel() * tensor.element_size()
            if row > self.chunk * WORD and tensor.dim() > 1:  # one row would be a large copy
                for at in range(len(tensor)):
                    yield from self._words(tensor[at], offset + at * row)
                return
            at_once = max(1, self.chunk * WORD // row)
            for start in range(0, len(tensor), at_once):
                yield from self._words(tensor[start : start + at_once].contiguous(), offset + start * row)
            return
        flat = _bytes(torch, tensor)
        if offset % WORD or (flat.data_ptr() % WORD if flat.numel() else 0):
            yield from self._padded(flat, offset)
            return
        whole = flat.numel() // WORD * WORD
        words = flat[:whole].view(torch.int32)
        for start in range(0, len(words), self.chunk):
            yield words[start : start + self.chunk], offset // WORD + start
        if whole < flat.numel():
            yield from self._padded(flat[whole:], offset + whole)

    def _padded(self, flat: Any, offset: int) -> Iterator[tuple[Any, int]]:
        """Bytes that are not aligned to words, copied between zeros."""
        lead = offset % WORD
        start, size = -lead, self.chunk * WORD
        while start < flat.numel():
            piece = flat[max(start, 0) : start + size]
            skipped = max(start, 0) - start
            words = self._torch.zeros(-(-(skipped + len(piece)) // WORD) * WORD, dtype=flat.dtype, device=flat.device)
            words[skipped : skipped + len(piece)] = piece
            yield words.view(self._torch.int32), (offset + start) // WORD
            start += size

    def _sum(self, words: Any) -> Any:
        if self._products is None:
            self._products = self._torch.empty(self.chunk, dtype=self._torch.int64, device=self._device)
        products, weights = self._products[: len(words)], self._weights()[: len(words)]
        if self._device.type == "cpu":  # accelerators have no integer dot product, and multiply across types in one go
            return self._torch.dot(products.copy_(words), weights)
        self._torch.mul(words, weights, out=products)
        return products.sum()

    def _weights(self) -> Any:
        if self._powers is None:
            self._powers = self._torch.ones(self.chunk, dtype=self._torch.int64, device=self._device)
            done = 1
            while done < self.chunk:  # by doubling
                more = min(done, self.chunk - done)
                self._torch.mul(self._powers[:more], power(RADIX, done), out=self._powers[done : done + more])
                done += more
        return self._powers


def power(base: int, exponent: int) -> int:
    """``base ** exponent`` modulo 2**64, as a signed integer for torch."""
    value = pow(base, exponent, MODULUS)
    return value - MODULUS if value >= MODULUS // 2 else value


def _bytes(torch: Any, tensor: Any) -> Any:
    """The bytes of a contiguous tensor, without a copy."""
    return tensor.reshape(-1).view(torch.uint8)
