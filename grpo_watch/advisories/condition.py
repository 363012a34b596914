"""When an advisory applies: ranges of versions, and conditions over settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne, not_
from types import MappingProxyType

from grpo_watch.engine.expression import Compiler, Expression, Lookup, Part, applied
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.errors import FilePlace

VERSION = re.compile(
    r"v?(\d{1,6}(?:\.\d{1,6}){0,5})((?:[.\-_]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[.\-_]?\d{0,9}){0,3})"
    r"(?:[.\-_]?post\d{0,6})?(?:\+[\w.]{0,60})?"
)
CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
COMPARISONS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = MappingProxyType(
    {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
)


def in_range(affected: str, version: str) -> bool | None:
    """Whether a version is in a range (clauses joined by commas, all of which must hold); None where that is not known.

    A pre-release of a bound (``3.12.0.dev0`` against ``<3.12``, as an installation from source reports itself) may
    have the fix or not. So may a text that is no version, such as a commit.
    """
    parsed = VERSION.fullmatch(version.strip())
    if parsed is None:
        return None
    release, early = _numbers(parsed[1]), bool(parsed[2])
    bounds = [(clause[1], _numbers(clause[2])) for clause in CLAUSE.finditer(affected)]
    if early and any(release == bound for _, bound in bounds):
        return None
    return all(COMPARISONS[operator](release, bound) for operator, bound in bounds)


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    """The release without zeros at its end: 3.12 is 3.12.0."""
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


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

    def truth(self, node: ast.expr, depth: int) -> Part:
        """A setting alone is a condition, too."""
        if isinstance(node, ast.Name | ast.Call) and (name := self._setting(node)) is not None:
            return switched_on(name)
        return super().truth(node, depth)

    def _comparison(self, node: ast.Compare, depth: int) -> Part:
        match node:
            case ast.Compare(
                left=left, ops=[ast.Eq() | ast.NotEq() as operator], comparators=[ast.Constant(str(text))]
            ):
                name = self._setting(left)
                if name is None:
                    raise self._error(left, "only a setting is compared with a text")
                same = reads_as(name, text.lower())
                return same if isinstance(operator, ast.Eq) else applied(not_, same)
        return super()._comparison(node, depth)

    def _setting(self, node: ast.expr) -> str | None:
        """The setting that the node names; None where it is something else."""
        if isinstance(node, ast.Name):
            return self._plain_name(node)
        is_raw = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "raw"
        return self._raw_name(node) if isinstance(node, ast.Call) and is_raw else None


def switched_on(name: str) -> Part:
    """Whether a setting is on: any value but false, 0 and words for them."""

    def decide(lookup: Lookup) -> bool | None:
        value = lookup(name)
        if isinstance(value, str):
            return value.strip().lower() not in OFF
        return None if value is None else bool(value)

    return decide


def reads_as(name: str, text: str) -> Part:
    """Whether a setting has this value in lower case."""

    def decide(lookup: Lookup) -> bool | None:
        value = lookup(name)
        return None if value is None else str(value).strip().lower() == text

    return decide
