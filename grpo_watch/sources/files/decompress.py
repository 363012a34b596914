"""Opens compressed (gzip, bzip2, xz) and UTF-16 logs (as PowerShell redirects them) as plain UTF-8."""

from __future__ import annotations

import bz2
import codecs
import lzma
import os
import shlex
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import BEFORE, HEAD, before, open_regular

LARGEST = 256 << 20
"""Most bytes of unpacked text, which is held in memory."""
AT_LEAST, DENSEST = 1 << 20, 100
"""A text is unpacked up to the larger of this many bytes and this multiple of the packed bytes: logs shrink to a tenth
to a fiftieth of their size, an endlessly repeated line (a decompression bomb) to a thousandth."""
PIECE, PACKED_PIECE = 1 << 20, 4 << 10
"""Bytes unpacked at once, and packed bytes read for it."""
LONGEST_HELD = 8 << 20
"""Bytes of a line that are held back until its end is unpacked."""
XZ_MEMORY = 128 << 20
"""Bytes of memory that xz may use: a file's header may ask for up to 4 GiB, `xz -9` for 65 MiB."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
WIDE = re.compile(rb"(?:[\x09\x0a\x0d\x20-\x7e]\x00){4}")
"""UTF-16 without a byte order mark: each ASCII byte is followed by a zero."""
GZIP = b"\x1f\x8b"
BZIP2 = b"BZh"
MAGIC = (GZIP, BZIP2, b"\xfd7zXZ\x00")
"""First bytes of gzip, bzip2 and xz."""
LONGEST_MAGIC = 6
SUFFIXES = (".gz", ".bz2", ".xz")
"""Names of compressed logs end so."""
ZIP, TAR_MARK = b"PK\x03\x04", slice(257, 262)
ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", *(f".tar{each}" for each in SUFFIXES))
UNZIPS_OWN = re.compile(r"[\\*?\[]")
"""What ``unzip`` takes for a pattern in the name of a file."""
LOG_NAME = re.compile(r"\.(?:log|jsonl|csv|out|txt)$|trainer_state\.json$|tfevents|\.wandb$")
DAMAGED = (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile)


def is_packed(head: bytes) -> bool:
    """Whether a file with this head has to be unpacked."""
    return head.startswith((*UTF_16, *MAGIC)) or WIDE.match(head) is not None


class TextStream:
    """Turns the bytes of a file, in pieces, into its text in UTF-8.

    ``held``: more text can be made without further bytes. ``ended``: the rest of the file is no text.
    """

    def __init__(self, head: bytes) -> None:
        self._reader = _reader(head) if head.startswith(MAGIC) else None
        self._wide: codecs.IncrementalDecoder | None = None
        self._begun = self.ended = self.held = False
        self._rest = b""

    def unpack(self, data: bytes, most: int) -> bytes:
        """Return up to about ``most`` bytes of the text.

        Raises:
            SourceError: the file is damaged, or needs too much memory.
        """
        try:
            return self._text(self._unpacked(self._rest + data, most))
        except lzma.LZMAError as error:
            reason = (
                f"needs more than {XZ_MEMORY >> 20} MiB to unpack" if "limit" in str(error) else f"damaged: {error}"
            )
            raise SourceError(f"compressed and {reason}") from None
        except (EOFError, OSError, zlib.error) as error:
            raise SourceError(f"compressed and damaged: {error}") from None

    def _unpacked(self, data: bytes, most: int) -> bytes:
        if self._reader is None:
            self._rest = b""
            return data
        if self._reader.eof:
            data = data.lstrip(b"\0")  # xz pads its streams
            self._rest, self.held = data, False
            if len(data) < LONGEST_MAGIC and any(each.startswith(data[: len(each)]) for each in MAGIC):
                return b""  # another stream may follow, as `cat` joins them
            if not data.startswith(MAGIC):
                self.ended = True
                return b""
            self._reader = _reader(data)
        part: bytes = self._reader.decompress(data, most)
        self._rest = self._reader.unused_data if self._reader.eof else getattr(self._reader, "unconsumed_tail", b"")
        self.held = bool(self._rest) or not (self._reader.eof or getattr(self._reader, "needs_input", True))
        return part

    def _text(self, data: bytes) -> bytes:
        if not self._begun and data:
            self._begun = True
            if data.startswith(UTF_16):
                self._wide = codecs.getincrementaldecoder("utf-16")("replace")
            elif WIDE.match(data) is not None:
                self._wide = codecs.getincrementaldecoder("utf-16-le")("replace")
        return data if self._wide is None else self._wide.decode(data).encode("utf-8", "replace")


class Unpacker:
    """The unpacked text of a packed file, in memory; it grows with the file.

    Args:
        path: the file's path, for messages and to reopen it.
        packed: its descriptor, closed once the whole file is unpacked.

    Attributes:
        memory: the descriptor of the text.
        node: device and inode of the file.
        notice: which part isn't read, and the remedy; empty if all is read.
    """

    def __init__(self, path: Path, packed: int) -> None:
        info = os.fstat(packed)
        self.node, self.notice = (info.st_dev, info.st_ino), ""
        self.memory = os.memfd_create("grpo-watch", os.MFD_CLOEXEC)
        self._path, self._packed = path, packed
        self._begin()

    def _begin(self) -> None:
        self._head = os.pread(self._packed, HEAD, 0)
        self._stream, self._taken, self._last = TextStream(self._head), 0, b""
        self._size, self._done, self.notice = 0, False, ""
        self._held_back = b""

    def fill(self) -> int:
        """Unpack a piece; returns the bytes read or unpacked, 0 if there is no more for now."""
        if self._done or self._packed < 0:
            return 0
        data = b"" if self._stream.held else os.pread(self._packed, PACKED_PIECE, self._taken)
        if not data and not self._stream.held:
            self.close()
            return self._write(b"", whole=True)
        self._taken += len(data)
        self._last = (self._last + data)[-BEFORE:]
        most = min(LARGEST, AT_LEAST + DENSEST * self._taken)
        try:
            text = self._stream.unpack(data, min(PIECE, most + 1 - self._size))
        except SourceError as error:
            text = b""
            self._stop(str(error))
        if self._stream.ended:
            self._done = True
            self._pass_over()
        if self._size + len(self._held_back) + len(text) > most:
            self._stop(f"only the first {most >> 20} MiB of its text are read; unpack the file to read all")
            text = (self._held_back + text)[: most - self._size]
            text, self._held_back = text[: text.rfind(b"\n") + 1], b""
        return max(1, len(data) + self._write(text, whole=self._done))

    def fill_to(self, size: int) -> None:
        """Unpack until the text has ``size`` bytes or ends."""
        while self._size < size and self.fill():
            pass

    def follow(self, roots: Sequence[Path], read_to: int) -> None:
        """Continue with a file that grew; a rewritten file is unpacked again, as far as it was read.

        Raises:
            OSError, SourceError: it can't be opened.
        """
        try:
            info = self._path.stat()
        except OSError:
            return
        if (info.st_dev, info.st_ino) != self.node or info.st_size == self._taken:
            return
        if self._packed < 0:
            self._packed = open_regular(self._path, roots)
        elif info.st_size > self._taken:
            return
        head, behind = os.pread(self._packed, len(self._head), 0), before(self._packed, self._taken)
        same = info.st_size > self._taken and head == self._head and behind.endswith(self._last)
        if same and self._done:
            self._pass_over()
        elif not same:
            os.ftruncate(self.memory, 0)
            self._begin()
            self.fill_to(read_to)

    def first(self, size: int) -> None:
        """Unpack at least ``size`` bytes or the whole text; closes all handles if the first piece fails.

        Raises:
            SourceError: the file is damaged from its beginning on.
        """
        self.fill_to(max(1, size))
        if not self._size and self.notice:
            self.close()
            os.close(self.memory)
            raise SourceError(self.notice)

    def close(self) -> None:
        """Close the packed file; the descriptor of the text belongs to the reader."""
        if self._packed >= 0:
            os.close(self._packed)
            self._packed = -1

    def _write(self, text: bytes, *, whole: bool) -> int:
        """Append to the text; an unfinished line (not ``whole``) is held back while more comes."""
        text = self._held_back + text
        end = len(text) if whole or len(text) > LONGEST_HELD else text.rfind(b"\n") + 1
        self._held_back = text[end:]
        written = 0
        while written < end:
            written += os.pwrite(self.memory, text[written:end], self._size + written)
        self._size += written
        return written

    def _stop(self, why: str) -> None:
        self._done, self.notice = True, f"{self._path}: {why}"
        self._pass_over()

    def _pass_over(self) -> None:
        self._taken = os.fstat(self._packed).st_size
        self._last = before(self._packed, self._taken)
        self.close()


@contextmanager
def text_of(path: Path, roots: Sequence[Path], most: int) -> Iterator[int]:
    """Yield a descriptor of a file's text, then close it: the file's own, or memory of up to about ``most`` bytes.

    Raises:
        OSError: it can't be opened.
        SourceError: it is no regular file, lies outside, or is damaged from its beginning on.
    """
    opened = descriptor = open_regular(path, roots)
    try:
        if is_packed(os.pread(opened, 8, 0)):
            text = Unpacker(Path(), os.dup(opened))
            text.first(most)
            text.close()
            descriptor = text.memory
        yield descriptor
    finally:
        for each in {opened, descriptor}:
            os.close(each)


def beginning(path: Path, roots: Sequence[Path], size: int) -> bytes:
    """Return up to ``size`` first bytes of a file's text; raises the errors of ``text_of``."""
    parts, at = list[bytes](), 0
    with text_of(path, roots, size) as descriptor:
        while part := os.pread(descriptor, size - at, at):  # a file system may return fewer bytes
            parts.append(part)
            at += len(part)
    return b"".join(parts)


