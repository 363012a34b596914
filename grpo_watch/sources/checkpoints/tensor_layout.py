"""Locates the tensors of a weight file by the header of safetensors, or the zip and pickle of torch.

Every claim of a header is checked, nothing is unpickled; a file that is not understood is one piece.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.errors import NotUnderstoodError, TensorFileError
from grpo_watch.sources.checkpoints.extents import BITS, WHOLE_FILE, Extent, human, naturals
from grpo_watch.sources.checkpoints.torch_pickle import StoredTensor, read_tensors

MAX_HEADER = 100_000_000
"""Most bytes of a header; the limit of the safetensors library (0.8.0, ``MAX_HEADER_SIZE``)."""
MAX_PARTS = 4_000_000
"""Most commas and brackets of a header, each of which may cost a hundred bytes when parsed. A tensor has about ten, so
this allows 400,000 of them; a mixture of 61 layers with 320 experts each has 59,400."""
NAME = re.compile(r"[^\ud800-\udfff]{0,1000}", re.DOTALL)
"""Names of tensors: Unicode, as the library demands, of limited length; PEFT's longest have about 200 characters."""
DTYPE = re.compile(r"[A-Za-z0-9_.]{1,32}")
"""Names of data types, including those of later versions."""


def read_header(descriptor: int, name: str) -> tuple[Extent, ...]:
    """Return the tensors of an open safetensors file, in file order.

    Args:
        descriptor: open for reading; its position is not used.
        name: the file's name in errors.

    Raises:
        TensorFileError: truncated, or the header contradicts itself or the file.
        OSError: the file can't be read.
    """
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size < 10:  # noqa: PLR2004  8 bytes of length and an empty object
        raise TensorFileError(f"{name}: truncated: {size} bytes, not a safetensors file")
    if 8 + length > size:
        raise TensorFileError(f"{name}: truncated: header says {human(length)}, file has {human(size)}")
    if length > MAX_HEADER:
        raise TensorFileError(f"{name}: refused: a header of {human(length)} (at most {human(MAX_HEADER)})")
    raw = os.pread(descriptor, length, 8)
    if len(raw) < length:
        raise TensorFileError(f"{name}: truncated while it was read")
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_PARTS:
        raise TensorFileError(f"{name}: refused: a header of more than {MAX_PARTS:,} parts")
    extents = [_extent(name, tensor, entry, 8 + length) for tensor, entry in _entries(name, raw)]
    extents.sort(key=lambda extent: (extent.start, extent.end))
    _check_layout(name, extents, 8 + length, size)
    return tuple(extents)


