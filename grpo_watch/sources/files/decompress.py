"""Opens logs that are compressed (gzip, bzip2, xz) or UTF-16, as PowerShell redirects them, as plain UTF-8."""

from __future__ import annotations

import bz2
import lzma
import os
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from grpo_watch.errors import SourceError

LARGEST = 256 << 20
"""Bytes of a text that is unpacked: they are held in memory."""
XZ_MEMORY = 128 << 20
"""Bytes that xz may take to unpack: the header of a file asks for up to 4 GiB, `xz -9` for 65 MiB."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
WIDE = re.compile(rb"(?:[\x09\x0a\x0d\x20-\x7e]\x00){4}")
"""UTF-16 without a mark before it: each byte of ASCII is followed by a zero."""
GZIP = b"\x1f\x8b"
BZIP2 = b"BZh"
MAGIC = (GZIP, BZIP2, b"\xfd7zXZ\x00")
"""How gzip, bzip2 and xz begin."""
SUFFIXES = (".gz", ".bz2", ".xz")
"""Names of compressed logs end so."""


def is_packed(head: bytes) -> bool:
    """Whether a file that begins so has to be unpacked."""
    return head.startswith((*UTF_16, *MAGIC)) or WIDE.match(head) is not None


class Plain(NamedTuple):
    """A descriptor of a file's text; ``cut``: the text is longer than what was unpacked of it."""

    descriptor: int
    cut: bool


class Unpacked(NamedTuple):
    """Bytes that were unpacked; ``cut``: there are more."""

    data: bytes
    cut: bool


class Unpacker:
    """Opens the text of one log, and remembers the file that can't be unpacked until it changes.

    ``notice`` is what of the open file is not read and what to do about it; empty where all of it is read.
    """

    def __init__(self) -> None:
        self.notice = ""
        self._refused: tuple[tuple[int, ...], str] | None = None

    def text_of(self, path: Path, descriptor: int) -> int:
        """The descriptor of the text; ``descriptor`` stays open if it is returned or if this raises.

        Raises:
            SourceError: the file is damaged, or too large for memory; the message names it.
            OSError: the file can't be read.
        """
        info = os.fstat(descriptor)
        state = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
        if self._refused is not None and self._refused[0] == state:
            raise SourceError(self._refused[1])
        try:
            text = unpack(descriptor)
        except SourceError as error:
            self._refused = state, f"{path}: {error}"
            raise SourceError(self._refused[1]) from None
        self.notice = _notice(path, text)
        return text.descriptor

    def again(self, path: Path, descriptor: int, into: int) -> None:
        """Unpack a file that changed into the memory of its text, which stays what it was if that fails."""
        try:
            self.notice = _notice(path, unpack(descriptor, into))
        except SourceError as error:
            self.notice = f"{path}: {error}"


def _notice(path: Path, text: Plain) -> str:
    if not text.cut:
        return ""
    return f"{path}: only the first {LARGEST >> 20} MiB of its text are read; unpack the file to read all"


def plain(descriptor: int) -> int:
    """A descriptor of the file's text: itself, or one of memory.

    Raises:
        SourceError: the file is damaged, or too large for memory.
    """
    return unpack(descriptor).descriptor


def unpack(descriptor: int, into: int | None = None) -> Plain:
    """The file's text: the file itself, or memory; ``into``: the memory that an earlier call gave.

    Raises:
        SourceError: the file is damaged, or too large for memory.
    """
    head = os.pread(descriptor, 8, 0)
    if not is_packed(head):
        return Plain(descriptor, cut=False)
    size = os.fstat(descriptor).st_size
    if size > LARGEST:
        raise SourceError(f"compressed or UTF-16, and larger than {LARGEST >> 20} MiB: unpack it")
    text, cut = _text(os.pread(descriptor, size, 0))
    memory = os.memfd_create("grpo-watch", os.MFD_CLOEXEC) if into is None else into
    os.ftruncate(memory, 0)
    written = 0
    while written < len(text):
        written += os.pwrite(memory, text[written:], written)
    return Plain(memory, cut)


def _text(data: bytes) -> Unpacked:
    """The text in UTF-8, as far as a file that is still written holds it."""
    cut = False
    try:
        if data.startswith(MAGIC):
            data, cut = _unpacked(data)
    except lzma.LZMAError as error:
        reason = f"needs more than {XZ_MEMORY >> 20} MiB to unpack" if "limit" in str(error) else f"damaged: {error}"
        raise SourceError(f"compressed and {reason}") from None
    except (EOFError, OSError, zlib.error) as error:
        raise SourceError(f"compressed and damaged: {error}") from None
    if WIDE.match(data) is not None:
        data = UTF_16[0] + data
    if data.startswith(UTF_16):
        data = data[: len(data) // 2 * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    return Unpacked(data, cut)


def _reader(data: bytes) -> Any:
    """Unpacks the stream that begins here: a file may hold several, as `cat` joins them."""
    if data.startswith(BZIP2):
        return bz2.BZ2Decompressor()
    return zlib.decompressobj(31) if data.startswith(GZIP) else lzma.LZMADecompressor(memlimit=XZ_MEMORY)


def _unpacked(data: bytes) -> Unpacked:
    """The unpacked bytes: of a text above the limit its whole lines below it, of a cut file what it holds."""
    reader = _reader(data)
    parts, rest = [], data
    total = 0
    while rest and total <= LARGEST:
        part = reader.decompress(rest, LARGEST + 1 - total)
        parts.append(part)
        total += len(part)
        rest = getattr(reader, "unconsumed_tail", b"")
        if reader.eof:
            rest = reader.unused_data.lstrip(b"\0")  # xz pads its streams
            if not rest.startswith(MAGIC):
                break
            reader = _reader(rest)
    text = b"".join(parts)
    if total <= LARGEST:
        return Unpacked(text, cut=False)
    return Unpacked(text[: text.rfind(b"\n", 0, LARGEST) + 1], cut=True)
