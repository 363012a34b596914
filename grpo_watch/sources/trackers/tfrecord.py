"""Turns the bytes of a TFRecord file (TensorBoard's event files) into checked records."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

from google_crc32c import value as crc32c

from grpo_watch.sources.files.growing_file import FileFrame

LARGEST = 8 << 20
"""Bytes of a record that is read; scalars take 60, a run's configuration some 20,000. Larger ones are pictures."""
SEARCH = 4 << 20
"""This many bytes behind a damaged length are searched for the next record."""
HEAD, CHECK_SIZE = struct.Struct("<QI"), 4
"""Length and its checksum before a payload; bytes of the payload's checksum behind it."""

_MASK = 0xA282EAD8
_CANDIDATE = re.compile(rb"(?=(?!\0\0\0)[\s\S]{3}\0{5})")
"""A length below 16 MiB in eight bytes."""
_AT_ONCE = 64 << 10
"""Bytes whose whole records are taken before the file is read again."""

Read = Callable[[int, int], bytes]
"""``read(offset, size)``; fewer bytes at the end of the file."""


def masked(data: bytes) -> int:
    """The CRC32C as TFRecord stores it: rotated right by 15 bits plus a constant."""
    check: int = crc32c(data)
    return ((check >> 15 | check << 17) + _MASK) & 0xFFFFFFFF


def frames(read: Read, start: int, *, ended: bool = False) -> Iterator[FileFrame]:
    """The records from ``start`` on: u64 length, its masked CRC32C, the payload, the payload's.

    An incomplete record at the end is waited for (``ended``: reported as damage). A damaged payload is passed over;
    behind a damaged length the next record is searched for, and if there is none, nothing is given.
    """
    at = start
    while True:
        for frame in _sound(read(at, _AT_ONCE), at):
            yield frame
            at = frame.end
        if len(head := read(at, HEAD.size)) < HEAD.size:
            break
        length, check = HEAD.unpack(head)
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
    if ended and (left := len(read(at, LARGEST))):
        yield FileFrame(at, at + left, b"", f"{left} bytes at the end that are no whole record")


def _sound(data: bytes, start: int) -> Iterator[FileFrame]:
    """The first records of some bytes, which begin at ``start`` in the file, as far as they are whole and undamaged.

    Records of a log have few different lengths, so each length's checksum is computed once.
    """
    checks: dict[int, int] = {}
    at, size = 0, len(data)
    while at + HEAD.size <= size:
        length, check = HEAD.unpack_from(data, at)
        begin = at + HEAD.size
        end = begin + length
        if end + CHECK_SIZE > size:
            return
        if checks.get(length) != check:
            if masked(data[at : at + 8]) != check:
                return
            checks[length] = check
        payload = data[begin:end]
        found = crc32c(payload)
        if ((found >> 15 | found << 17) + _MASK) & 0xFFFFFFFF != int.from_bytes(data[end : end + CHECK_SIZE], "little"):
            return
        yield FileFrame(start + at, start + end + CHECK_SIZE, payload)
        at = end + CHECK_SIZE


def stuck(read: Read, at: int) -> bool:
    """Whether reading can't continue at ``at`` although more than a record's head lies there: its length is damaged."""
    head = read(at, HEAD.size)
    return len(head) == HEAD.size and masked(head[:8]) != HEAD.unpack(head)[1]


def _body(read: Read, at: int, length: int, *, ended: bool) -> FileFrame | None:
    """The record whose head is sound; None while it is still being written."""
    begin, end = at + HEAD.size, at + HEAD.size + length + CHECK_SIZE
    if length > LARGEST:
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
    """Where the next sound record begins, at ``at`` or behind it."""
    data = read(at, SEARCH)
    for found in _CANDIDATE.finditer(data):
        head = data[found.start() : found.start() + HEAD.size]
        if len(head) == HEAD.size and masked(head[:8]) == HEAD.unpack(head)[1]:
            return at + found.start()
    return None
