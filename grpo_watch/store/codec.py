"""Turns items, alerts and snapshots into compact bytes and back; every value survives, NaN and infinities too."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

import msgspec

from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.records import (
    Activity,
    ChannelElected,
    ChannelOpened,
    CheckpointDigest,
    CompletionSummary,
    Cursor,
    Item,
    Progress,
    RawRow,
    RunConfig,
    RunEvent,
    Tick,
    Transition,
)
from grpo_watch.engine.snapshot import RunSnapshot

T = TypeVar("T")

KINDS: tuple[type, ...] = (
    RawRow,
    CompletionSummary,
    CheckpointDigest,
    RunConfig,
    RunEvent,
    Progress,
    Activity,
    ChannelOpened,
    ChannelElected,
    Tick,
)
"""The stored form of an item is its type's index in this tuple and its fields: append only, never reorder."""

_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (*KINDS, Cursor, Transition, Alert, RunSnapshot)
}
_BLOCK = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])
_ARRAY32 = b"\xdd"
_LEVEL = 3
_INTEGERS = (-(2**63), 2**63 - 1)

DECODE_ERRORS = (msgspec.MsgspecError, zlib.error, IndexError, ValueError, TypeError)
"""Errors that the decoding functions raise on damaged bytes."""


def encode_item(item: Item) -> bytes:
    """Encode one item."""
    return encode((_NUMBERS[type(item)], item))


def encode_block(encoded: Sequence[bytes]) -> bytes:
    """Compress encoded items into one block."""
    return zlib.compress(_ARRAY32 + len(encoded).to_bytes(4, "big") + b"".join(encoded), _LEVEL)


def decode_block(block: bytes) -> list[Item]:
    """The items of a block, in order.

    Raises:
        msgspec.MsgspecError, zlib.error, IndexError: the block is damaged (see ``DECODE_ERRORS``).
    """
    return [_DECODERS[KINDS[number]].decode(raw) for number, raw in _BLOCK.decode(zlib.decompress(block))]


def split_block(block: bytes) -> list[bytes]:
    """The items of a block, still encoded, as ``encode_block`` takes them."""
    return [_ENCODER.encode(pair) for pair in _BLOCK.decode(zlib.decompress(block))]


def encode(value: object) -> bytes:
    """Encode a value. Integers beyond 64 bits and lone surrogates, which MessagePack can't hold, are replaced."""
    try:
        return _ENCODER.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return _ENCODER.encode(storable(value))


def decode(kind: type[T], data: bytes) -> T:
    """Decode a value that ``encode`` encoded; raises one of ``DECODE_ERRORS`` on damage."""
    decoded: T = _DECODERS[kind].decode(data)
    return decoded


def storable(value: Any) -> Any:
    """The value with integers clamped to 64 bits and lone surrogates replaced; an equal value if it has none."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int) and not isinstance(value, (bool, Enum)):
        return max(_INTEGERS[0], min(value, _INTEGERS[1]))
    if isinstance(value, Mapping):
        return {storable(key): storable(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        kept = tuple(storable(inner) for inner in value)
        return RawRow(*kept) if isinstance(value, RawRow) else kept
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: storable(getattr(value, field.name)) for field in fields(value)})
    return value
