"""Conditions over a run's settings, in the language of rules: numbers, and besides them texts and switches."""

from __future__ import annotations

import ast

from grpo_watch.engine.expression import Compiler, Expression, Lookup, Truth, negation
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.errors import FilePlace

OFF = frozenset({"", "false", "no", "off", "none", "null", "0"})
"""What a switched-off setting reads as."""


def compile_settings(text: str, place: FilePlace | None = None) -> Expression:
    """Check and compile a condition over settings, such as ``deepspeed_stage == 2 and raw("loss_type") == "dapo"``.

    The same language over canonical settings; ``raw("key")`` is the framework's own setting. A setting alone is true
    if it is switched on, and one may be compared with a text by == and != (in lower case).

    Raises:
        RuleError: as ``compile_expression``.
    """
    compiler = _SettingsCompiler(text, place or FilePlace("<condition>", 1))
    root = compiler.truth(compiler.parse(), 1)
    return Expression(text, tuple(sorted(compiler.names)), root)


class _SettingsCompiler(Compiler):
    """Settings have texts and switches besides numbers."""

    known = frozenset(SETTINGS)

    def truth(self, node: ast.expr, depth: int) -> Truth:
        """A setting alone is a condition, too."""
        if isinstance(node, ast.Name | ast.Call) and (name := self._setting(node)) is not None:
            return switched_on(name)
        return super().truth(node, depth)

    def _comparison(self, node: ast.Compare, depth: int) -> Truth:
        match node:
            case ast.Compare(
                left=left, ops=[ast.Eq() | ast.NotEq() as operator], comparators=[ast.Constant(str(text))]
            ):
                name = self._setting(left)
                if name is None:
                    raise self._error(left, "only a setting is compared with a text")
                same = reads_as(name, text.lower())
                return same if isinstance(operator, ast.Eq) else negation(same)
        return super()._comparison(node, depth)

    def _setting(self, node: ast.expr) -> str | None:
        """The setting that the node names; None where it is something else."""
        if isinstance(node, ast.Name):
            return self._plain_name(node)
        is_raw = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "raw"
        return self._raw_name(node) if isinstance(node, ast.Call) and is_raw else None


def switched_on(name: str) -> Truth:
    """Whether a setting is on: any value but false, 0 and words for them."""

    def decide(lookup: Lookup) -> bool | None:
        value = lookup(name)
        if isinstance(value, str):
            return value.strip().lower() not in OFF
        return None if value is None else bool(value)

    return decide


def reads_as(name: str, text: str) -> Truth:
    """Whether a setting has this value in lower case."""

    def decide(lookup: Lookup) -> bool | None:
        value = lookup(name)
        return None if value is None else str(value).strip().lower() == text

    return decide
