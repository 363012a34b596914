"""Finds the members and tensors of a torch file, which is an uncompressed zip archive; nothing is unpickled."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_watch.errors import NotUnderstoodError, TensorFileError
from grpo_watch.sources.checkpoints.extents import BITS, Extent, human
from grpo_watch.sources.checkpoints.torch_pickle import StoredTensor, read_tensors

MAX_MEMBERS = 250_000
"""Each costs a reading of its own header; a mixture of 61 layers with 320 experts each has 59,400 storages."""
MAX_DIRECTORY = 200 * MAX_MEMBERS
"""Bytes of a central directory; torch's entries have about 100."""
_TAIL = 22 + 65_535 + 20
"""The end record, the longest comment after it, and the locator before it (APPNOTE 4.3.15, 4.3.16)."""
_END, _LOCATOR, _END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_FULL = 0xFFFF_FFFF
_ENCRYPTED = 1


@dataclass(frozen=True, slots=True)
class Member:
    """One stored file of an archive; ``start`` and ``end`` are byte offsets of its content in the archive."""

    name: str
    start: int
    end: int


def list_members(descriptor: int, name: str) -> Mapping[str, Member]:
    """The members of an open archive by name.

    torch stores its members without compression, so a compressed one (a zip bomb among them) is refused, not inflated.

    Raises:
        TensorFileError: cut off, damaged or refused.
        OSError: the file can't be read.
    """
    size = os.fstat(descriptor).st_size
    count, start, length = _directory(descriptor, name, size)
    if length > MAX_DIRECTORY:
        raise TensorFileError(f"{name}: refused: a zip directory of {human(length)} (at most {human(MAX_DIRECTORY)})")
    if count > MAX_MEMBERS and length >= MAX_MEMBERS * _ENTRY.size:
        raise TensorFileError(f"{name}: refused: a zip archive of more than {MAX_MEMBERS:,} members")
    raw = os.pread(descriptor, length, start)
    members: dict[str, Member] = {}
    at = 0
    try:
        for _ in range(count):
            member, at = _entry(descriptor, name, raw, at, start)
            if member.name in members:
                raise TensorFileError(f"{name}: refused: {member.name[:80]!r} is twice in the zip directory")
            members[member.name] = member
    except (struct.error, IndexError):
        raise TensorFileError(f"{name}: the zip directory is damaged") from None
    _check_apart(name, members)
    return members


def _directory(descriptor: int, name: str, size: int) -> tuple[int, int, int]:
    """Number of entries, offset and length of the central directory."""
    base = max(0, size - _TAIL)
    tail = os.pread(descriptor, size - base, base)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + _END.size > len(tail):
        raise TensorFileError(f"{name}: truncated: a zip archive without its directory at the end")
    _, disk, _, _, count, length, start, _ = _END.unpack_from(tail, at)
    if at >= _LOCATOR.size and tail[at - _LOCATOR.size : at - _LOCATOR.size + 4] == b"PK\6\7":
        _, _, where, _ = _LOCATOR.unpack_from(tail, at - _LOCATOR.size)
        record = os.pread(descriptor, _END64.size, where) if where < size else b""
        if len(record) < _END64.size or record[:4] != b"PK\6\6":
            raise TensorFileError(f"{name}: the zip directory is damaged")
        *_, count, length, start = _END64.unpack(record)
    if disk not in {0, 0xFFFF} or start + length > base + at:
        raise TensorFileError(f"{name}: the zip directory lies outside the file")
    return count, start, length


def _entry(descriptor: int, name: str, raw: bytes, at: int, directory: int) -> tuple[Member, int]:
    """One member of the directory, checked against its own header, and where the next entry begins."""
    signature, *rest = _ENTRY.unpack_from(raw, at)
    flags, method, packed, size = rest[2], rest[3], rest[7], rest[8]
    name_length, extra_length, comment_length, header = rest[9], rest[10], rest[11], rest[15]
    extra_at = at + _ENTRY.size + name_length
    text = raw[at + _ENTRY.size : extra_at]
    size, packed, header = _wide(raw[extra_at : extra_at + extra_length], size, packed, header)
    shown = text.decode("utf-8", "replace")
    if signature != b"PK\1\2" or len(text) < name_length:
        raise IndexError
    _check_kind(name, shown, method, flags, (packed, size))
    local = os.pread(descriptor, _LOCAL.size, header) if header < directory else b""
    if len(local) < _LOCAL.size or local[:4] != b"PK\3\4":
        raise TensorFileError(f"{name}: refused: {shown[:80]!r} lies outside the archive")
    *_, own_name, own_extra = _LOCAL.unpack(local)
    start = header + _LOCAL.size + own_name + own_extra
    if start + size > directory:
        raise TensorFileError(f"{name}: refused: {shown[:80]!r} reaches out of the archive ({human(size)})")
    return Member(shown, start, start + size), extra_at + extra_length + comment_length


