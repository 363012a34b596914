"""Reads a Python training script as text: its configuration calls and its trainer; never runs it."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from grpo_watch.errors import SourceError
from grpo_watch.frameworks.launches import launch_facts
from grpo_watch.preflight.inputs.draft import LaunchDraft, read_text, typed
from grpo_watch.preflight.inputs.flags import Flag
from grpo_watch.preflight.inputs.python_values import PythonValue, Scope, called, evaluate, keywords

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
