"""Turns expressions of a Python file into values where they are literal; nothing is imported, called or run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from grpo_watch.engine.records import Scalar
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, typed
from grpo_watch.preflight.inputs.shell_expand import compute

MAX_DEPTH = 12
Plain: TypeAlias = Scalar | tuple[Scalar, ...]


class PythonValue(NamedTuple):
    """A value, or ``why`` it is not known; ``note`` says on what a known value rests (a variable's default)."""

    value: Plain = None
    why: str = ""
    note: str = ""


@dataclass(slots=True)
class Scope:
    """What names mean in a file: the expression each is assigned, if it is assigned once.

    ``arguments`` are the values that ``args.NAME`` has, from the command line or ``add_argument``'s default.
    """

    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    arguments: Mapping[str, PythonValue] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    def meaning(self, name: str) -> ast.expr | None:
        """The one expression that a name stands for; None where there are none or several."""
        given = self.assigned.get(name, [])
        return given[0] if len(given) == 1 else None


def evaluate(node: ast.expr, scope: Scope, depth: int = 0) -> PythonValue:
    """The value of an expression: literals, sums of them, names assigned once, ``args.x``, environment defaults."""
    if depth > MAX_DEPTH:
        return PythonValue(why="nested too deeply")
    if isinstance(node, ast.Constant):
        return _constant(node)
    if isinstance(node, ast.Attribute):
        return scope.arguments.get(node.attr) or PythonValue(why=source(node))
    if isinstance(node, ast.Name):
        return _name(node, scope, depth)
    found = PythonValue(why=source(node))
    if isinstance(node, (ast.List, ast.Tuple)):
        found = _sequence(node, scope, depth)
    elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
        found = _computed(node, scope, depth)
    elif isinstance(node, ast.Call):
        found = _called(node, scope, depth)
    elif isinstance(node, ast.Subscript):
        found = _entry(node, scope, depth)
    return found


def _constant(node: ast.Constant) -> PythonValue:
    value = node.value
    return (
        PythonValue(value)
        if value is None or isinstance(value, (str, int, float, bool))
        else PythonValue(why=source(node))
    )


def _name(node: ast.Name, scope: Scope, depth: int) -> PythonValue:
    given = scope.assigned.get(node.id, [])
    if len(given) != 1:
        return PythonValue(
            why=f"{node.id}, which is {'assigned several times' if given else 'not assigned in this file'}"
        )
    return evaluate(given[0], scope, depth + 1)


def _sequence(node: ast.List | ast.Tuple, scope: Scope, depth: int) -> PythonValue:
    items = [evaluate(item, scope, depth + 1) for item in node.elts]
    scalars = tuple(item.value for item in items if not isinstance(item.value, tuple))
    known = len(scalars) == len(items) and not any(item.why for item in items)
    return PythonValue(scalars) if known else PythonValue(why=source(node))


def _computed(node: ast.expr, scope: Scope, depth: int) -> PythonValue:
    notes: list[str] = []

    def leaf(part: ast.expr) -> float | None:
        found = evaluate(part, scope, depth + 1) if not isinstance(part, (ast.BinOp, ast.UnaryOp)) else PythonValue()
        notes.append(found.note)
        number = isinstance(found.value, (int, float)) and not isinstance(found.value, bool)
        return found.value if number and isinstance(found.value, (int, float)) else None

    value = compute(node, leaf)
    return PythonValue(why=source(node)) if value is None else PythonValue(value, note=next(filter(None, notes), ""))


def _called(node: ast.Call, scope: Scope, depth: int) -> PythonValue:
    name = called(node)
    if name in {"int", "float", "str", "bool"} and len(node.args) == 1:
        inner = evaluate(node.args[0], scope, depth + 1)
        value = typed(inner.value) if name != "str" and isinstance(inner.value, str) else inner.value
        if name == "int" and isinstance(value, float):
            value = int(value)
        return inner._replace(value=value)
    if name in {"os.environ.get", "environ.get", "os.getenv", "getenv"} and node.args:
        return _variable(node, scope, depth)
    return PythonValue(why=source(node))


def _variable(node: ast.Call, scope: Scope, depth: int) -> PythonValue:
    name = evaluate(node.args[0], scope, depth + 1).value
    if not isinstance(name, str):
        return PythonValue(why=source(node))
    if name in KEPT_VARIABLES and name in scope.environ:
        return PythonValue(scope.environ[name], note=f"${name} as it is set")
    if len(node.args) + len(node.keywords) < 2:  # noqa: PLR2004  the name and a default
        return PythonValue(why=f"${name}, which nothing here sets")
    default = evaluate(node.args[1] if len(node.args) > 1 else node.keywords[0].value, scope, depth + 1)
    return default._replace(note=f"the default that the file has for ${name}")


def _entry(node: ast.Subscript, scope: Scope, depth: int) -> PythonValue:
    """``settings["G"]`` of a dictionary that is written out."""
    key = evaluate(node.slice, scope, depth + 1).value
    if called_name(node.value) == "os.environ" and isinstance(key, str):
        known = key in KEPT_VARIABLES and key in scope.environ
        return PythonValue(scope.environ[key]) if known else PythonValue(why=f"${key}, which nothing here sets")
    for name, value in entries(node.value, scope):
        if name == key:
            return evaluate(value, scope, depth + 1)
    return PythonValue(why=source(node))


def entries(node: ast.expr, scope: Scope, depth: int = 0) -> list[tuple[str, ast.expr]]:
    """Keys and values of ``{"a": 1, **other}``, of ``dict(a=1)`` or of a name for one; empty for anything else."""
    if depth > MAX_DEPTH:
        return []
    if isinstance(node, ast.Name) and (meaning := scope.meaning(node.id)) is not None:
        return entries(meaning, scope, depth + 1)
    if isinstance(node, ast.Call) and called(node) == "dict":
        return keywords(node, scope, depth + 1)
    found: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found += entries(value, scope, depth + 1)
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.append((key.value, value))
    return found


def keywords(node: ast.Call, scope: Scope, depth: int = 0) -> list[tuple[str, ast.expr]]:
    """The keyword arguments of a call, ``**settings`` spread out where its dictionary is written out."""
    found: list[tuple[str, ast.expr]] = []
    for keyword in node.keywords:
        found += entries(keyword.value, scope, depth + 1) if keyword.arg is None else [(keyword.arg, keyword.value)]
    return found


def called(node: ast.Call) -> str:
    """The dotted name of what is called, empty where it is none."""
    return called_name(node.func)


def called_name(node: ast.expr) -> str:
    """``a.b.c`` as text; what precedes the last dot of another expression is left out."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = called_name(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


class _Redactor(ast.NodeTransformer):
    """Texts that a call is given may be secrets."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """The same call with every text in its arguments left out."""
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)):
                part.value = "…"
        return node


def source(node: ast.expr) -> str:
    """The expression as people wrote it, short, without the texts that it passes to calls."""
    try:
        text = " ".join(ast.unparse(_Redactor().visit(deepcopy(node))).split())
    except (RecursionError, ValueError):
        text = "an expression"
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  a line stays readable
