"""Turns the bytes of LevelDB's log format behind a header of 7 bytes (wandb, SwanLab) into checked records."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

from grpo_watch.sources.files.growing_file import FileFrame

HEADER = struct.Struct("<4sHB")
"""Mark, number and version at the beginning of a file."""
WANDB = HEADER.pack(b":W&B", 0xBEE1, 0)
BLOCK = 32 << 10
LARGEST = 32 << 20
"""Bytes of a record that is held; a history row has some 3,000."""

FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_CHUNK = struct.Struct("<IHB")

Read = Callable[[int, int], bytes]
"""``read(offset, size)``; fewer bytes at the end of the file."""


def frames(read: Read, start: int, *, ended: bool = False) -> Iterator[FileFrame]:
    """The records from ``start`` on (a record's beginning, or 0).

    A block of 32 KiB holds chunks (CRC-32 of type and data, length, type, data) and up to 6 bytes of zeros; a record
    is one chunk or several. The clients write whole blocks (wandb) or what fills a buffer (SwanLab), so what they
    logged last may be missing for a while: a record that is not whole is waited for (``ended``: reported as damage).
    Behind damage, reading continues in the next block.
    """
    at = begun = max(start, HEADER.size)
    parts: list[bytes] = []
    size = 0
    while True:
        for frame in () if parts else _whole(read(at, BLOCK - at % BLOCK), at):
            yield frame
            at = frame.end
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


def _whole(data: bytes, start: int) -> Iterator[FileFrame]:
    """The first records of a block's bytes, which begin at ``start``, as far as each is one undamaged chunk."""
    at = 0
    while at + _CHUNK.size <= len(data):
        check, length, kind = _CHUNK.unpack_from(data, at)
        end = at + _CHUNK.size + length
        if kind != FULL or end > len(data) or zlib.crc32(data[at + _CHUNK.size - 1 : end]) != check:
            return
        yield FileFrame(start + at, start + end, data[at + _CHUNK.size : end])
        at = end


def begins(read: Read, *headers: bytes) -> bool:
    """Whether the file begins with one of these headers, or is still empty."""
    head = read(0, HEADER.size)
    return any(header.startswith(head) for header in headers)


def _chunk(read: Read, at: int, *, ended: bool) -> tuple[int, bytes, int, str] | None:
    """Type, data, end and damage of the chunk at ``at`` (padding passed over); None while it is being written."""
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
        return None  # not yet written, or the file's last block: nothing follows that could be read
    return 0, read(at, room), at + room, f"{room} bytes of a block that are no record"
