"""Reads one small YAML file into plain values and remembers the place of each.

The loader is PyYAML's safe one, narrowed: no aliases (which can blow a kilobyte up to gigabytes), no custom tags, no
repeated keys, at most 1 MB; and ``1e-7`` is a number, as in YAML 1.2 and JSON.
"""

from __future__ import annotations

import difflib
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from grpo_watch import lazy_re as re
from grpo_watch.errors import FilePlace, LocatedError
from grpo_watch.shipped_yaml import SAFE_LOADER, YamlBombError, refuse_bombs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

MAX_BYTES = 1_000_000

_NOT_A_MAPPING = "must contain `key: value` lines"

Path_: TypeAlias = "tuple[str | int, ...]"
"""The place of a value in the document: ``("rules", 2, "params", "k")``."""


class Document(Struct, frozen=True):
    """The values of a file; ``place_of`` locates each of them."""

    file: str
    value: Any
    keys: Mapping[Path_, FilePlace]
    values: Mapping[Path_, FilePlace]

    def place_of(self, path: Path_, *, key: bool = False) -> FilePlace:
        """The place of a value (or of its key), or of the nearest enclosing one that is known."""
        known = self.keys if key else self.values
        for length in range(len(path), -1, -1):
            if path[:length] in known:
                return known[path[:length]]
        return FilePlace(self.file, 1)

    def at(self, path: Path_) -> Any:
        """The value at a path, which must exist."""
        value = self.value
        for part in path:
            value = value[part]
        return value

    def below(self, path: Path_) -> Document:
        """The part of the document under ``path``, as a document; places stay those of the file."""
        start = len(path)
        keys = {known[start:]: place for known, place in self.keys.items() if known[:start] == path}
        values = {known[start:]: place for known, place in self.values.items() if known[:start] == path}
        return Document(self.file, self.at(path), keys, values)


def read_document(path: Path, error: type[LocatedError]) -> Document:
    """Read a YAML file.

    Raises:
        LocatedError: of the given type, naming the file and, where there is one, the line and the fix.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        raise error(f"can't be read: {problem.strerror or problem}", FilePlace(str(path))) from None
    if len(content) > MAX_BYTES:
        raise error(f"is larger than {MAX_BYTES} bytes", FilePlace(str(path)))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error("is not UTF-8 text", FilePlace(str(path))) from None
    return parse_document(text, str(path), error)


def parse_document(text: str, file: str, error: type[LocatedError]) -> Document:
    """Like ``read_document``, for text already read; ``file`` is its name in errors."""
    loader = _Loader(text)
    try:
        refuse_bombs(text)
        root = loader.get_single_node()
        walker = _Walker(loader, file, text.splitlines(), error)
        value = walker.value(root, ()) if root is not None else None
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = FilePlace(file, mark.line + 1, mark.column + 1) if mark else FilePlace(file)
        if (
            mark
            and text.splitlines()[mark.line : mark.line + 1]
            and "\t" in text.splitlines()[mark.line][: mark.column + 1]
        ):
            raise error("a tab can't indent YAML", place, "use spaces") from None
        refused = f"{problem.problem} are not allowed" if isinstance(problem, YamlBombError) else ""
        raise error(refused or f"is not valid YAML: {problem.problem or problem.context}", place) from None
    except yaml.YAMLError as problem:
        raise error(f"is not valid YAML: {str(problem).splitlines()[0]}", FilePlace(file)) from None
    finally:
        loader.dispose()
    return Document(file, value, walker.keys, walker.values)


class KeyProblem(ValueError):  # noqa: N818  what is wrong with a value
    """The value of one key of a model is invalid; the text says why."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


def nearest(name: str, known: Iterable[str]) -> str | None:
    """``did you mean …?`` for a misspelt name; None if no name is near."""
    near = difflib.get_close_matches(name, sorted(known), 1)
    return f"did you mean {near[0]}?" if near else None