def _entries(name: str, raw: bytes) -> list[tuple[str, Any]]:
    try:
        pairs = json.loads(raw.decode("utf-8"), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise TensorFileError(f"{name}: the header is not JSON ({type(error).__name__})") from None
    if not isinstance(pairs, _Pairs):
        raise TensorFileError(f"{name}: the header is no JSON object")
    if len({key for key, _ in pairs}) != len(pairs):
        raise TensorFileError(f"{name}: the header names a tensor twice")
    return [(key, value) for key, value in pairs if key != "__metadata__"]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object that keeps duplicate names."""


def _extent(name: str, tensor: str, entry: Any, base: int) -> Extent:
    fields = dict(entry) if isinstance(entry, _Pairs) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not NAME.fullmatch(tensor):
        raise TensorFileError(f"{name}: refused: a tensor is called {tensor[:80]!r}, which no framework writes")
    known = isinstance(dtype, str) and DTYPE.fullmatch(dtype) is not None
    if not known or not naturals(shape) or not naturals(offsets) or len(offsets) != 2:  # noqa: PLR2004
        raise TensorFileError(f"{name}: the header entry of {tensor[:80]!r} is not understood")
    begin, end = offsets
    bits = BITS.get(str(dtype))
    if end < begin or (bits is not None and (end - begin) * 8 != bits * math.prod(shape)):
        raise TensorFileError(f"{name}: offsets of {tensor[:80]!r} do not fit its shape")
    return Extent(tensor, str(dtype), tuple(shape), base + begin, base + end)


def _check_layout(name: str, extents: list[Extent], base: int, size: int) -> None:
    """Check that tensors follow each other without gap or overlap up to the file's end, as the library demands."""
    expected = max((extent.end for extent in extents), default=base)
    if expected > size:
        raise TensorFileError(f"{name}: truncated: header says {human(expected)}, file has {human(size)}")
    at = base
    for extent in extents:
        if extent.start != at:
            what = "overlaps another" if extent.start < at else "follows a gap"
            raise TensorFileError(f"{name}: tensor {extent.name[:80]!r} {what}")
        at = extent.end
    if at != size:
        raise TensorFileError(f"{name}: {human(size - at)} after the last tensor; the file was not written whole")


MAX_MEMBERS = 250_000
"""Most members; each costs reading its header. A mixture of 61 layers with 320 experts each has 59,400 storages."""
MAX_DIRECTORY = 200 * MAX_MEMBERS
"""Most bytes of a central directory; torch's entries have about 100."""
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
    """Return the members of an open archive by name.

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
    """Return entry count, offset and length of the central directory."""
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
    """Return a member of the directory, checked against its own header, and the next entry's offset."""
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
    """Replace values that exceed 32 bits by the 64-bit values of extra field 1 (APPNOTE 4.5.3)."""
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
"""Most bytes of the pickle without its storages; a model with 10,000 tensors has about 2 MB."""
SHOWN = 3
"""Skipped names listed on one line."""
PICKLE, BYTE_ORDER = "data.pkl", "byteorder"


def read_archive(descriptor: int, name: str, remarks: list[str] | None = None) -> tuple[Extent, ...]:
    """Return the tensors of an open archive of ``torch.save`` (torch ≥ 1.6), in file order.

    Tensors that share a storage (tied embeddings) share their place.

    Args:
        descriptor: open for reading; its position is not used.
        name: the file's name in errors.
        remarks: extended by one line naming content beside the tensors that is not understood.

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
    order = members.get(base + BYTE_ORDER)
    if order is not None and _content(descriptor, name, order, 100).strip() != b"little":
        raise NotUnderstoodError(f"{name}: not read: written on a big-endian machine")
    held = sum(member.end - member.start for member in members.values() if member is not pickles[0])
    tensors, beside = read_tensors(_content(descriptor, name, pickles[0], MAX_PICKLE), name, len(members), held)
    if beside and remarks is not None:
        more = f" and {len(beside) - SHOWN} more" if len(beside) > SHOWN else ""
        remarks.append(f"{name}: holds more than tensors, left out: {', '.join(beside[:SHOWN])}{more}")
    extents = [_stored(name, tensor, members.get(f"{base}data/{tensor.storage}")) for tensor in tensors]
    return tuple(sorted(extents, key=lambda extent: (extent.start, extent.end, extent.name)))


def _content(descriptor: int, name: str, member: Member, limit: int) -> bytes:
    size = member.end - member.start
    if size > limit:
        raise NotUnderstoodError(f"{name}: not read: {member.name[:80]!r} has {human(size)} (at most {human(limit)})")
    raw = os.pread(descriptor, size, member.start)
    if len(raw) < size:
        raise TensorFileError(f"{name}: truncated while it was read")
    return raw


def _stored(name: str, tensor: StoredTensor, member: Member | None) -> Extent:
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


TORCH = frozenset({".bin", ".pt", ".pth", ".ckpt"})
"""Suffixes of files of ``torch.save``."""
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of files of torch < 1.6, and newer ones saved without the zip format: a pickle of a magic number."""


LARGEST_POINTER = 1024
"""Most bytes of a pointer; the specification of Git LFS allows fewer, and an annex key is shorter."""
POINTERS = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer"),
    (b"version http://git-media.io/", "a Git LFS pointer"),
    (b"/annex/objects/", "a git-annex pointer"),
)


def read_layout(descriptor: int, name: str, remarks: list[str] | None = None) -> tuple[Extent, ...]:
    """Return the tensors of an open weight file, in file order.

    A file in torch's legacy format is one piece (``whole_file``), and so is one whose tensors are not understood.
    Content that is not understood is added to ``remarks``, one line each that begins with ``name``.

    Raises:
        TensorFileError: cut off, refused or contradicting itself.
        OSError: the file can't be read.
    """
    if what := pointer(os.pread(descriptor, LARGEST_POINTER, 0)):
        raise TensorFileError(f"{name}: {what}, not the weights: fetch them")
    if PurePath(name).suffix not in TORCH:
        return read_header(descriptor, name)
    begin = os.pread(descriptor, len(LEGACY), 0)
    if begin.startswith(SIGNATURE):
        try:
            return read_archive(descriptor, name, remarks)
        except NotUnderstoodError as error:
            if remarks is not None:
                remarks.append(f"{error}; hashed as one piece")
            return whole_file(descriptor, name)
    if begin == LEGACY:
        return whole_file(descriptor, name)
    raise TensorFileError(f"{name}: no file of torch.save: it begins with neither a zip archive nor torch's number")


def pointer(head: bytes) -> str:
    """Return which kind of pointer stands for a large file with this head; empty for a real file."""
    return next((what for begin, what in POINTERS if head.startswith(begin)), "")


def whole_file(descriptor: int, name: str) -> tuple[Extent, ...]:
    """Return the file as one piece of type ``FILE``: equal files prove equal weights, different ones prove nothing."""
    size = os.fstat(descriptor).st_size
    return (Extent(PurePath(name).name, WHOLE_FILE, (size,), 0, size),)
