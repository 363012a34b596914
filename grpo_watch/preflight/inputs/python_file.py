"""Reads a Python training script as text, without running it: its configuration calls and its trainer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, LaunchDraft, compute
from grpo_watch.preflight.inputs.program import Flag
from grpo_watch.sources.settings.documents import typed

MAX_DEPTH = 12
"""Longest chain of names that refer to names."""
Plain: TypeAlias = Scalar | tuple[Scalar, ...]


class UnknownValueError(Exception):
    """The reason why an expression's value is unknown, without quoting the expression: it may be a secret."""


@dataclass(slots=True)
class Scope:
    """The names of a file.

    ``assigned`` are the expressions of each name, ``arguments`` the values of ``args.NAME`` from the command line or
    ``add_argument``'s default, each with the reason if it is unknown. ``assumed`` collects the variables whose default
    was used.
    """

    assigned: Mapping[str, list[ast.expr]] = field(default_factory=dict)
    arguments: Mapping[str, tuple[Plain, str]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)

    def argument(self, name: str) -> Plain:
        """The value of ``args.NAME``.

        Raises:
            UnknownValueError: it is unknown.
        """
        value, why = self.arguments[name]
        if why:
            raise UnknownValueError(why)
        return value

    def meaning(self, name: str) -> ast.expr | None:
        """The one expression assigned to a name; None if there are none or several."""
        given = self.assigned.get(name, [])
        return given[0] if len(given) == 1 else None


def evaluate(node: ast.expr, scope: Scope, depth: int = 0) -> Plain:
    """The value of an expression: literals, sums of them, names assigned once, ``args.x``, environment defaults.

    Raises:
        UnknownValueError: it depends on running the script.
    """
    match node:
        case ast.Constant(value=None | str() | int() | float() as value):
            return value
        case ast.Attribute(attr=name) if name in scope.arguments:
            return scope.argument(name)
        case ast.Name(id=name):
            if (meaning := scope.meaning(name)) is not None and depth < MAX_DEPTH:
                return evaluate(meaning, scope, depth + 1)
            several = "assigned several times" if name in scope.assigned else "not assigned in this file"
            raise UnknownValueError(f"{name}, which is {several}")
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            items = [evaluate(item, scope, depth) for item in elements]
            scalars = tuple(item for item in items if not isinstance(item, tuple))
            if len(scalars) == len(items):
                return scalars
        case ast.BinOp() | ast.UnaryOp():
            total = compute(node, lambda part: _number(part, scope, depth))
            if total is not None:
                return total
        case ast.Call():
            return _called(node, scope, depth)
    raise UnknownValueError("computed by the script")


def _number(node: ast.expr, scope: Scope, depth: int) -> float | None:
    value = None if isinstance(node, (ast.BinOp, ast.UnaryOp)) else evaluate(node, scope, depth)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _called(node: ast.Call, scope: Scope, depth: int) -> Plain:
    match dotted(node.func), node.args:
        case "int" | "float" | "str" | "bool" as kind, [inner]:
            value = evaluate(inner, scope, depth)
            value = typed(value) if kind != "str" and isinstance(value, str) else value
            return int(value) if kind == "int" and isinstance(value, float) else value
        case "os.environ.get" | "environ.get" | "os.getenv" | "getenv", [ast.Constant(value=str() as variable), *rest]:
            if variable in KEPT_VARIABLES and variable in scope.environ:
                return scope.environ[variable]
            if defaults := [*rest, *(keyword.value for keyword in node.keywords)]:
                scope.assumed.append(variable)
                return evaluate(defaults[0], scope, depth)
            raise UnknownValueError(f"${variable}, which nothing here sets")
    raise UnknownValueError("computed by the script")


def entries(node: ast.expr, scope: Scope, depth: int = 0) -> list[tuple[str, ast.expr]]:
    """Keys and values of ``{"a": 1, **other}``, of ``dict(a=1)`` or of a name for one; empty for anything else."""
    found: list[tuple[str, ast.expr]] = []
    match node:
        case ast.Name(id=name) if (meaning := scope.meaning(name)) is not None and depth < MAX_DEPTH:
            return entries(meaning, scope, depth + 1)
        case ast.Call() if dotted(node.func) == "dict":
            return keywords(node, scope, depth)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    found += entries(value, scope, depth)
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.append((key.value, value))
    return found


def keywords(node: ast.Call, scope: Scope, depth: int = 0) -> list[tuple[str, ast.expr]]:
    """The keyword arguments of a call with ``**settings`` expanded; one that can't be expanded has an empty name."""
    found: list[tuple[str, ast.expr]] = []
    for keyword in node.keywords:
        if keyword.arg is None:
            found += entries(keyword.value, scope, depth) or [("", keyword.value)]
        else:
            found.append((keyword.arg, keyword.value))
    return found


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as text; of other expressions only the part after the last dot."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".removeprefix(".")
    return node.id if isinstance(node, ast.Name) else ""


CONFIGS = ("GRPOConfig", "RLHFArguments", "TrainingArguments")
"""Last part of the names of calls that configure training; the first of these that occurs is used."""
TRAINERS = ("GRPOTrainer", "AsyncGRPOTrainer")
ADAPTERS = ("LoraConfig", "LoKrConfig", "LoHaConfig", "IA3Config", "get_peft_model", "VeraConfig")
PARSERS = ("TrlParser", "HfArgumentParser")
PARSED = ("parse_args_and_config", "parse_args_into_dataclasses")


