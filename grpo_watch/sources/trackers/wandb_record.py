"""Turns the payload of one wandb record (protobuf ``Record``, 0.13 to 0.31) into the few things a watcher needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.trackers import protobuf_wire

_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_ITEM, _KEY, _NESTED, _VALUE = 1, 1, 2, 16
_UPDATE, _RUN_CONFIG = 1, 4
_EXIT_CODE = 1
_NO_SCALARS = frozenset({"{", "[", ""})
"""Beginnings of values that are no single number or text."""
LONGEST_VALUE = 4_096
"""Characters of a logged value that may be a number, or name a table; longer ones are pictures and histograms."""


@dataclass(frozen=True, slots=True)
class WandbHistory:
    """One call of ``wandb.log``: keys (nested ones joined by a dot) and their values; ``tables`` maps keys to files."""

    row: Mapping[str, object]
    tables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WandbConfig:
    """Changed keys of the run's configuration."""

    update: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WandbExit:
    """The job reported its end to the client."""

    code: int


WandbRecord: TypeAlias = WandbHistory | WandbConfig | WandbExit


@dataclass(slots=True)
class _Item:
    """One item of a history row or a configuration."""

    path: list[str] = field(default_factory=list)
    value: str = ""


def decode(payload: bytes) -> WandbRecord | None:
    """The content of the record; None for kinds without training data (summaries, console, files).

    Raises:
        ValueError: the payload is no such message.
    """
    for number, value in protobuf_wire.fields(payload):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            return _history(value)
        if number == _CONFIG:
            return WandbConfig(_config(value))
        if number == _RUN:
            return WandbConfig({key: part for one in _nested(value, _RUN_CONFIG) for key, part in _config(one).items()})
        if number == _EXIT:
            return WandbExit(_exit_code(value))
    return None


def scalar(text: str) -> object:
    """The value of a JSON text that may be a number, a short text or null; None also for what can't be read.

    wandb's own writers use bare ``NaN`` and ``Infinity`` or put them in quotes.
    """
    if (found := row_numbers.number(text)) is not None:
        return found
    try:
        return json.loads(text) if len(text) <= LONGEST_VALUE else None
    except (ValueError, RecursionError):
        return None


def _history(message: bytes) -> WandbHistory:
    items = list(map(_item, _nested(message, _ITEM)))
    media = {item.path[0] for item in items if item.path[1:] == ["_type"]}
    row: dict[str, object] = {}
    tables: dict[str, str] = {}
    for item in items:
        if item.path and item.path[0] in media:
            if item.path[1:] == ["path"]:
                tables[item.path[0]] = str(scalar(item.value))
        elif len(item.value) <= LONGEST_VALUE and item.value[:1] not in _NO_SCALARS:
            row[".".join(item.path)] = scalar(item.value)
    return WandbHistory(row, tables)


def _item(message: bytes) -> _Item:
    item = _Item()
    for number, value in protobuf_wire.fields(message):
        if number in {_KEY, _NESTED}:
            item.path.append(protobuf_wire.text(value))
        elif number == _VALUE:
            item.value = protobuf_wire.text(value)
    return item


def _config(message: bytes) -> dict[str, Any]:
    """The updates of a configuration, nested keys as nested mappings; ``_wandb`` is the client's own."""
    found: dict[str, Any] = {}
    for item in map(_item, _nested(message, _UPDATE)):
        if not item.path or item.path[0] == "_wandb":
            continue
        place = found
        for key in item.path[:-1]:
            below = place.setdefault(key, {})
            place = below if isinstance(below, dict) else {}
        try:
            place[item.path[-1]] = json.loads(item.value)
        except (ValueError, RecursionError):
            continue
    return found


def _nested(message: bytes, field: int) -> list[bytes]:
    """The messages in a field."""
    return [value for number, value in protobuf_wire.fields(message) if number == field and isinstance(value, bytes)]


def _exit_code(message: bytes) -> int:
    code = dict(protobuf_wire.fields(message)).get(_EXIT_CODE, 0)
    return protobuf_wire.signed(code) if isinstance(code, int) else 0
