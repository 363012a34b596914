"""Where the tensors of a weight file lie, as the header of safetensors or the zip and pickle of torch says.

No claim of a header is believed unchecked; a file that is not understood is one piece.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import PurePath
from typing import Any

from grpo_watch.errors import NotUnderstoodError, TensorFileError
from grpo_watch.sources.checkpoints.absent_weights import pointer
from grpo_watch.sources.checkpoints.extents import BITS, WHOLE_FILE, Extent, human, naturals
from grpo_watch.sources.checkpoints.torch_zip import SIGNATURE, read_archive

MAX_HEADER = 100_000_000
"""Bytes; the limit of the safetensors library (0.8.0, ``MAX_HEADER_SIZE``)."""
MAX_PARTS = 4_000_000
"""Commas and brackets of a header, each of which may cost a hundred bytes when it is parsed. A tensor has about ten,
so this is 400,000 of them; a mixture of 61 layers with 320 experts each has 59,400."""
NAME = re.compile(r"[^\ud800-\udfff]{0,1000}", re.DOTALL)
"""Of a tensor: Unicode, as the library demands, and not without end; the longest of PEFT have about 200 characters."""
DTYPE = re.compile(r"[A-Za-z0-9_.]{1,32}")
"""Of every data type, also of those that later versions add."""


def read_header(descriptor: int, name: str) -> tuple[Extent, ...]:
    """The tensors of an open safetensors file, in file order.

    Args:
        descriptor: open for reading; its position is not used.
        name: how errors call the file.

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
    """A JSON object that still shows names given twice."""


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
    """Tensors follow each other without gap or overlap up to the end of the file, as the library demands."""
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


TORCH = frozenset({".bin", ".pt", ".pth", ".ckpt"})
"""Endings of files of ``torch.save``."""
POINTER_HEAD = 64
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How files of torch < 1.6 begin, and newer ones saved without the zip format: a pickle of a magic number."""


def read_layout(descriptor: int, name: str, remarks: list[str] | None = None) -> tuple[Extent, ...]:
    """The tensors of an open weight file, in file order.

    A file in torch's legacy format is one piece (``whole_file``), and so is one whose tensors are not understood.
    What was not understood is added to ``remarks``, one line each that begins with ``name``.

    Raises:
        TensorFileError: cut off, refused or contradicting itself.
        OSError: the file can't be read.
    """
    if what := pointer(os.pread(descriptor, POINTER_HEAD, 0)):
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


def whole_file(descriptor: int, name: str) -> tuple[Extent, ...]:
    """A file as one piece whose data type is ``FILE``: equal ones prove equal weights, different ones prove nothing."""
    size = os.fstat(descriptor).st_size
    return (Extent(PurePath(name).name, WHOLE_FILE, (size,), 0, size),)