def read_python(path: Path, draft: LaunchDraft, flags: Iterable[Flag] = ()) -> bool:
    """Read a training script into the draft; returns whether it configures training itself (then flags are its own).

    Raises:
        UsageError: the file can't be read or is not Python.
    """
    name = draft.shown(path)
    tree = _parse(draft.text_of(path), name)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    draft.name_input(name)
    draft.framework = draft.framework or _framework(tree)
    scope = Scope(_assigned(tree), _arguments(calls, flags), draft.environ)
    config = _config([call for call in calls if dotted(call.func) not in _own_names(tree)], name, draft)
    if config is not None:
        _put_config(config, scope, name, draft)
    _ask_for_attributes(tree, config, name, draft)
    _adapter(calls, scope, draft)
    parses = any(_is(call, PARSERS) for call in calls)
    if config is None and not parses:
        draft.leave_open()
    return config is not None and not parses


def _parse(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{name}:{error.lineno or 1}: no valid Python ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{name}: can't be read as Python ({error})") from None


def _framework(tree: ast.Module) -> str | None:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module.split(".")[0])
    return next((name for name, facts in launch_facts().items() if facts.imported_as in modules), None)


def _own_names(tree: ast.Module) -> set[str]:
    """Names of configurations that are not a framework's: classes of this file, or of the project's modules."""
    known = {facts.imported_as for facts in launch_facts().values()} | {"transformers"}
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] not in known):
            found |= {alias.asname or alias.name for alias in node.names}
    return found & {*CONFIGS}


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """The expressions assigned to each name; twice for loops and ``+=``, whose value changes."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                values = [value]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets, values = [target], [value]
            case ast.AugAssign(target=target, value=value) | ast.For(target=target, iter=value):
                targets, values = [target], [value, value]
            case _:
                continue
        for target in targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).extend(values)
    return found


def _arguments(calls: Iterable[ast.Call], flags: Iterable[Flag]) -> Mapping[str, tuple[Plain, str]]:
    """Values of ``args.NAME``: ``add_argument``'s default, overridden by the command line."""
    found: dict[str, tuple[Plain, str]] = {}
    for call in calls:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        match dotted(call.func).endswith("add_argument"), call.args, given.get("default"):
            case True, [*_, ast.Constant(value=str() as name)], ast.expr() as default:
                try:
                    value, why = evaluate(default, Scope()), ""
                except UnknownValueError as error:
                    value, why = None, str(error)
                found[name.lstrip("-").replace("-", "_")] = value, why
    for flag in flags:
        several = tuple(value.text for value in flag.values) or True
        found[flag.name] = typed(flag.text) if len(flag.values) == 1 else several, flag.unknown
    return found


def _is(call: ast.Call, names: Iterable[str]) -> bool:
    return dotted(call.func).rsplit(".", 1)[-1] in names


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
    for key, value in _leaves(keywords(call, scope), scope):
        origin = f"{name}:{value.lineno}:{value.col_offset + 1}"
        if not key:
            draft.leave_open(f"{origin}: ** spreads settings that are not written out")
            continue
        scope.assumed.clear()
        try:
            found = evaluate(value, scope)
        except UnknownValueError as error:
            draft.put_unknown(key, origin, str(error))
            continue
        draft.put(key, found, origin)
        if scope.assumed:
            draft.note(f"{origin}: {key}={found} is the default that the file has for ${scope.assumed[0]}")


def _leaves(given: Iterable[tuple[str, ast.expr]], scope: Scope) -> Iterator[tuple[str, ast.expr]]:
    """Settings, with a literal dictionary split into entries: ``gradient_checkpointing_kwargs.use_reentrant``."""
    for key, value in given:
        inner = entries(value, scope) if key else []
        yield from ((f"{key}.{name}", leaf) for name, leaf in inner if name) if inner else [(key, value)]


def _ask_for_attributes(tree: ast.Module, config: ast.Call | None, name: str, draft: LaunchDraft) -> None:
    """Mark attributes that are set on the configuration later, perhaps conditionally, as unknown."""
    holders: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (node.value is config or _is_parsed(node.value)):
            holders |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                match target:
                    case ast.Attribute(value=ast.Name(id=holder), attr=key) if holder in holders:
                        place = f"{name}:{node.value.lineno}:{node.value.col_offset + 1}"
                        draft.put_unknown(key, place, "set after the configuration was made")


def _is_parsed(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARSED


def _adapter(calls: list[ast.Call], scope: Scope, draft: LaunchDraft) -> None:
    """Set whether an adapter is trained; unknown if a helper of the framework decides it from the command line."""
    trainers = [call for call in calls if _is(call, TRAINERS)]
    given = [value for call in trainers for key, value in keywords(call, scope) if key == "peft_config"]
    if any(_is(call, ADAPTERS) for call in calls):
        draft.peft = True
    elif trainers and all(isinstance(value, ast.Constant) and value.value is None for value in given):
        draft.peft = False
