"""Reads a Python training script as text: its configuration calls and its trainer; nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, LaunchDraft, compute, read_text, typed
from grpo_watch.preflight.inputs.program import Flag

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


SURE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.With, ast.AsyncWith)
"""Statements whose body is taken to run once."""
PARSED = ("parse_args_and_config", "parse_args_into_dataclasses")


class _Change(NamedTuple):
    name: str
    value: ast.expr
    sure: bool


def put_attributes(tree: ast.Module, config: ast.Call | None, scope: Scope, name: str, draft: LaunchDraft) -> None:
    """Take over what is assigned once, unconditionally, to an attribute of the configuration; else it is unknown."""
    changes: dict[str, list[_Change]] = {}
    for change in _changes(tree.body, _holders(tree, config), sure=True):
        changes.setdefault(change.name, []).append(change)
    for key, given in changes.items():
        value = given[-1].value
        origin = f"{name}:{value.lineno}:{value.col_offset + 1}"
        found = evaluate(value, scope)
        if len(given) > 1 or not given[0].sure:
            draft.missing(key, origin, "set under a condition, or several times")
        elif found.why:
            draft.missing(key, origin, found.why)
        else:
            draft.put(key, found.value, origin)


def _holders(tree: ast.Module, config: ast.Call | None) -> set[str]:
    """Names that the configuration is assigned to: of its call, or of TRL's parser (all of the parser's)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        parsed = isinstance(node.value.func, ast.Attribute) and node.value.func.attr in PARSED
        if node.value is config or parsed:
            found |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found


def _changes(body: Iterable[ast.stmt], holders: Container[str], *, sure: bool) -> Iterator[_Change]:
    for node in body:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and _named(target.value) in holders:
                    yield _Change(target.attr, node.value, sure and isinstance(node, ast.Assign))
        inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
        inner += [stmt for handler in getattr(node, "handlers", ()) for stmt in handler.body]
        if inner:
            yield from _changes(inner, holders, sure=sure and isinstance(node, SURE))


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


CONFIGS = ("GRPOConfig", "RLHFArguments", "TrainingArguments")
"""The last part of the name of a call that configures training; the first of these that occurs is the one."""
TRAINERS = ("GRPOTrainer", "AsyncGRPOTrainer")
ADAPTERS = ("LoraConfig", "LoKrConfig", "LoHaConfig", "IA3Config", "get_peft_model", "VeraConfig")
PARSERS = ("TrlParser", "HfArgumentParser")


def read_python(path: Path, draft: LaunchDraft, flags: Iterable[Flag] = ()) -> bool:
    """Read a training script into the draft; whether it configures training itself (then flags are its own).

    Raises:
        ValueError: it can't be read or is no Python.
    """
    name = draft.shown(path)
    try:
        text = read_text(path)
    except (OSError, SourceError, ValueError) as error:
        raise ValueError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    tree = _parse(text, name)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    draft.saw(name)
    draft.framework = draft.framework or _framework(tree)
    scope = Scope(_assigned(tree), _arguments(calls, flags), draft.environ)
    config = _config(calls, name, draft)
    if config is not None:
        _put_config(config, scope, name, draft)
    put_attributes(tree, config, scope, name, draft)
    _adapter(calls, scope, draft)
    return config is not None and not any(_is(call, PARSERS) for call in calls)


def _parse(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"{name}:{error.lineno or 1}: no valid Python ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name}: can't be read as Python ({error})") from None


def _framework(tree: ast.Module) -> str | None:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module.split(".")[0])
    return next((name for name, facts in launch_facts().items() if facts.imported_as in modules), None)


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and isinstance(node.target, ast.Name) and node.value:
            found.setdefault(node.target.id, []).append(node.value)
            if isinstance(node, ast.AugAssign):  # no longer what it was first assigned
                found[node.target.id].append(node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend([node.iter, node.iter])
    return found


def _arguments(calls: Iterable[ast.Call], flags: Iterable[Flag]) -> Mapping[str, PythonValue]:
    """What ``args.NAME`` is: ``add_argument``'s default, then what the command line says."""
    found: dict[str, PythonValue] = {}
    for call in calls:
        if called(call).endswith("add_argument") and call.args:
            name = evaluate(call.args[-1], Scope()).value
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            if isinstance(name, str) and "default" in given:
                found[name.lstrip("-").replace("-", "_")] = evaluate(given["default"], Scope())
    for flag in flags:
        if flag.unknown:
            found[flag.name] = PythonValue(why=flag.unknown)
        elif len(flag.values) == 1:
            found[flag.name] = PythonValue(typed(flag.text))
        else:
            found[flag.name] = PythonValue(tuple(value.text for value in flag.values) or True)
    return found


def _is(call: ast.Call, names: Iterable[str]) -> bool:
    return called(call).rsplit(".", 1)[-1] in names


def _config(calls: list[ast.Call], name: str, draft: LaunchDraft) -> ast.Call | None:
    for kind in CONFIGS:
        found = [call for call in calls if _is(call, (kind,))]
        if len(found) > 1:
            lines = ", ".join(str(call.lineno) for call in found)
            draft.note(f"{name}: {kind} is called in several places (lines {lines}); the last one is judged")
        if found:
            draft.framework = draft.framework or ("trl" if kind == "GRPOConfig" else None)
            return found[-1]
    return None


def _put_config(call: ast.Call, scope: Scope, name: str, draft: LaunchDraft) -> None:
    for spread in (keyword.value for keyword in call.keywords if keyword.arg is None):
        if not keywords(ast.Call(ast.Name("dict"), [], [ast.keyword(None, spread)]), scope):
            draft.note(f"{name}:{spread.lineno}:{spread.col_offset + 1}: ** spreads settings that are not written out")
    for key, value in keywords(call, scope):
        origin = f"{name}:{value.lineno}:{value.col_offset + 1}"
        found = evaluate(value, scope)
        if found.note:
            draft.note(f"{origin}: {key}={found.value} is {found.note}")
        if not found.why:
            draft.put(key, found.value, origin)
        else:
            draft.missing(key, origin, found.why)


def _adapter(calls: list[ast.Call], scope: Scope, draft: LaunchDraft) -> None:
    """Whether an adapter is trained; open where a helper of the framework decides it from the command line."""
    given = [
        value for call in calls if _is(call, TRAINERS) for key, value in keywords(call, scope) if key == "peft_config"
    ]
    if any(_is(call, ADAPTERS) for call in calls) or any(called(call).endswith("get_peft_model") for call in calls):
        draft.peft = True
    elif any(_is(call, TRAINERS) for call in calls) and all(_is_none(value) for value in given):
        draft.peft = False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
