"""Reads a Python training script as text: its configuration calls and its trainer; nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import KEPT_VARIABLES, LaunchDraft, compute
from grpo_watch.preflight.inputs.program import Flag
from grpo_watch.sources.settings.documents import typed

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


def evaluate(node: ast.expr, scope: Scope, depth: int = 0) -> PythonValue:  # noqa: PLR0911  a case for each kind
    """The value of an expression: literals, sums of them, names assigned once, ``args.x``, environment defaults."""
    if depth > MAX_DEPTH:
        return PythonValue(why="nested too deeply")
    match node:
        case ast.Constant(value=None | str() | int() | float() as value):
            return PythonValue(value)
        case ast.Attribute(attr=name) if name in scope.arguments:
            return scope.arguments[name]
        case ast.Name(id=name):
            if (meaning := scope.meaning(name)) is not None:
                return evaluate(meaning, scope, depth + 1)
            several = "assigned several times" if name in scope.assigned else "not assigned in this file"
            return PythonValue(why=f"{name}, which is {several}")
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            items = [evaluate(item, scope, depth + 1) for item in elements]
            scalars = tuple(item.value for item in items if not isinstance(item.value, tuple))
            if len(scalars) == len(items) and not any(item.why for item in items):
                return PythonValue(scalars)
        case ast.BinOp() | ast.UnaryOp():
            return _computed(node, scope, depth)
        case ast.Call():
            return _called(node, scope, depth)
    return PythonValue(why=source(node))


def _computed(node: ast.expr, scope: Scope, depth: int) -> PythonValue:
    notes: list[str] = []

    def leaf(part: ast.expr) -> float | None:
        found = evaluate(part, scope, depth + 1) if not isinstance(part, (ast.BinOp, ast.UnaryOp)) else PythonValue()
        notes.append(found.note)
        return None if isinstance(found.value, bool) or not isinstance(found.value, (int, float)) else found.value

    value = compute(node, leaf)
    return PythonValue(why=source(node)) if value is None else PythonValue(value, note=next(filter(None, notes), ""))


def _called(node: ast.Call, scope: Scope, depth: int) -> PythonValue:
    name = dotted(node.func)
    if name in {"int", "float", "str", "bool"} and len(node.args) == 1:
        inner = evaluate(node.args[0], scope, depth + 1)
        value = typed(inner.value) if name != "str" and isinstance(inner.value, str) else inner.value
        return inner._replace(value=int(value) if name == "int" and isinstance(value, float) else value)
    if name not in {"os.environ.get", "environ.get", "os.getenv", "getenv"} or not node.args:
        return PythonValue(why=source(node))
    variable = evaluate(node.args[0], scope, depth + 1).value
    if not isinstance(variable, str):
        return PythonValue(why=source(node))
    known = scope.environ.get(variable) if variable in KEPT_VARIABLES else None
    if known is not None:
        return PythonValue(known, note=f"${variable} as it is set")
    defaults = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
    if not defaults:
        return PythonValue(why=f"${variable}, which nothing here sets")
    return evaluate(defaults[0], scope, depth + 1)._replace(note=f"the default that the file has for ${variable}")


def entries(node: ast.expr, scope: Scope, depth: int = 0) -> list[tuple[str, ast.expr]]:
    """Keys and values of ``{"a": 1, **other}``, of ``dict(a=1)`` or of a name for one; empty for anything else."""
    if depth > MAX_DEPTH:
        return []
    if isinstance(node, ast.Name) and (meaning := scope.meaning(node.id)) is not None:
        return entries(meaning, scope, depth + 1)
    if isinstance(node, ast.Call) and dotted(node.func) == "dict":
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


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as text; what precedes the last dot of another expression is left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".removeprefix(".")
    return node.id if isinstance(node, ast.Name) else ""


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


def put_attributes(tree: ast.Module, config: ast.Call | None, scope: Scope, name: str, draft: LaunchDraft) -> None:
    """Take over what is assigned once, unconditionally, to an attribute of the configuration; else it is unknown."""
    holders, once = _holders(tree, config), set(_run_once(tree.body))
    changes: dict[str, list[ast.Assign | ast.AugAssign]] = {}
    for node in sorted(_assignments(tree), key=lambda node: node.lineno):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in holders:
                changes.setdefault(target.attr, []).append(node)
    for key, given in changes.items():
        value = given[-1].value
        origin, found = f"{name}:{value.lineno}:{value.col_offset + 1}", evaluate(value, scope)
        if len(given) > 1 or given[0] not in once or isinstance(given[0], ast.AugAssign):
            draft.missing(key, origin, "set under a condition, or several times")
        elif found.why:
            draft.missing(key, origin, found.why)
        else:
            draft.put(key, found.value, origin)


def _assignments(tree: ast.Module) -> Iterator[ast.Assign | ast.AugAssign]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign)))


def _run_once(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, SURE):
            yield from _run_once(node.body)


def _holders(tree: ast.Module, config: ast.Call | None) -> set[str]:
    """Names that the configuration is assigned to: of its call, or of TRL's parser (all of the parser's)."""
    found: set[str] = set()
    for node in _assignments(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            parsed = isinstance(node.value.func, ast.Attribute) and node.value.func.attr in PARSED
            if node.value is config or parsed:
                found |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found


CONFIGS = ("GRPOConfig", "RLHFArguments", "TrainingArguments")
"""The last part of the name of a call that configures training; the first of these that occurs is the one."""
TRAINERS = ("GRPOTrainer", "AsyncGRPOTrainer")
ADAPTERS = ("LoraConfig", "LoKrConfig", "LoHaConfig", "IA3Config", "get_peft_model", "VeraConfig")
PARSERS = ("TrlParser", "HfArgumentParser")


def read_python(path: Path, draft: LaunchDraft, flags: Iterable[Flag] = ()) -> bool:
    """Read a training script into the draft; whether it configures training itself (then flags are its own).

    Raises:
        UsageError: it can't be read or is no Python.
    """
    name = draft.shown(path)
    tree = _parse(draft.text_of(path), name)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    draft.saw(name)
    draft.framework = draft.framework or _framework(tree)
    scope = Scope(_assigned(tree), _arguments(calls, flags), draft.environ)
    config = _config([call for call in calls if dotted(call.func) not in _own_names(tree)], name, draft)
    if config is not None:
        _put_config(config, scope, name, draft)
    put_attributes(tree, config, scope, name, draft)
    _adapter(calls, scope, draft)
    parses = any(_is(call, PARSERS) for call in calls)
    if config is None and not parses:
        draft.open_ended()
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
    """Names of configurations that are not a framework's: classes of this file, or of modules of the project."""
    known = {facts.imported_as for facts in launch_facts().values()} | {"transformers"}
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] not in known):
            found |= {alias.asname or alias.name for alias in node.names}
    return found & {*CONFIGS}


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What each name is assigned; twice where it does not stay what it was first assigned."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values = [node.value] * (1 + isinstance(node, ast.AugAssign))
        elif isinstance(node, ast.For):
            targets, values = [node.target], [node.iter, node.iter]
        for target in targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).extend(value for value in values if value is not None)
    return {name: values for name, values in found.items() if values}


