"""Reads untrusted YAML, JSON and TOML, as they are or as flat names with the place of each value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias, cast

import yaml

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Scalar
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.setting_names import flatten
from grpo_watch.shipped_yaml import MAX_DEPTH, SAFE_LOADER, YamlBombError, refuse_bombs


class RefusedYamlError(ValueError):
    """YAML that is refused because it may be made to exhaust the reader."""


def plain_yaml(text: str) -> object:
    """Return the content of a YAML text without aliases.

    Raises:
        RefusedYamlError: it has aliases, is nested too deeply, or holds an endless number.
        ValueError: it is no YAML.
    """
    try:
        refuse_bombs(text)
        return yaml.load(text, Loader=SAFE_LOADER)  # noqa: S506  a safe one
    except YamlBombError as bomb:
        raise RefusedYamlError(_refusal(str(bomb.problem), bomb.problem_mark)) from bomb
    except (yaml.YAMLError, OverflowError) as error:
        if "maximum nesting depth" in str(error):  # libyaml's own limit, from PyYAML 6.0.4 on
            mark = getattr(error, "problem_mark", None)
            raise RefusedYamlError(_refusal(f"more than {MAX_DEPTH} levels", mark)) from error
        raise ValueError(str(error).splitlines()[0]) from error


def _refusal(what: str, mark: Any) -> str:
    place = f"line {mark.line + 1}: " if mark else ""
    return f"{place}{what}: not read in a run's folder"


def json_object(text: str) -> Mapping[str, Any]:
    """Return the object in a JSON text.

    Raises:
        ValueError: it is no JSON object (half-written, or of another kind).
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 (content, not a caller's mistake)
    return found


_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "none": None, "null": None, "~": None}


def typed(text: str) -> Scalar:
    """Convert ``"8"`` to 8, ``"1e-6"`` to a float, ``"true"`` to a bool, ``"None"`` to None; other texts stay."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) and math.isfinite(float(text)) else text


MAX_LEAVES = 20_000
"""Most leaves: aliases can repeat a few lines into millions; no launch file has more keys and list items than this."""
DEEPEST = 20
Many: TypeAlias = tuple[Scalar, ...]


class Leaf(NamedTuple):
    """A scalar or a list of scalars, and its place (``train.yaml:12:3``)."""

    value: Scalar | Many
    origin: str


def yaml_leaves(text: str, file: str) -> dict[str, Leaf]:
    """Return the leaves of the first document; empty if it is no mapping.

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
    walk = _Walk(file)
    walk.mapping(root, "", 0)
    return walk.found


class _Walk:
    """Collects the leaves of a document; the first value of a name counts."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: dict[str, Leaf] = {}
        self._visited = 0
        self._built: dict[yaml.Node, Scalar | Many] = {}

    def mapping(self, node: yaml.MappingNode, prefix: str, depth: int) -> None:
        """Collect own keys before merged ones (``<<``), which they override."""
        merged: list[yaml.Node] = []
        for key, value in self._children(node):
            if key.tag == "tag:yaml.org,2002:merge":
                merged += self._children(value) if isinstance(value, yaml.SequenceNode) else [value]
            else:
                self._entry(f"{prefix}{key.value if isinstance(key, yaml.ScalarNode) else '?'}", key, value, depth)
        for other in merged:
            if isinstance(other, yaml.MappingNode) and depth < DEEPEST:
                self.mapping(other, prefix, depth + 1)

    def _entry(self, name: str, key: yaml.Node, value: yaml.Node, depth: int) -> None:
        if isinstance(value, yaml.ScalarNode):
            self._leaf(name, key, value)
        elif depth >= DEEPEST:
            return
        elif isinstance(value, yaml.MappingNode):
            self.mapping(value, f"{name}.", depth + 1)
        elif all(isinstance(item, yaml.ScalarNode) for item in self._children(value)):
            self._leaf(name, key, value)
        else:
            for number, item in enumerate(value.value):
                self._entry(f"{name}.{number}", item, item, depth + 1)

    def _children(self, node: yaml.Node) -> list[Any]:
        """Return keys with their values, or items; aliases count with all their content."""
        children: list[Any] = node.value
        self._visited += len(children)
        if self._visited > MAX_LEAVES:
            raise UsageError(f"{self.file}: more than {MAX_LEAVES} values")
        return children

    def _leaf(self, name: str, key: yaml.Node, node: yaml.Node) -> None:
        if node not in self._built:  # repeated for each alias
            self._built[node] = _scalar(node) if isinstance(node, yaml.ScalarNode) else tuple(map(_scalar, node.value))
        origin = f"{self.file}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        self.found.setdefault(name, Leaf(self._built[node], origin))


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """Convert plain words as a trainer's parser does (``1e-6`` is a number); quoted ones stay text."""
    if node.style in {"'", '"', "|", ">"}:
        return str(node.value)
    return typed(node.value) if node.value else None


def json_leaves(text: str, file: str) -> dict[str, Leaf]:
    """Return the leaves of a JSON object, with line numbers if each has its own line.

    Raises:
        UsageError: it is no JSON object.
    """
    try:
        raw = json_object(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{file}:{error.lineno}:{error.colno}: {error.msg}") from None
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (found := re.match(r'\s*"([^"\\]+)"\s*:', line)) is not None:
            lines.setdefault(found[1], number)
    return mapping_leaves(raw, file, lines)


def toml_leaves(text: str, file: str) -> dict[str, Leaf]:
    """Return the leaves of a TOML document, without line numbers.

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


def mapping_leaves(raw: Mapping[str, Any], origin: str, lines: Mapping[str, int] | None = None) -> dict[str, Leaf]:
    """Return the leaves of a decoded mapping, at one place; ``lines`` are the line numbers of some keys."""
    found: dict[str, Leaf] = {}
    for name, value in flatten(raw):
        line = (lines or {}).get(name) or (lines or {}).get(name.rpartition(".")[2])
        place = f"{origin}:{line}" if line else origin
        if isinstance(value, list):
            found[name] = Leaf(tuple(item for item in value if isinstance(item, (str, int, float, bool))), place)
        elif not isinstance(value, Mapping):
            found[name] = Leaf(cast("Scalar", value), place)
    return found
