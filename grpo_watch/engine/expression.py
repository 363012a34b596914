"""Turns a rule's one-line ``when`` condition into a checked tree of closures that answers true, false or "no data".

The text is parsed with ``ast`` and every node is checked against a whitelist; Python itself never evaluates it.

Missing data follows Kleene's logic. A comparison is undecided (None) when one of its operands is missing, null, NaN or
a division by zero. ``and`` is false as soon as one operand is false, true only when all are true, and undecided
otherwise; ``or`` mirrors it; ``not`` of an undecided operand is undecided. So a decided operand decides only where the
missing ones could not change the answer.
"""

from __future__ import annotations

import ast
import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, eq, ge, gt, le, lt, mod, mul, ne, neg, not_, sub, truediv
from types import MappingProxyType
from typing import Any, TypeAlias

from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, no_data
from grpo_watch.engine.metric_names import LABELLED, METRICS, labelled, split_label
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Stream, Verdict
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import FilePlace, RuleError


class ConditionDetector(Detector):
    """Breaches at every row for which the condition holds; no data if the row lacks a metric of it.

    In a condition on training metrics, a held-out score is that of the newest evaluation.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.expression: Expression = compile_expression(rule.when or "")
        self.text = rule.when or ""
        self.metrics = frozenset(self.expression.names) - {"step", "max_steps"}
        held_out = bool(self.metrics) and all(split_label(name)[0] == "eval_score" for name in self.metrics)
        self.stream = Stream.EVAL if held_out else Stream.TRAIN  # type: ignore[misc]  # each condition's own

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Evaluate the condition on one row; silent on a row that only adds other metrics."""
        if record.supplement and self.metrics.isdisjoint(record.values):
            return SILENT

        def look_up(name: str) -> float | None:
            if name == "step":
                return float(record.step)
            if name == "max_steps":
                return None if run.max_steps is None else float(run.max_steps)
            if name.startswith("raw:"):
                return record.raw.get(name[4:])
            newest = run.values if name.startswith("eval_score[") else record.values
            return newest.get(name)

        holds = self.expression.evaluate(look_up)
        if holds is None:
            return no_data(f"not every metric of `{self.text}` is logged")
        if not holds:
            return QUIET
        evidence = {name: look_up(name) for name in sorted(self.expression.names)}
        return (Reading(Verdict.BREACH, message=self.text, evidence=evidence),)


MAX_LENGTH = 500
MAX_DEPTH = 20

RAW = "raw:"
"""Prefix of names that stand for a framework's own, unmapped key: ``raw("train/foo")`` needs ``raw:train/foo``."""

