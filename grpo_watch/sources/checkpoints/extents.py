"""The place of a tensor in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeGuard

MAX_DIMENSIONS = 64
"""Most dimensions of a tensor; numpy's own limit."""

WHOLE_FILE = "FILE"
"""Stands for the data type if a file is hashed as a whole because its tensors can't be distinguished."""

BITS: Mapping[str, int] = MappingProxyType(
    {"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32}
    | {"U64": 64, "I64": 64, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}
    | {"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6}
)
"""Bits per element of the data types that safetensors 0.8.0 writes."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The place of one tensor: ``start`` and ``end`` are byte offsets in the file.

    ``strides`` (in elements) are set only if the elements are not contiguous; the bytes are then the tensor's whole
    span. ``replicated``: every rank that saved the tensor must hold the same values (None: unknown).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    strides: tuple[int, ...] = ()
    replicated: bool | None = None


def naturals(value: Any) -> TypeGuard[list[int] | tuple[int, ...]]:
    """Whether the value is a short list of numbers that fit a file offset; products of others could take forever."""
    if not isinstance(value, (list, tuple)) or len(value) > MAX_DIMENSIONS:
        return False
    for number in value:  # noqa: SIM110  asked for every tensor of every file: twice as fast as all()
        if type(number) is not int or not 0 <= number < 1 << 63:
            return False
    return True


def human(size: int) -> str:
    """Format a number of bytes for people: ``10 GB``, ``12 KB``."""
    units = ("bytes", "KB", "MB", "GB", "TB", "PB", "EB")
    power = max(0, min((len(str(size)) - 1) // 3, len(units) - 1))
    return f"{size / 1000**power:.3g} {units[power]}"