LABEL_NAME = r"^[a-zA-Z_][a-zA-Z0-9_]*$(?!\n)"
HEADER_NAME = r"^[A-Za-z0-9-]+$(?!\n)"
RULE_NAME = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$(?!\n)"
"""Python's ``$`` also matches before a final line end, hence ``(?!\\n)``."""
_ALLOWED = MappingProxyType(
    {
        LABEL_NAME: "letters, digits and _, and not begin with a digit",
        HEADER_NAME: "letters, digits and hyphens",
        RULE_NAME: "words of lowercase letters and digits, joined by hyphens (kl-too-high)",
    }
)
"""The characters a pattern allows, as the end of ``must consist of``."""
_KINDS = MappingProxyType(
    {
        "str": "a text",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        **dict.fromkeys(("null", "NoneType"), "nothing"),
        **dict.fromkeys(("array", "list"), "a list"),
        **dict.fromkeys(("object", "dict"), "a mapping"),
    }
)
"""msgspec's name of a kind of value (of a ``type``: Python's) → the name used in messages."""
_SCALARS = frozenset({"bool", "int", "float", "str"})
_AT = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*?)(?:\[\.\.\.\].*)?`\Z")
"""The place in msgspec's message; for a mapping with free keys it doesn't say which key."""
_PART = re.compile(r"\.(\w+)|\[(\d+)\]")
_NAMED = re.compile(r"Object (?P<what>contains unknown field|missing required field) `(?P<name>.*)`\Z", re.DOTALL)
_LENGTH = re.compile(r" of length (?P<sign>>=|<=) (?P<bound>\d+)\Z")
_WRONG_KIND = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<given>\w+)`\Z")


def first_problem(
    invalid: msgspec.ValidationError,
    document: Document,
    error: type[LocatedError],
    models: Sequence[type[msgspec.Struct]],
    at: Path_ = (),
    instead: Mapping[str, str] | None = None,
) -> LocatedError:
    """The error of a model as one line with its place.

    ``models`` are those whose keys and kinds may be suggested; ``at`` is where the first one's value is.
    ``instead`` says what to use instead of unknown types and keys that people expect: a top-level key is given by its
    name, others as ``type.key``, or ``*.key`` for any place.
    """
    text, better = str(invalid), instead or {}
    found = _AT.search(text)
    text = text[: found.start()] if found else text
    path = (*at, *((name or int(index)) for name, index in _PART.findall(found["path"] if found else "")))
    named = _NAMED.fullmatch(text)
    if named and named["what"] == "missing required field":
        return error(f"missing key {named['name']!r}", document.place_of(path))
    if named:
        return _unknown_key(named["name"], document, path, error, models, better)
    if path[-1:] == ("type",) and text.startswith("Invalid value"):
        unknown = str(document.at(path))
        kinds = [str(model.__struct_config__.tag) for model in models if model.__struct_config__.tag]
        fix = better.get(unknown) or nearest(unknown, kinds) or f"known types: {', '.join(kinds)}"
        return error(f"unknown type {unknown!r}", document.place_of(path[:-1]), fix)
    if isinstance(invalid.__cause__, KeyProblem):
        path = (*path, invalid.__cause__.key)
    below = path[len(at) :]
    message = str(invalid.__cause__ or _in_words(text, path, models))
    message = f"its keys {message}" if found and found["key"] else message
    name = ".".join(map(str, below))
    wrong = _WRONG_KIND.fullmatch(text)
    what = better.get(str(below[0])) if wrong and below and not below[2:] else None
    return error(f"{name}: {message}" if name else message, document.place_of(path), what)


def _unknown_key(
    unknown: str,
    document: Document,
    path: Path_,
    error: type[LocatedError],
    models: Sequence[type[msgspec.Struct]],
    better: Mapping[str, str],
) -> LocatedError:
    kind = document.at(path).get("type", path[-1] if path else None)
    fix = better.get(unknown if kind is None else f"{kind}.{unknown}") or better.get(f"*.{unknown}")
    fix = fix or nearest(unknown, {key for model in models for key in model.__struct_fields__} - {unknown})
    return error(f"unknown key {unknown!r}", document.place_of((*path, unknown), key=True), fix)