def _arguments(calls: Iterable[ast.Call], flags: Iterable[Flag]) -> Mapping[str, PythonValue]:
    """What ``args.NAME`` is: ``add_argument``'s default, then what the command line says."""
    found: dict[str, PythonValue] = {}
    for call in calls:
        if dotted(call.func).endswith("add_argument") and call.args:
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
    for spread in (keyword.value for keyword in call.keywords if keyword.arg is None):
        if not keywords(ast.Call(ast.Name("dict"), [], [ast.keyword(None, spread)]), scope):
            place = f"{name}:{spread.lineno}:{spread.col_offset + 1}"
            draft.open_ended(f"{place}: ** spreads settings that are not written out")
    for key, value in _leaves(keywords(call, scope), scope):
        origin = f"{name}:{value.lineno}:{value.col_offset + 1}"
        found = evaluate(value, scope)
        if found.note:
            draft.note(f"{origin}: {key}={found.value} is {found.note}")
        if not found.why:
            draft.put(key, found.value, origin)
        else:
            draft.missing(key, origin, found.why)


def _leaves(given: Iterable[tuple[str, ast.expr]], scope: Scope) -> Iterator[tuple[str, ast.expr]]:
    """Settings, a written-out dictionary as its entries: ``gradient_checkpointing_kwargs.use_reentrant``."""
    for key, value in given:
        inner = entries(value, scope)
        yield from ((f"{key}.{name}", leaf) for name, leaf in inner) if inner else [(key, value)]


def _adapter(calls: list[ast.Call], scope: Scope, draft: LaunchDraft) -> None:
    """Whether an adapter is trained; open where a helper of the framework decides it from the command line."""
    trainers = [call for call in calls if _is(call, TRAINERS)]
    given = [value for call in trainers for key, value in keywords(call, scope) if key == "peft_config"]
    if any(_is(call, ADAPTERS) for call in calls):
        draft.peft = True
    elif trainers and all(isinstance(value, ast.Constant) and value.value is None for value in given):
        draft.peft = False
