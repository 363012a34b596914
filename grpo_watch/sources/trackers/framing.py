"""Reads growing binary logs: bytes, checked records (LevelDB's blocks, TFRecord), and protobuf fields."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import keep_some
from grpo_watch.engine.records import Cursor, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import HEAD, inode_with_name, open_regular

CHUNK = 1 << 20


class FileFrame(NamedTuple):
    """One record of a framed file: its start, the next one's start, its payload; ``damage``: why it has none."""

    start: int
    end: int
    payload: bytes
    damage: str = ""


class GrowingFile:
    """Reads a file that grows at its end.

    ``ready`` opens it once it exists; ``problem``: why it can't be read, in one line. ``restarted``: the file is not
    that of ``cursor`` (or the last call), so reading begins at 0 again.
    """

    def __init__(self, path: Path, roots: Sequence[Path], cursor: Cursor | None = None) -> None:
        self.path, self.problem, self.restarted, self.bytes = path, "", False, 0
        self._roots = tuple(roots)
        self._identity = cursor.identity if cursor is not None else ""
        self._descriptor: int | None = None
        self._cached: tuple[int, bytes] = (0, b"")

    def ready(self, position: int) -> bool:
        """Whether there is data to read; sets ``restarted`` if ``position`` belongs to another file."""
        self.restarted, self._cached = False, (0, b"")
        try:
            if self._descriptor is not None:
                named, held = self.path.stat(), os.fstat(self._descriptor)
                if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
                    self.close()
            if self._descriptor is None:
                self._descriptor = keep_some(open_regular(self.path, self._roots))
            self.problem = ""
            self.restarted = self._is_other(position)
            self._identity = os.pread(self._descriptor, HEAD, 0).hex()  # the writer's clock, or the run's id
        except FileNotFoundError:
            return self._descriptor is not None
        except SourceError as error:
            self.problem = str(error)
            return False
        except OSError as error:
            self.problem = f"{self.path}: can't be read: {error.strerror or error}; check permissions and the mount"
            self.close()
            return False
        return True

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes at ``offset``, fewer than ``size`` at the file's end (or if it can't be read any more)."""
        start, held = self._cached
        if offset < start or offset + size > start + len(held):
            self._cached = start, held = offset, self._pread(offset, max(size, CHUNK))
        return held[offset - start : offset - start + size]

    def cursor(self, source: str, position: int, state: Mapping[str, Scalar]) -> Cursor:
        """Return where reading continues."""
        return Cursor(source, self._identity, position, state)

    @property
    def held(self) -> int:
        """The inode of the open file while it has a name."""
        return inode_with_name(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _pread(self, offset: int, size: int) -> bytes:
        if self._descriptor is None:
            return b""
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError as error:
            self.problem = f"{self.path}: can't be read: {error.strerror or error}; check permissions and the mount"
            return b""
        self.bytes = max(self.bytes, offset + len(data))
        return data

    def _is_other(self, position: int) -> bool:
        """Whether the open file is neither the known one nor a copy of it."""
        descriptor = self._descriptor or 0
        known = bytes.fromhex(self._identity)
        return position > os.fstat(descriptor).st_size or os.pread(descriptor, len(known), 0) != known


Read = Callable[[int, int], bytes]
"""``read(offset, size)``; returns fewer bytes at the end of the file."""

HEADER = struct.Struct("<4sHB")
"""Magic, number and version at the beginning of a file."""
WANDB = HEADER.pack(b":W&B", 0xBEE1, 0)
BLOCK = 32 << 10
LARGEST = 32 << 20
"""Most bytes of a record that is held; a history row has some 3,000."""

FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_CHUNK = struct.Struct("<IHB")


def block_frames(read: Read, start: int, *, ended: bool = False) -> Iterator[FileFrame]:
    """Yield the records from ``start`` (a record's beginning, or 0).

    A block of 32 KiB holds chunks (CRC-32 of type and data, length, type, data) and up to 6 bytes of zeros; a record is
    one chunk or several. The clients write whole blocks (wandb) or buffers (SwanLab), so the newest records may be
    missing for a while: an incomplete record is awaited (``ended``: reported as damage). After damage, reading
    continues in the next block.
    """
    at = begun = max(start, HEADER.size)
    parts: list[bytes] = []
    size = 0
    while True:
        if (chunk := _chunk(read, at, ended=ended)) is None:
            break
        kind, data, at, damage = chunk
        if damage:
            yield FileFrame(begun if parts else at - len(data), at, b"", damage)
        if kind in {0, FULL, FIRST}:
            parts, size, begun = [], 0, at if kind == 0 else at - _CHUNK.size - len(data)
        if kind in {FULL, FIRST} or (parts and kind in {MIDDLE, LAST}):
            size += len(data)
            parts.append(data if size <= LARGEST else b"")
        if kind in {FULL, LAST} and parts:
            too_long = f"a record of {size} bytes" if size > LARGEST else ""
            yield FileFrame(begun, at, b"" if too_long else b"".join(parts), too_long)
            parts = []
    if ended and read(begun if parts else at, 1):
        yield FileFrame(begun, at, b"", "a record that is not whole at the end")


def begins(read: Read, *headers: bytes) -> bool:
    """Whether the file begins with one of these headers, or is still empty."""
    head = read(0, HEADER.size)
    return any(header.startswith(head) for header in headers)


def _chunk(read: Read, at: int, *, ended: bool) -> tuple[int, bytes, int, str] | None:
    """Return type, data, end and damage of the chunk at ``at`` (after padding); None while it is being written."""
    room = BLOCK - at % BLOCK
    if room < _CHUNK.size:
        at, room = at + room, BLOCK
    head = read(at, _CHUNK.size)
    if len(head) < _CHUNK.size:
        return None
    check, length, kind = _CHUNK.unpack(head)
    data = read(at + _CHUNK.size, length)
    fits = length + _CHUNK.size <= room
    if fits and len(data) == length and FULL <= kind <= LAST and zlib.crc32(data, zlib.crc32(head[6:])) == check:
        return kind, data, at + _CHUNK.size + length, ""
    if not read(at + room, 1) and not (ended and len(data) == length):
        return None  # not yet written, or the file's last block: no readable data follows
    return 0, read(at, room), at + room, f"{room} bytes of a block that are no record"


LARGEST_EVENT = 8 << 20
"""Most bytes of a record that is read; scalars take 60, a run's configuration some 20,000, pictures more."""
SEARCH = 4 << 20
"""Bytes after a damaged length that are searched for the next record."""
TF_HEAD, CHECK_SIZE = struct.Struct("<QI"), 4
"""Length and its checksum before a payload; bytes of the payload's checksum after it."""

_MASK = 0xA282EAD8
_CANDIDATE = re.compile(rb"(?=(?!\0\0\0)[\s\S]{3}\0{5})")
"""A length below 16 MiB in eight bytes."""


def masked(data: bytes) -> int:
    """Return the CRC32C as TFRecord stores it: rotated right by 15 bits plus a constant."""
    from google_crc32c import value as crc32c  # noqa: PLC0415  few runs have such files

    check: int = crc32c(data)
    return ((check >> 15 | check << 17) + _MASK) & 0xFFFFFFFF


def tf_frames(read: Read, start: int, *, ended: bool = False) -> Iterator[FileFrame]:
    """Yield the records from ``start``: u64 length, its masked CRC32C, the payload, the payload's CRC32C.

    An incomplete record at the end is awaited (``ended``: reported as damage). A damaged payload is skipped; after a
    damaged length the next record is searched for, and if there is none, nothing is yielded.
    """
    at = start
    while True:
        if len(head := read(at, TF_HEAD.size)) < TF_HEAD.size:
            break
        length, check = TF_HEAD.unpack(head)
        if masked(head[:8]) != check:
            following = _following(read, at + 1)
            if following is None:
                break
            yield FileFrame(at, following, b"", f"{following - at} bytes that are no record")
            at = following
            continue
        single = _body(read, at, length, ended=ended)
        if single is None:
            break
        yield single
        at = single.end
    if ended and (left := len(read(at, LARGEST_EVENT))):
        yield FileFrame(at, at + left, b"", f"{left} bytes at the end that are no whole record")


def stuck(read: Read, at: int) -> bool:
    """Whether reading is stuck at ``at`` although more than a record's head follows: its length is damaged."""
    head = read(at, TF_HEAD.size)
    return len(head) == TF_HEAD.size and masked(head[:8]) != TF_HEAD.unpack(head)[1]


def _body(read: Read, at: int, length: int, *, ended: bool) -> FileFrame | None:
    """Return the record after its checked head; None while it is still being written."""
    begin, end = at + TF_HEAD.size, at + TF_HEAD.size + length + CHECK_SIZE
    if length > LARGEST_EVENT:
        return FileFrame(at, end, b"", f"a record of {length >> 20} MiB") if read(end - 1, 1) else None
    body = read(begin, length + CHECK_SIZE)
    if len(body) < length + CHECK_SIZE:
        return None
    if masked(body[:-CHECK_SIZE]) == int.from_bytes(body[-CHECK_SIZE:], "little"):
        return FileFrame(at, end, body[:-CHECK_SIZE])
    if not ended and not read(end, 1):
        return None  # the newest bytes of a file on a network may arrive out of order
    return FileFrame(at, end, b"", "a record with a wrong checksum")


def _following(read: Read, at: int) -> int | None:
    """Return the start of the next intact record at or after ``at``."""
    data = read(at, SEARCH)
    for found in _CANDIDATE.finditer(data):
        head = data[found.start() : found.start() + TF_HEAD.size]
        if len(head) == TF_HEAD.size and masked(head[:8]) == TF_HEAD.unpack(head)[1]:
            return at + found.start()
    return None


Field: TypeAlias = "tuple[int, int | bytes]"
"""A field's number and its value: an integer (varint) or its bytes (4, 8, or as many as its length prefix)."""

SIGN = 1 << 63
LONGEST_VARINT = 10
CONTINUED = 0x80
"""Bytes from this value on are followed by another byte of the number; most numbers here have one."""
FIXED = {1: 8, 5: 4}


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields in the order of the message, nested messages as bytes.

    Raises:
        ValueError: the bytes are no protobuf message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = (data[at], at + 1) if data[at] < CONTINUED else varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == 2:  # noqa: PLR2004 (wire types: 0 varint, 1 eight bytes, 2 counted, 5 four bytes)
            size, at = (data[at], at + 1) if at < end and data[at] < CONTINUED else varint(data, at)
        else:
            size = FIXED.get(kind, end + 1)
        if at + size > end:
            raise ValueError(f"field {number} of wire type {kind} does not fit at byte {at}")
        yield number, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """Return the int64 that a varint encodes."""
    return value - (SIGN << 1) if value >= SIGN else value


def double(value: int | bytes) -> float | None:
    """Return the double in 8 bytes; None for other values."""
    return float(struct.unpack("<d", value)[0]) if isinstance(value, bytes) and len(value) == 8 else None  # noqa: PLR2004


def single(value: int | bytes) -> float | None:
    """Return the float in 4 bytes; None for other values."""
    return float(struct.unpack("<f", value)[0]) if isinstance(value, bytes) and len(value) == 4 else None  # noqa: PLR2004


def text(value: int | bytes) -> str:
    """Return the text of a field; broken UTF-8 is replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at`` and the offset after it.

    Raises:
        ValueError: it does not end within ten bytes, or within the message.
    """
    value = shift = 0
    for index in range(at, min(at + LONGEST_VARINT, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < CONTINUED:
            return value, index + 1
        shift += 7
    raise ValueError(f"a number without an end at byte {at}")