def _in_words(problem: str, path: Path_, models: Sequence[type[msgspec.Struct]]) -> str:
    """A value's error from msgspec in plain words: ``must be a number, not a text``."""
    wrong = _WRONG_KIND.fullmatch(problem)
    if wrong and wrong["wanted"].startswith("object"):
        return _NOT_A_MAPPING
    if wrong:
        wanted = [kind for kind in wrong["wanted"].split(" | ") if kind != "null"]
        either = "a single value" if set(wanted) >= _SCALARS else " or ".join(_KINDS.get(kind, kind) for kind in wanted)
        given = "a fraction" if wrong["given"] == "float" else _KINDS.get(wrong["given"], wrong["given"])
        return f"must be {either}, not {given}"
    if problem.startswith("Invalid enum value"):
        key = str(path[-1])
        choices = dict.fromkeys(repr(choice) for model in models for choice in _choices(model, key))
        *first, last = choices or [problem]
        return f"must be {', '.join(first)} or {last}"
    if length := _LENGTH.search(problem):
        return "must not be empty" if length["sign"] == ">=" else f"must have at most {length['bound']} characters"
    for pattern, allowed in _ALLOWED.items():
        if repr(pattern) in problem:
            return f"must consist of {allowed}"
    bound = re.sub(r"Expected `(\w+)`", lambda kind: f"must be {_KINDS.get(kind[1], kind[1])}", problem)
    return bound.removesuffix(".0")


def _choices(model: type[msgspec.Struct], key: str) -> Iterator[str]:
    for field in msgspec.structs.fields(model):
        for kind in (field.type, *get_args(field.type)) if field.name == key else ():
            if get_origin(kind) is Literal:
                yield from get_args(kind)
            elif isinstance(kind, type) and issubclass(kind, Enum):
                yield from (str(member.value) for member in kind)


class _Loader(SAFE_LOADER):  # type: ignore[misc]  # which of the two is known at run time only
    """The safe loader, with a resolver of its own."""


_Loader.add_implicit_resolver(  # YAML 1.1 reads 1e-7 as text
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


class _Walker:
    """Builds plain values from nodes, noting each one's place."""

    def __init__(self, loader: _Loader, file: str, lines: list[str], error: type[LocatedError]) -> None:
        self.loader, self.file, self.lines, self.error = loader, file, lines, error
        self.keys: dict[Path_, FilePlace] = {}
        self.values: dict[Path_, FilePlace] = {}

    def value(self, node: yaml.Node, path: Path_) -> Any:
        self.values[path] = self._place(node)
        if isinstance(node, yaml.MappingNode):
            return {key: self.value(child, (*path, key)) for key, child in self._pairs(node, path)}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        try:
            return self.loader.construct_object(node)
        except ValueError as problem:  # 2027-02-31
            raise self.error(str(problem), self._place(node)) from None

    def _pairs(self, node: yaml.MappingNode, path: Path_) -> Iterator[tuple[str, yaml.Node]]:
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise self.error("keys must be plain words", self._place(key_node))
            key = str(key_node.value)
            here = (*path, key)
            if here in self.keys:
                first = self.keys[here].line
                raise self.error(f"duplicate key {key!r} (first in line {first})", self._place(key_node))
            self.keys[here] = self._place(key_node)
            yield key, child

    def _place(self, node: yaml.Node) -> FilePlace:
        """Where the node's own text begins: behind a quote, in the line below ``|`` or ``>``."""
        line, column = node.start_mark.line, node.start_mark.column
        style = getattr(node, "style", None)
        if style in {"|", ">"} and line + 1 < len(self.lines):
            text = self.lines[line + 1]
            return FilePlace(self.file, line + 2, len(text) - len(text.lstrip()) + 1)
        return FilePlace(self.file, line + 1, column + (2 if style in {"'", '"'} else 1))