def archive(path: Path, roots: Sequence[Path]) -> str:
    """What to do with an archive of files (zip, tar), and which log in it is read then; empty for any other file.

    Raises:
        OSError, SourceError: it can't be opened.
    """
    head = beginning(path, roots, PIECE)
    zipped = head.startswith(ZIP)
    if not zipped and head[TAR_MARK] != b"ustar":
        return ""
    members: list[tuple[int, str]] = []
    with os.fdopen(open_regular(path, roots), "rb") as file, suppress(*DAMAGED):
        if not zipped:  # what the first piece of its text shows, however it is packed
            members += ((one.size, one.name) for one in tarfile.TarFile(fileobj=BytesIO(head)) if one.isfile())
        elif os.fstat(file.fileno()).st_size <= LARGEST:
            members += ((one.file_size, one.filename) for one in zipfile.ZipFile(file).infolist())
    logs = [one for one in members if LOG_NAME.search(one[1])]
    if not logs and not path.name.endswith(ARCHIVES):
        return ""
    name = max(logs or [(0, "NAME")])[1]
    command = (
        ["unzip", "-p", str(path), UNZIPS_OWN.sub(r"\\\g<0>", name)]
        if zipped
        else ["tar", "-xOf", str(path), "--", name]
    )
    return f"an archive: {shlex.join(command)} | grpo-watch check - (or unpack it)"