def _check_kind(name: str, member: str, method: int, flags: int, sizes: tuple[int, int]) -> None:
    if member.startswith("/") or "\\" in member or "\0" in member or ".." in member.split("/"):
        raise TensorFileError(f"{name}: refused: a member is called {member[:80]!r}, a path out of the archive")
    packed, size = sizes
    if flags & _ENCRYPTED:
        raise TensorFileError(f"{name}: refused: {member[:80]!r} is encrypted")
    if method or packed != size:
        ratio = f"{human(size)} out of {human(packed)}"
        raise TensorFileError(f"{name}: refused: {member[:80]!r} is compressed ({ratio}), which torch never does")


def _wide(extra: bytes, *values: int) -> tuple[int, ...]:
    """The 64-bit values of the extra field 1 in place of those that did not fit into 32 bits (APPNOTE 4.5.3)."""
    at, wide = 0, b""
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = extra[at + 4 : at + 4 + length]
        at += 4 + length
    found: list[int] = []
    taken = 0
    for value in values:
        if value == _FULL:
            value = struct.unpack_from("<Q", wide, taken)[0]  # noqa: PLW2901
            taken += 8
        found.append(value)
    return tuple(found)


def _check_apart(name: str, members: Mapping[str, Member]) -> None:
    behind = 0
    for member in sorted(members.values(), key=lambda one: (one.start, one.end)):
        if member.start < behind:
            raise TensorFileError(f"{name}: refused: {member.name[:80]!r} overlaps another member")
        behind = member.end


SIGNATURE = b"PK\x03\x04"
MAX_PICKLE = 64_000_000
"""Bytes of the pickle without its storages; that of a model with 10,000 tensors has about 2 MB."""
SHOWN = 3
"""Names of what is left out that one line tells."""
PICKLE, BYTE_ORDER = "data.pkl", "byteorder"


def read_archive(descriptor: int, name: str, remarks: list[str] | None = None) -> tuple[Extent, ...]:
    """The tensors of an open archive of ``torch.save`` (torch ≥ 1.6), in file order.

    Tensors that share a storage (tied embeddings) share their place.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.
        remarks: what lies next to the tensors and is not understood is added as one line.

    Raises:
        NotUnderstoodError: its tensors can't be distinguished.
        TensorFileError: cut off, refused, or pickle and archive contradict each other.
        OSError: the file can't be read.
    """
    members = list_members(descriptor, name)
    pickles = [member for path, member in members.items() if path == PICKLE or path.endswith(f"/{PICKLE}")]
    if len(pickles) != 1:
        raise TensorFileError(f"{name}: a zip archive, but none of torch.save: {len(pickles)} members {PICKLE}")
    base = pickles[0].name.removesuffix(PICKLE)
    if f"{base}constants.pkl" in members or any(path.startswith(f"{base}code/") for path in members):
        raise NotUnderstoodError(f"{name}: not read: a TorchScript archive, which holds code")
    _check_byte_order(descriptor, name, members.get(base + BYTE_ORDER))
    held = sum(member.end - member.start for member in members.values() if member is not pickles[0])
    tensors, beside = read_tensors(_content(descriptor, name, pickles[0], MAX_PICKLE), name, len(members), held)
    if beside and remarks is not None:
        more = f" and {len(beside) - SHOWN} more" if len(beside) > SHOWN else ""
        remarks.append(f"{name}: holds more than tensors, left out: {', '.join(beside[:SHOWN])}{more}")
    extents = [_extent(name, tensor, members.get(f"{base}data/{tensor.storage}")) for tensor in tensors]
    return tuple(sorted(extents, key=lambda extent: (extent.start, extent.end, extent.name)))


def _content(descriptor: int, name: str, member: Member, limit: int) -> bytes:
    size = member.end - member.start
    if size > limit:
        raise NotUnderstoodError(f"{name}: not read: {member.name[:80]!r} has {human(size)} (at most {human(limit)})")
    raw = os.pread(descriptor, size, member.start)
    if len(raw) < size:
        raise TensorFileError(f"{name}: truncated while it was read")
    return raw


def _check_byte_order(descriptor: int, name: str, member: Member | None) -> None:
    if member is not None and _content(descriptor, name, member, 100).strip() != b"little":
        raise NotUnderstoodError(f"{name}: not read: written on a big-endian machine")


def _extent(name: str, tensor: StoredTensor, member: Member | None) -> Extent:
    if member is None:
        raise TensorFileError(f"{name}: the storage {tensor.storage[:40]!r} of {tensor.name[:80]!r} is not in it")
    held = member.end - member.start
    if held < tensor.held:
        there = f"{human(held)} of {human(tensor.held)}"
        raise TensorFileError(f"{name}: truncated: the storage {tensor.storage[:40]!r} has {there}")
    size = BITS[tensor.dtype] // 8
    start = member.start + tensor.offset * size
    strides = () if tensor.contiguous else tensor.strides
    if not tensor.span:
        start = member.start
    return Extent(
        tensor.name, tensor.dtype, tensor.shape, start, start + tensor.span * size, strides, tensor.replicated
    )
