"""Turns the payload of one TensorBoard record (protobuf ``SummaryEvent``) into scalars and texts."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from grpo_watch.sources.trackers import protobuf_wire

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT = 1, 4

FORMATS = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 19: "e"}
"""TensorFlow's numeric data types and how ``struct`` reads them (bfloat16, 14, apart)."""
BFLOAT16, STRING = 14, 7
PACKED = {5: "f", 6: "d"}
"""Fields of a tensor that hold floats and doubles; of the others (7, 10: int32, int64) varints."""
VARINTS = frozenset({7, 10})
STRINGS = 8
_LONE = re.compile(
    rb"\x09(.{8})\x10(?P<step>[\x80-\xff]{0,9}[\0-\x7f])"
    rb"\x2a([\0-\x7f])\x0a([\0-\x7f])\x0a([\0-\x7f])(?P<tag>.{1,127})\x15(.{4})",
    re.DOTALL,
)
"""Time and step; then summary, value and tag, each with its length; then the number."""
_DOUBLE, _SINGLE = struct.Struct("<d"), struct.Struct("<f")


class SummaryEvent(NamedTuple):
    """What was logged at once. ``step`` is None below 0; ``time`` is the writer's clock (Unix seconds)."""

    step: int | None
    time: float | None
    scalars: dict[str, float]
    texts: dict[str, str]


def decode(payload: bytes) -> SummaryEvent:
    """The scalars (plain, or a tensor of one number as Keras and newer writers store them) and texts of an event.

    Pictures, histograms and larger tensors are left out.

    Raises:
        ValueError: the payload is no such message.
    """
    if (lone := lone_scalar(payload)) is not None:
        return _plain(lone)
    step, time, scalars, texts = 0, None, dict[str, float](), dict[str, str]()
    for number, value in protobuf_wire.fields(payload):
        if number == _STEP and isinstance(value, int):
            step = protobuf_wire.signed(value)
        elif number == _WALL_TIME:
            time = protobuf_wire.double(value)
        elif number == _SUMMARY and isinstance(value, bytes):
            for tag, found in _values(value):
                if isinstance(found, str):
                    texts[tag] = found
                else:
                    scalars[tag] = found
    return SummaryEvent(step if step >= 0 else None, time, scalars, texts)


def lone_scalar(payload: bytes) -> re.Match[bytes] | None:
    """The parts of an event that is one plain scalar with time and step, as all writers put it; None for any other.

    Nearly every event is one, and field by field it would take four times as long.
    """
    found = _LONE.fullmatch(payload)
    if found is None:
        return None
    _, _, summary, value, length, tag, _ = found.groups()
    size = len(tag)
    return found if length[0] == size and value[0] == size + 7 and summary[0] == size + 9 else None


def _plain(found: re.Match[bytes]) -> SummaryEvent:
    clock, digits, _, _, _, tag, number = found.groups()
    step = step_of(digits)
    scalars = {tag.decode("utf-8", "replace"): _SINGLE.unpack(number)[0]}
    return SummaryEvent(step if step >= 0 else None, _DOUBLE.unpack(clock)[0], scalars, {})


@lru_cache(maxsize=16)
def step_of(digits: bytes) -> int:
    """The number of a step's varint; the scalars of a step follow each other."""
    return protobuf_wire.signed(protobuf_wire.varint(digits, 0)[0])


def _values(summary: bytes) -> Iterator[tuple[str, float | str]]:
    for number, value in protobuf_wire.fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        tag = ""
        found: float | str | None = None
        for field, content in protobuf_wire.fields(value):
            if field == _TAG:
                tag = protobuf_wire.text(content)
            elif field == _SIMPLE:
                found = protobuf_wire.single(content)
            elif field == _TENSOR and isinstance(content, bytes):
                found = _tensor(content)
        if tag and found is not None:
            yield tag, found


def _tensor(tensor: bytes) -> float | str | None:
    """The one number or text that a tensor holds; None when it holds more or something else."""
    dtype, numbers, strings = 0, list[float](), list[str]()
    for number, value in protobuf_wire.fields(tensor):
        if number == _DTYPE and isinstance(value, int):
            dtype = value
        elif number == STRINGS:
            strings.append(protobuf_wire.text(value))
        elif number == _CONTENT and isinstance(value, bytes):
            numbers += _raw(dtype, value)
        elif number in PACKED and isinstance(value, bytes):
            numbers += _unpack(PACKED[number], value)
        elif number in VARINTS:
            numbers += [float(protobuf_wire.signed(value))] if isinstance(value, int) else _varints(value)
    if dtype == STRING:
        return strings[0] if len(strings) == 1 else None
    return numbers[0] if len(numbers) == 1 else None


def _raw(dtype: int, content: bytes) -> list[float]:
    """The numbers in a tensor's raw bytes; none for types without numbers."""
    if dtype == BFLOAT16:
        return _unpack("f", b"\0\0" + content) if len(content) == 2 else []  # noqa: PLR2004 (one number)
    return _unpack(FORMATS[dtype], content) if dtype in FORMATS else []


def _unpack(code: str, content: bytes) -> list[float]:
    """One number (more make no scalar, and are not unpacked)."""
    return [float(struct.unpack(f"<{code}", content)[0])] if len(content) == struct.calcsize(f"<{code}") else []


def _varints(content: bytes) -> list[float]:
    """The number in a packed field that holds one."""
    try:
        ((_, value),) = protobuf_wire.fields(b"\x08" + content)
    except ValueError:
        return []
    return [float(protobuf_wire.signed(value))] if isinstance(value, int) else []
