"""Finds conditions that can never hold, or always hold, from what each metric can be and how the numbers compare.

Every name starts with the interval of values it can have (a ratio lies between 0 and 1); each comparison narrows it.
What is not understood (such as a difference of two metrics) is taken as possible, so a complaint is always right.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from grpo_watch.engine.metric_names import METRICS
from grpo_watch.errors import FilePlace, RuleError


class NumberInterval(NamedTuple):
    """All numbers from ``low`` to ``high``, both included; strict bounds are the neighbouring float."""

    low: float
    high: float


Known: TypeAlias = "Mapping[str, NumberInterval]"
"""What is known of each name's value, by the text of the name."""

ANY = NumberInterval(-math.inf, math.inf)
NOT_NEGATIVE = NumberInterval(0.0, math.inf)
SHARE = NumberInterval(0.0, 1.0)
_SHARES = frozenset(
    {"effective_sample_rollout", "probability_gap_rollout"} | {name for name in METRICS if name.endswith("_ratio")}
)
_NOT_NEGATIVE = frozenset(
    {"entropy", "grad_norm", "learning_rate", "memory_gib", "tokens_seen", "epoch", "step", "max_steps", "kl_rollout"}
    | {name for name in METRICS if name.endswith("_std") or name.startswith(("completion_length", "step_seconds"))}
)
_NEGATED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


def domain(name: str) -> NumberInterval:
    """The values that a name (``raw("x")`` and labelled metrics included) can have."""
    if name in _SHARES:
        return SHARE
    return NOT_NEGATIVE if name.partition("[")[0] in _NOT_NEGATIVE else ANY


def problems_of(text: str, place: FilePlace) -> list[RuleError]:
    """What is wrong with the sense of a condition that compiles; ``place`` is where its text begins."""
    line = text.replace("\r", " ").replace("\n", " ")
    lead = len(line) - len(line.lstrip())
    body = line.strip()
    root = ast.parse(body, mode="eval").body

    def at(node: ast.expr) -> FilePlace:
        offset = len(body.encode()[: node.col_offset].decode(errors="ignore"))
        return FilePlace(place.file, place.line, (place.column or 1) + lead + offset)

    if _narrowed(root, {}, wanted=True) is None:
        node = _culprit(root)
        return [RuleError(f"`{ast.unparse(node)}` can never hold", at(node), _why(node))]
    if _narrowed(root, {}, wanted=False) is None:
        return [RuleError("the condition always holds", at(root), _why(root))]
    dead = [node for node in _branches(root) if _narrowed(node, {}, wanted=True) is None]
    return [RuleError(f"`{ast.unparse(node)}` can never hold", at(node), _why(node)) for node in dead]


def _branches(root: ast.expr) -> list[ast.expr]:
    return [
        branch
        for node in ast.walk(root)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
        for branch in node.values
    ]


def _culprit(root: ast.expr) -> ast.expr:
    """The smallest part that can't hold by itself; the whole where only its parts together can't."""
    if isinstance(root, ast.BoolOp):
        for part in root.values:
            if _narrowed(part, {}, wanted=True) is None:
                return _culprit(part)
    return root


def _why(node: ast.expr) -> str | None:
    names = sorted({ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.Name)} & set(METRICS))
    if isinstance(node, ast.Compare) and len(names) == 1:
        low, high = domain(names[0])
        if low == 0.0:
            return f"{names[0]} is {'between 0 and 1' if high == 1.0 else 'never negative'}"
    return None


def _narrowed(node: ast.expr, known: Known, *, wanted: bool) -> Known | None:
    """What is known once the node has the wanted truth; None where it can't have it."""
    if isinstance(node, ast.UnaryOp):
        return _narrowed(node.operand, known, wanted=not wanted)
    if isinstance(node, ast.BoolOp):
        if isinstance(node.op, ast.And) is wanted:
            return _all(node.values, known, wanted=wanted)
        return known if any(_narrowed(part, known, wanted=wanted) is not None for part in node.values) else None
    if not isinstance(node, ast.Compare) or (len(node.ops) > 1 and not wanted):
        return known
    sides = [node.left, *node.comparators]
    for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
        kind = type(operator) if wanted else _NEGATED[type(operator)]
        narrowed = _compared(left, kind, right, known)
        if narrowed is None:
            return None
        known = narrowed
    return known


def _all(parts: list[ast.expr], known: Known, *, wanted: bool) -> Known | None:
    for part in parts:
        narrowed = _narrowed(part, known, wanted=wanted)
        if narrowed is None:
            return None
        known = narrowed
    return known


def _compared(left: ast.expr, kind: type[ast.cmpop], right: ast.expr, known: Known) -> Known | None:
    first, second = _interval(left, known), _interval(right, known)
    for node, own, operator, other in ((left, first, kind, second), (right, second, _MIRRORED[kind], first)):
        narrowed = _bounded(own, operator, other)
        if narrowed is None:
            return None
        if isinstance(node, ast.Name | ast.Subscript):
            known = {**known, ast.unparse(node): narrowed}
    return known


def _bounded(own: NumberInterval, kind: type[ast.cmpop], other: NumberInterval) -> NumberInterval | None:
    """What is left of ``own`` when it compares so with something in ``other``; None where nothing is."""
    if kind is ast.NotEq:
        return None if own.low == own.high == other.low == other.high else own
    low, high = own
    if kind in {ast.Lt, ast.LtE, ast.Eq}:
        high = min(high, math.nextafter(other.high, -math.inf) if kind is ast.Lt else other.high)
    if kind in {ast.Gt, ast.GtE, ast.Eq}:
        low = max(low, math.nextafter(other.low, math.inf) if kind is ast.Gt else other.low)
    return NumberInterval(low, high) if low <= high else None


def _interval(node: ast.expr, known: Known) -> NumberInterval:
    """The values that an expression of numbers can have."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return NumberInterval(float(node.value), float(node.value))
    if isinstance(node, ast.Name | ast.Subscript):
        name = ast.unparse(node)
        return known.get(name, domain(name))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        low, high = _interval(node.operand, known)
        return NumberInterval(-high, -low)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _interval(node.left, known), _interval(node.right, known)
        if isinstance(node.op, ast.Sub):
            right = NumberInterval(-right.high, -right.low)
        return _or_any(left.low + right.low, left.high + right.high)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _FUNCTIONS[node.func.id]([_interval(each, known) for each in node.args])
    return ANY


def _or_any(low: float, high: float) -> NumberInterval:
    return ANY if low != low or high != high else NumberInterval(low, high)  # noqa: PLR0124  NaN differs from itself


def _absolute(parts: list[NumberInterval]) -> NumberInterval:
    low, high = parts[0]
    nearest = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    return NumberInterval(nearest, max(abs(low), abs(high)))


_FUNCTIONS: Mapping[str, Callable[[list[NumberInterval]], NumberInterval]] = {
    "abs": _absolute,
    "min": lambda parts: NumberInterval(min(part.low for part in parts), min(part.high for part in parts)),
    "max": lambda parts: NumberInterval(max(part.low for part in parts), max(part.high for part in parts)),
}