NAMES = frozenset(METRICS) | {"step", "max_steps"}


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled condition; ``names`` are the values it needs, sorted (``raw:<key>`` for framework keys)."""

    text: str
    names: tuple[str, ...]
    _root: Part = field(repr=False, compare=False)

    def evaluate(self, lookup: Lookup) -> bool | None:
        """Whether the condition holds; None if missing values leave it undecided."""
        holds: bool | None = self._root(lookup)
        return holds


def compile_expression(text: str, place: FilePlace | None = None) -> Expression:
    """Check and compile a condition such as ``reward_mean < 0.1 and step > 200``.

    Args:
        text: at most 500 characters. Comparisons, ``and or not``, ``+ - * / %``, numbers, canonical metric names,
            ``step``, ``max_steps``, ``abs() min() max()``, ``raw("key")`` and ``reward_function_mean["function"]``.
        place: where the text begins in the user's file; columns in errors count from there.

    Raises:
        RuleError: with ``file:line:column`` and, for a misspelt name, the nearest known one.
    """
    compiler = Compiler(text, place or FilePlace("<expression>", 1))
    root = compiler.truth(compiler.parse(), 1)
    return Expression(text, tuple(sorted(compiler.names)), root)


class Compiler:
    """Turns the parsed text into closures; ``names`` are the values that they need."""

    known = NAMES

    def __init__(self, text: str, place: FilePlace) -> None:
        self.text, self.place = text, place
        self.names: set[str] = set()
        self.line = text.replace("\r", " ").replace("\n", " ")
        self.lead = len(self.line) - len(self.line.lstrip())

    def parse(self) -> ast.expr:
        """Parse the text into Python's syntax tree."""
        if len(self.text) > MAX_LENGTH:
            raise RuleError(f"the condition has {len(self.text)} characters; {MAX_LENGTH} are the limit", self.place)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the parser's style warnings (`1and 2`) concern Python programs
                return ast.parse(self.line.strip(), mode="eval").body
        except SyntaxError as error:
            raise RuleError(f"not a condition: {error.msg}", self._at((error.offset or 1) - 1)) from None
        except (ValueError, MemoryError, RecursionError):
            raise RuleError("not a condition: nested too deeply or not plain text", self.place) from None

    def truth(self, node: ast.expr, depth: int) -> Part:
        """The closure of a true-or-false part."""
        self._check_depth(node, depth)
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth)
        if isinstance(node, ast.BoolOp):
            return first_decided(isinstance(node.op, ast.Or), [self.truth(part, depth + 1) for part in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return applied(not_, self.truth(node.operand, depth + 1))
        if isinstance(node, ast.Constant | ast.Name | ast.BinOp | ast.Subscript | ast.Call | ast.UnaryOp):
            self.number(node, depth)  # its own errors (an unknown name) come first
            raise self._error(node, "a number is not a condition", "compare it, e.g. `reward_mean < 0.1`")
        raise self._refused(node)

    def number(self, node: ast.expr, depth: int) -> Part:
        """The closure of a numeric part."""
        self._check_depth(node, depth)
        match node:
            case ast.Constant():
                value = self._literal(node)
                return lambda _: value
            case ast.Name():
                return named(self._plain_name(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return applied(neg, self.number(operand, depth + 1))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
                operands = (self.number(left, depth + 1), self.number(right, depth + 1))
                return applied(ARITHMETIC[type(operator)], *operands)
            case ast.Subscript():
                return named(self._labelled_name(node))
            case ast.Call():
                return self._call(node, depth)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                raise self._error(node, "a condition can't be used as a number")
        raise self._refused(node)

    def _comparison(self, node: ast.Compare, depth: int) -> Part:
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            if type(operator) not in COMPARISONS:
                raise self._error(operand, "only < <= > >= == != compare")
        operands = [self.number(operand, depth + 1) for operand in (node.left, *node.comparators)]
        pairs = [
            applied(COMPARISONS[type(operator)], left, right)
            for operator, left, right in zip(node.ops, operands, operands[1:], strict=False)
        ]
        return first_decided(False, pairs)

    def _call(self, node: ast.Call, depth: int) -> Part:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function == "raw":
            return named(self._raw_name(node))
        if function not in FUNCTIONS:
            called = repr(function) if function else "this call"
            raise self._error(node, f"{called} can't be called", "abs, min, max and raw can")
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._error(node, f"{function}() takes plain numbers only")
        compute, fewest, most = FUNCTIONS[function]
        if len(node.args) < fewest or (most is not None and len(node.args) > most):
            wanted = "one number" if most == 1 else "two or more numbers"
            raise self._error(node, f"{function}() takes {wanted}, not {len(node.args)}")
        return applied(compute, *(self.number(argument, depth + 1) for argument in node.args))

    def _literal(self, node: ast.Constant) -> float:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self._error(node, f"{node.value!r} is not a number")
        try:
            value = float(node.value)
        except OverflowError:
            value = float("inf")
        if value == float("inf"):
            raise self._error(node, "the number is too large")
        return value

    def _plain_name(self, node: ast.Name) -> str:
        if node.id in LABELLED:
            raise self._error(node, f"{node.id} is logged per reward function", f'write {node.id}["name"]')
        if node.id not in self.known:
            raise self._unknown(node, node.id, self.known)
        return self._needed(node.id)

    def _labelled_name(self, node: ast.Subscript) -> str:
        label = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(node.value, ast.Name) or not isinstance(label, str):
            raise self._error(node, "brackets hold a quoted name", f'e.g. {min(LABELLED)}["accuracy"]')
        if node.value.id not in LABELLED:
            raise self._unknown(node, node.value.id, LABELLED)
        return self._needed(labelled(node.value.id, label))

    def _raw_name(self, node: ast.Call) -> str:
        match node.args:
            case [ast.Constant(value=str(key))] if key and not node.keywords:
                return self._needed(RAW + key)
        raise self._error(node, "raw() takes one quoted key", 'e.g. raw("train/my_metric")')

    def _needed(self, name: str) -> str:
        self.names.add(name)
        return name

    def _check_depth(self, node: ast.expr, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(node, f"nested more than {MAX_DEPTH} levels deep")

    def _unknown(self, node: ast.expr, name: str, known: frozenset[str]) -> RuleError:
        near = difflib.get_close_matches(name, sorted(known), 1)
        what = "name" if known is self.known else "metric per reward function"
        return self._error(node, f"unknown {what} {name!r}", f"did you mean {near[0]}?" if near else None)

    def _refused(self, node: ast.expr) -> RuleError:
        return self._error(node, "only comparisons, and/or/not, + - * / %, numbers and metric names are allowed")

    def _error(self, node: ast.expr, message: str, fix: str | None = None) -> RuleError:
        before = self.line.strip().encode()[: node.col_offset]  # ast counts UTF-8 bytes
        return RuleError(message, self._at(len(before.decode(errors="ignore"))), fix)

    def _at(self, offset: int) -> FilePlace:
        column = (self.place.column or 1) + self.lead + offset
        return FilePlace(self.place.file, self.place.line, column)


Lookup: TypeAlias = Callable[[str], Scalar]
"""Gives the newest value of a name, or None."""

Part: TypeAlias = Callable[[Lookup], Any]
"""Evaluates a part of a condition to a number or a truth value; None if missing values leave it undecided."""


def named(name: str) -> Part:
    """The looked-up value of a name; NaN and texts that are no number count as missing."""

    def look_up(lookup: Lookup) -> float | None:
        value = lookup(name)
        if isinstance(value, str):
            value = _number(value)
        return None if value is None or value != value else value  # noqa: PLR0124  NaN differs from itself

    return look_up


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def applied(compute: Callable[..., Any], *operands: Part) -> Part:
    """A function of the operands; None if one is missing or the result is not a number."""

    def apply(lookup: Lookup) -> Any:
        values = [operand(lookup) for operand in operands]
        if None in values:
            return None
        try:
            result = compute(*values)
        except ZeroDivisionError:
            return None
        return None if result != result else result  # noqa: PLR0124  inf - inf

    return apply


def first_decided(decisive: bool, operands: Sequence[Part]) -> Part:  # noqa: FBT001
    """``or`` over the operands if ``decisive`` is True, ``and`` if it is False."""

    def decide(lookup: Lookup) -> bool | None:
        undecided = False
        for operand in operands:
            value: bool | None = operand(lookup)
            if value is decisive:
                return decisive
            undecided = undecided or value is None
        return None if undecided else not decisive

    return decide


COMPARISONS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = MappingProxyType(
    {ast.Lt: lt, ast.LtE: le, ast.Gt: gt, ast.GtE: ge, ast.Eq: eq, ast.NotEq: ne}
)
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = MappingProxyType(
    {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv, ast.Mod: mod}
)
FUNCTIONS: Mapping[str, tuple[Callable[..., float], int, int | None]] = MappingProxyType(
    {"abs": (abs, 1, 1), "min": (min, 2, None), "max": (max, 2, None)}
)
