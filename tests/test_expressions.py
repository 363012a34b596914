"""Every regular expression of the program takes steps in proportion to the text, whatever the text is.

The steps are counted by a matcher that tries as Python's does, on texts that are made from the expression: no time is
measured. Lines are cut before they are matched (``sources/files/line_splitter.py``), so that this bounds a poll.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.launches import launch_facts
from tests.support.backtracking import CAP, LENGTH, Matcher, TooManyError, attacks, tree

ROOT = Path(__file__).parents[1]
NOT_OURS = {"_rules", "lazy_re.py"}  # where expressions of others are compiled
MODULES = {
    path: path.read_text()
    for path in sorted((ROOT / "grpo_watch").rglob("*.py"))
    if not NOT_OURS.intersection(path.parts)
}
"""The program's modules and their texts, read once: each expression's uses are looked up in all of them."""
ANCHORED = {"match", "fullmatch"}
ALL = {*ANCHORED, "search", "sub", "subn", "split", "findall", "finditer", "compile"}
A_STEP, ONCE = 8 * CAP, 500
"""Steps for each character that an expression may take: less than ``CAP`` squared, and than half of ``LENGTH``."""


@dataclass(frozen=True)
class Expression:
    place: str
    pattern: str | bytes
    flags: int
    anchored: bool


def expressions() -> Iterator[Expression]:
    """Each call of ``re`` in the program, with its pattern worked out; names that a function has stand for words."""
    for path, text in MODULES.items():
        if "re." not in text:
            continue
        nodes, name = list(ast.walk(ast.parse(text))), ".".join(path.relative_to(ROOT).with_suffix("").parts)
        calls = [node for node in nodes if isinstance(node, ast.Call) and _of_re(node)]
        if not calls:
            continue
        module = importlib.import_module(name.removesuffix(".__init__"))
        names = {id(node.value): node.targets[0] for node in nodes if isinstance(node, ast.Assign)}
        for call in calls:
            yield _expression(call, module, names.get(id(call)), f"{path.relative_to(ROOT)}:{call.lineno}")


def _of_re(node: ast.Call) -> bool:
    called = node.func
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "re"
        and called.attr in ALL
    )


class Words(dict[str, Any]):
    """Names of a module, and words for those that only its functions know."""

    def __missing__(self, name: str) -> Any:
        return getattr(__import__("builtins"), name, "name")


def _expression(call: ast.Call, module: Any, target: ast.AST | None, place: str) -> Expression:
    names = Words(vars(module))
    given = [call.args[0], *[each.value for each in call.keywords if each.arg == "flags"]]
    if call.func.attr == "compile" and len(call.args) > 1:  # type: ignore[attr-defined]
        given.append(call.args[1])
    name = target.id if isinstance(target, ast.Name) else ""
    made = getattr(module, name, None) if name else None
    pattern, *flags = [made.pattern, made.flags] if hasattr(made, "pattern") else [_value(e, names) for e in given]
    how = _uses(name, module) if call.func.attr == "compile" else {call.func.attr}  # type: ignore[attr-defined]
    anchored = (bool(how) and how <= ANCHORED) or place.partition(":")[0] in ELSEWHERE
    return Expression(place, pattern, int(flags[0]) if flags else 0, anchored)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    source = ast.unparse(node)
    return COMPUTED[source] if source in COMPUTED else eval(source, {}, names)  # noqa: S307  our own source


def _uses(name: str, module: Any) -> set[str]:
    """How the program uses a pattern of this name, in any module that has it."""
    found: set[str] = set()
    for path, text in MODULES.items() if name else ():
        if name not in text:
            continue
        if path == Path(module.__file__) or re.search(rf"import [^\n]*(?:\([^)]*)?\b{name}\b", text):
            found |= set(re.findall(rf"\b{name}\.(\w+)", text)) - {"pattern"}
    return found


def patterns(value: Any, kind: type) -> Iterator[re.Pattern[Any]]:
    """The expressions in a data file, wherever they stand in it."""
    if isinstance(value, re.Pattern):
        yield from [value] if isinstance(value.pattern, kind) else []
    elif isinstance(value, msgspec.Struct):
        yield from (each for name in value.__struct_fields__ for each in patterns(getattr(value, name), kind))
    elif isinstance(value, tuple):
        yield from (each for inner in value for each in patterns(inner, kind))


COMPUTED = {
    "text.encode()": b"|".join(each.pattern for table in frameworks().values() for each in patterns(table, bytes)),
    "text": "|".join(each.pattern for table in frameworks().values() for each in patterns(table, str)),
    "self.file_name": "|".join(launch.file_name for launch in launch_facts().values() if launch.file_name),
    "facts.program.modules": "|".join(each.program.modules for each in launch_facts().values() if each.program.modules),
    "'|'.join(['grpo', *words]).encode()": b"grpo|trl|verl|swift",
    "b'|'.join((re.escape(mark) for reader in self._readers for mark in reader.marks))": rb"step:|Global step ",
}
"""What is made from more than names; with something like it."""
ELSEWHERE = {
    "grpo_watch/config/document.py": "a resolver of PyYAML, which calls match()",
    "grpo_watch/preflight/inputs/program.py": "names of programs, of which 500 characters are looked at",
}
"""Modules whose expressions are used at the beginning of a text only, or on a short one, and why that does not show."""
FOUND = list(expressions())


def test_they_are_all_found() -> None:
    """A grep finds no more calls than were looked at."""
    assert len(FOUND) > 200
    calls = sum(len(re.findall(rf"\bre\.(?:{'|'.join(ALL)})\(", text)) for text in MODULES.values())
    assert len(FOUND) == calls
    for each in FOUND:
        re.compile(each.pattern, each.flags)


@pytest.mark.slow
@pytest.mark.parametrize("each", FOUND, ids=lambda each: each.place)
def test_steps_are_in_proportion_to_the_text(each: Expression) -> None:
    parsed = tree(each.pattern, each.flags)
    for text in attacks(parsed):
        matcher = Matcher(parsed, A_STEP * len(text) + ONCE)
        try:
            matcher.cost(text, anchored=each.anchored)
        except TooManyError:
            pytest.fail(f"{each.pattern!r} takes over {A_STEP} steps for each character of {text[:60]!r}…")


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+b", r"(a|a)*b", r"\s+$", r"a*a*b", r"[\w.]{1,60}[\w-]{1,60}=", r"(?:\d+,?)+x", r"x.*y.*z", r"\d+(?=x)"],
)
def test_expressions_that_are_not_linear_are_caught(pattern: str) -> None:
    parsed = tree(pattern)

    def attacked() -> None:
        for text in attacks(parsed):
            Matcher(parsed, A_STEP * len(text) + ONCE).cost(text, anchored=False)

    with pytest.raises(TooManyError):
        attacked()


@pytest.mark.parametrize("pattern", [r"\d{1,20}x", r"[^|]{0,200}\|", r"\bStep (\d{1,9}): ", r"a|b|c", r"'[^']*'?"])
def test_expressions_that_are_linear_pass(pattern: str) -> None:
    parsed = tree(pattern)
    for text in attacks(parsed):
        assert Matcher(parsed, A_STEP * len(text) + ONCE).cost(text, anchored=False) > LENGTH // 4


@pytest.mark.parametrize("text", ["", "a1b22", "ab=cd", "x.y.z", "  12 3", "'a' 'b", "aaaa"])
@pytest.mark.parametrize("pattern", [r"\d+", r"(\w)(?==)", r"a{2}|b", r"(?<=a)b", r"'[^']*'", r"\b\w", r"^a*?b?$"])
def test_the_matcher_matches_as_python_does(pattern: str, text: str) -> None:
    ends: list[int] = []
    matcher = Matcher(tree(pattern), 10_000)
    matcher.text = text
    found = [start for start in range(len(text) + 1) if matcher.root(start, lambda end: not ends.append(end))]
    wanted = [start for start in range(len(text) + 1) if re.compile(pattern).match(text, start)]
    assert found == [start for start in wanted if not pattern.startswith("^") or start == 0]
