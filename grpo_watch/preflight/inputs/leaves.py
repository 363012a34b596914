"""Turns YAML and JSON into flat names with values and the line and column of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import yaml

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import UsageError
from grpo_watch.preflight.inputs.draft import typed
from grpo_watch.shipped_yaml import SAFE_LOADER

MAX_LEAVES = 20_000
"""Aliases can repeat a few lines into millions; no launch file has more settings than this."""
MAX_DEPTH = 20

Many: TypeAlias = tuple[Scalar, ...]


class Leaf(NamedTuple):
    """A scalar or a list of scalars, and its place (``train.yaml:12:3``)."""

    value: Scalar | Many
    origin: str


def yaml_leaves(text: str, file: str) -> dict[str, Leaf]:
    """The leaves of the first document; an empty mapping where it is no mapping.

    Raises:
        UsageError: it is no YAML; the message names line and column.
    """
    try:
        root = yaml.compose(text, Loader=SAFE_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else file
        raise UsageError(f"{place}: {error.problem or 'no YAML'}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{file}: {str(error).splitlines()[0]}") from None
    if not isinstance(root, yaml.MappingNode):
        return {}
    found: dict[str, Leaf] = {}
    for name, leaf in _walk(root, "", file, 0):
        found.setdefault(name, leaf)
        if len(found) > MAX_LEAVES:
            raise UsageError(f"{file}: more than {MAX_LEAVES} values")
    return found


def _walk(node: yaml.MappingNode, prefix: str, file: str, depth: int) -> Iterator[tuple[str, Leaf]]:
    """Own keys before merged ones (``<<``), so that the first of a name is the one that counts."""
    merged: list[yaml.Node] = []
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        else:
            yield from _entry(
                f"{prefix}{key.value if isinstance(key, yaml.ScalarNode) else '?'}", key, value, file, depth
            )
    for other in merged:
        if isinstance(other, yaml.MappingNode) and depth < MAX_DEPTH:
            yield from _walk(other, prefix, file, depth + 1)


def _entry(name: str, key: yaml.Node, value: yaml.Node, file: str, depth: int) -> Iterator[tuple[str, Leaf]]:
    origin = f"{file}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
    if isinstance(value, yaml.ScalarNode):
        yield name, Leaf(_scalar(value), origin)
    elif depth >= MAX_DEPTH:
        return
    elif isinstance(value, yaml.MappingNode):
        yield from _walk(value, f"{name}.", file, depth + 1)
    elif all(isinstance(item, yaml.ScalarNode) for item in value.value):
        yield name, Leaf(tuple(_scalar(item) for item in value.value), origin)
    else:
        for number, item in enumerate(value.value):
            yield from _entry(f"{name}.{number}", item, item, file, depth + 1)


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """Plain words are typed as a trainer's parser does (``1e-6`` is a number); quoted ones stay text."""
    if node.style in {"'", '"', "|", ">"}:
        return str(node.value)
    return typed(node.value) if node.value else None


def json_leaves(text: str, file: str) -> dict[str, Leaf]:
    """The leaves of a JSON object, those of its first level with their line.

    Raises:
        UsageError: it is no JSON object.
    """
    try:
        raw = json.loads(text)
    except RecursionError:
        raise UsageError(f"{file}: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{file}:{error.lineno}:{error.colno}: {error.msg}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{file}: not a JSON object")
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (found := re.match(r'\s*"([^"\\]+)"\s*:', line)) is not None:
            lines.setdefault(found[1], number)
    return dict(_json(raw, "", file, lines))


def toml_leaves(text: str, file: str) -> dict[str, Leaf]:
    """The leaves of a TOML document, without their lines.

    Raises:
        UsageError: it is no TOML, or this Python is older than 3.11 and can't read it.
    """
    try:
        loads = import_module("tomllib").loads
    except ImportError:
        raise UsageError(f"{file}: reading TOML takes Python 3.11 or newer") from None
    try:
        return mapping_leaves(loads(text), file)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error}") from None


def mapping_leaves(raw: Mapping[str, Any], origin: str) -> dict[str, Leaf]:
    """The leaves of a mapping that was decoded already; all stand at one place."""
    return dict(_json(raw, "", origin, {}))


def _json(raw: Mapping[str, Any], prefix: str, file: str, lines: Mapping[str, int]) -> Iterator[tuple[str, Leaf]]:
    for key, value in raw.items():
        place = f"{file}:{lines[key]}" if key in lines else file
        if isinstance(value, dict):
            if prefix.count(".") < MAX_DEPTH:
                yield from _json(value, f"{prefix}{key}.", file, lines)
        elif isinstance(value, list):
            items = tuple(item for item in value if isinstance(item, (str, int, float, bool)))
            yield f"{prefix}{key}", Leaf(items, place)
        else:
            yield f"{prefix}{key}", Leaf(value, place)