def _reader(data: bytes) -> Any:
    """Return a decompressor for the stream that begins here: a file may hold several, as `cat` joins them."""
    if data.startswith(BZIP2):
        return bz2.BZ2Decompressor()
    return zlib.decompressobj(31) if data.startswith(GZIP) else lzma.LZMADecompressor(memlimit=XZ_MEMORY)


WINDOW = 256 * 1024
"""Bytes of either end of a file that are read to recognise it."""
FARTHEST = 64 * WINDOW
"""Bytes after which the search stops if a file begins with lines longer than the window."""


def ends_of(path: Path, roots: Sequence[Path]) -> tuple[bytes, bytes]:
    """Return the beginning and the end of a file, skipping a hole or overlong lines at the beginning.

    A hole is left by a writer that continues after a truncation (if it is longer than the window, the end stands in for
    the beginning). Lines longer than the window are skipped if others follow.
    """
    with text_of(path, roots, FARTHEST) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        head = file.read(WINDOW)
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, WINDOW, max(WINDOW, size - WINDOW)) if size > WINDOW else b""
        if tail and b"\n" not in head:
            file.seek(0)
            while len(line := file.readline(FARTHEST)) > WINDOW and line.endswith(b"\n") and file.tell() < FARTHEST:
                pass
            head = line + file.read(WINDOW) if 0 < len(line) <= WINDOW else head
    return head.lstrip(b"\0") or tail.lstrip(b"\0"), tail


def unpacked_name(path: Path) -> str:
    """Return a log's name without its compression suffix, unless it is a rotated part of another log."""
    bare = path.name.removesuffix(path.suffix) if path.suffix in SUFFIXES else path.name
    rotated = bare != path.name and (bare[-1:].isdigit() or path.with_name(bare).exists())
    return path.name if rotated else bare
