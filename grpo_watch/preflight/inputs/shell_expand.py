"""Turns words of a shell script into arguments by the variables that are known; what isn't known stays visible."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_watch.preflight.inputs.shell_lexer import Lexer, Word, WordPart

LIMIT = 10**15
LONGEST_SUM = 200
DOLLAR = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def shell_sum(text: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of a shell's arithmetic expression; None where a name is unknown or it is more than a sum.

    Division truncates towards zero, as a shell's does.
    """
    if len(text) > LONGEST_SUM:
        return None
    try:
        tree = ast.parse(DOLLAR.sub(r"\1", text).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None

    def name(node: ast.expr) -> float | None:
        value = lookup(node.id) if isinstance(node, ast.Name) else None
        return int(value) if value is not None and re.fullmatch(r"[+-]?\d{1,15}", value) else None

    found = compute(tree, name, lambda left, right: int(left / right))
    return None if found is None else int(found)


def compute(
    node: ast.expr,
    leaf: Callable[[ast.expr], float | None],
    divide: Callable[[float, float], float] = operator.truediv,
) -> float | None:
    """The value of a sum of numbers and of what ``leaf`` knows; None where any part of it is unknown."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = compute(node.operand, leaf, divide)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return leaf(node)
    apply = divide if isinstance(node.op, ast.Div) else _OPERATIONS.get(type(node.op))
    left, right = compute(node.left, leaf, divide), compute(node.right, leaf, divide)
    if apply is None or left is None or right is None:
        return None
    try:
        value = apply(left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return value if abs(value) < LIMIT else None


OWN_FOLDER = re.compile(
    r"""(?:cd\s+(?:--\s+)?"?\$\()?\s*dirname\s+(?:--\s+)?["']?\$(?:0|\{?BASH_SOURCE)[^/]*(?P<rest>.*)""", re.DOTALL
)

SIGNS = re.compile(r"[$`]")
"""In a text that is known in part, the unknown rest stays as written."""

MAX_TEXT = 200_000
MAX_ITEMS = 20_000
MAX_WHY = 300
TOO_LONG = "a text that grows too long"
"""``A=$A$A`` a few dozen times is more than any memory holds; no launch comes near these."""


class Argument(NamedTuple):
    """One argument of a command.

    ``unknown`` names the part that is not known (``text`` then shows its source), else it is empty.
    """

    text: str
    origin: str
    unknown: str = ""


class Value(NamedTuple):
    """What a variable holds; ``why`` says why that can't be known, ``items`` are set for an array."""

    text: str = ""
    why: str = ""
    items: tuple[Argument, ...] | None = None
    origin: str = ""


@dataclass(slots=True)
class Variables:
    """The variables of a script at one point of it. ``folder`` is the script's own folder as text."""

    known: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    folder: str = "."

    def copy(self) -> Variables:
        """An independent copy, for a branch."""
        return Variables(dict(self.known), set(self.exported), self.folder)


def expand(word: Word, variables: Variables, file: str) -> list[Argument]:
    """The arguments that a word becomes: none for an empty unquoted variable, several for a list."""
    origin = f"{file}:{word.line}"
    if len(word.parts) <= 2 and (items := _whole_list(word, variables)) is not None:  # noqa: PLR2004  "" and the list
        return items
    fields, unknown = [""], ""
    started = any(part.quoted for part in word.parts)
    for part in word.parts:
        text, why = value_of(part, variables)
        unknown = unknown or why
        if len(fields[-1]) + len(text) > MAX_TEXT or len(fields) > MAX_ITEMS:
            return [Argument("", origin, TOO_LONG)]
        if part.quoted or part.kind == "text" or why:
            fields[-1] += text
            continue
        pieces = re.split(r"\s+", text)
        fields[-1] += pieces[0]
        fields += pieces[1:]
    if unknown and len(word.parts) == 1 and word.parts[0].kind == "name" and not word.parts[0].quoted:
        return _in_part(fields[0], origin, unknown)
    if unknown:
        return [Argument(" ".join(fields), origin, unknown)]
    return [Argument(text, origin) for text in fields if text or (started and len(fields) == 1)]


def _in_part(text: str, origin: str, why: str) -> list[Argument]:
    """The words of ``$COMMAND``, of which one is not known."""
    words = [token.source for token in Lexer(text).tokens() if isinstance(token, Word)]
    return [Argument(source, origin, why if SIGNS.search(source) else "") for source in words]


def _whole_list(word: Word, variables: Variables) -> list[Argument] | None:
    """The items of ``"${ARGS[@]}"``."""
    part = word.parts[-1] if word.parts else None
    if part is None or part.kind != "list" or any(other.text for other in word.parts[:-1]):
        return None
    value = variables.known.get(part.text)
    return list(value.items) if value is not None and value.items is not None and not value.why else None


def single(parts: tuple[WordPart, ...], variables: Variables) -> tuple[str, str]:
    """The text of an assignment's right side, and why it can't be known (else empty)."""
    texts, why, length = [], "", 0
    for part in parts:
        text, reason = value_of(part, variables)
        texts.append(text)
        why = why or reason
        length += len(text)
        if length > MAX_TEXT:
            return "", TOO_LONG
    return "".join(texts), why


def value_of(part: WordPart, variables: Variables) -> tuple[str, str]:
    """The text of one piece of a word, and why it can't be known (else empty)."""
    if part.kind == "text":
        return part.text, ""
    if part.kind == "sum":
        total = shell_sum(part.text, lambda name: _number(name, variables))
        source = f"$(({part.text}))"
        return (source, f"{source}, which could not be computed") if total is None else (str(total), "")
    if part.kind == "command":
        return _command(part.text, variables)
    value = variables.known.get(part.text)
    if part.kind == "list":
        known = value is not None and value.items is not None and not any(item.unknown for item in value.items)
        if known and value is not None and value.items is not None:
            return " ".join(item.text for item in value.items), ""
        return f"${{{part.text}}}", f"${part.text}, which is not known here"
    return _parameter(part, value, variables)


def _parameter(part: WordPart, value: Value | None, variables: Variables) -> tuple[str, str]:
    if value is not None and value.why:
        return value.text or f"${part.text}", f"${part.text}, {value.why}"[:MAX_WHY]
    if value is not None and value.items:
        value = Value(value.items[0].text, value.items[0].unknown)
    given = value is not None and (bool(value.text) or not part.operator.startswith(":"))
    if part.operator in {":+", "+"}:
        return single(part.default, variables) if given else ("", "")
    if given and value is not None:
        return value.text, ""
    if part.operator in {":-", "-", ":=", "="}:
        return single(part.default, variables)
    if part.text == "0":
        return f"{variables.folder}/script", ""
    return f"${part.text}", f"${part.text}, which nothing here sets"


def _command(source: str, variables: Variables) -> tuple[str, str]:
    """The script's own folder is the one command substitution that can be resolved without running anything."""
    own = OWN_FOLDER.match(source.removeprefix("$(").removeprefix("`"))
    if own is not None and ".." not in own["rest"]:
        return variables.folder, ""
    short = source if len(source) <= 60 else f"{source[:57]}..."  # noqa: PLR2004  a line stays readable
    return short, f"{short}, which only a shell can tell"


def _number(name: str, variables: Variables) -> str | None:
    value = variables.known.get(name)
    return value.text if value is not None and not value.why else None
