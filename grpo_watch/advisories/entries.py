"""Loads the advisories, which apply by ranges of versions and a checked condition over settings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from operator import eq, ge, gt, le, lt, ne, not_
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.engine.expression import RAW, Compiler, Expression, Lookup, Part, applied
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.errors import FilePlace, RuleError
from grpo_watch.shipped_yaml import shipped_yaml

VERSION = re.compile(
    r"v?(\d{1,6}(?:\.\d{1,6}){0,5})((?:[.\-_]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[.\-_]?\d{0,9}){0,3})"
    r"(?:[.\-_]?post\d{0,6})?(?:\+[\w.]{0,60})?"
)
CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
COMPARISONS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = MappingProxyType(
    {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
)


def in_range(affected: str, version: str) -> bool | None:
    """Whether a version is in a range (clauses joined by commas, all of which must hold); None if undecided.

    A pre-release of a bound (``3.12.0.dev0`` against ``<3.12``, as an installation from source reports itself) may or
    may not have the fix; so may a text that is no version, such as a commit.
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
    """The release without trailing zeros: 3.12 equals 3.12.0."""
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


OWN = re.compile(r'\braw\("([^"\n]+)"\)')
OFF = frozenset({"", "false", "no", "off", "none", "null", "0"})
"""Values of a switched-off setting."""


def compile_settings(text: str, place: FilePlace | None = None) -> Expression:
    """Check and compile a condition over settings, such as ``deepspeed_stage == 2 and raw("loss_type") == "dapo"``.

    The same language as for metrics, over canonical settings; ``raw("key")`` is the framework's own setting. A setting
    alone is true if it is switched on, and one may be compared with a text by == and != (in lower case).

    Raises:
        RuleError: as ``compile_expression``.
    """
    compiler = _SettingsCompiler(text, place or FilePlace("<condition>", 1))
    root = compiler.truth(compiler.parse(), 1)
    return Expression(text, tuple(sorted(compiler.names)), root)


class _SettingsCompiler(Compiler):
    """Compiles conditions whose values may also be texts and switches."""

    known = frozenset(SETTINGS)

    def truth(self, node: ast.expr, depth: int) -> Part:
        """The closure of a true-or-false part, which may be a setting alone."""
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


FOLDER = Path(__file__).parent
CHECK = "known-bug"
"""Name of the rule, and of preflight's check, that report advisories."""

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
Thread = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+/[\w.-]+(?:#\d+|@[0-9a-f]{7,40})$")]
Releases = Annotated[str, msgspec.Meta(pattern=r"^(?:(?:^|, *)(?:>=|<=|==|!=|>|<) *\d+(?:\.\d+)*)+$")]


class Advisory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One known bug.

    Attributes:
        id: ``GW-YYYY-NNNN``, never reused.
        package: the distribution that has the bug (``ms-swift``, ``deepspeed``).
        frameworks: whose runs can have it; empty: those of any framework.
        affected: versions as a PEP 440 range (``>=3.1,<3.12``).
        fixed: the release or commit that fixed it, or ``not yet``.
        when: a condition over settings, in the language of rules.
        severity: ``critical`` if the run learns nothing or the wrong thing, else ``warning``; ``info`` if the
            condition can't show that the bug occurs, so that it is only named as a cause.
        title: what goes wrong, in under 100 characters.
        wrong: the same in one or two sentences, with its size if known.
        shows: rules whose findings it explains; empty: nothing shows it.
        fix: what to do.
        threads: where it was reported and fixed (``owner/repository#number`` or ``@commit``).
        defaults: the affected versions' values of settings that a launch does not give.
        check: the name under which preflight reports it.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^GW-20\d\d-\d{4}$")]
    package: str
    frameworks: tuple[str, ...]
    affected: Releases
    fixed: Text
    when: str
    severity: Severity
    title: Text
    wrong: Text
    shows: tuple[str, ...]
    fix: Text
    threads: Annotated[tuple[Thread, ...], msgspec.Meta(min_length=1)]
    defaults: Mapping[str, bool | int | float | str] = {}
    check: str = CHECK

    def __post_init__(self) -> None:
        """Check the condition; raises ``RuleError`` if it is invalid."""
        _compiled(self.when)

    @property
    def condition(self) -> Expression:
        """The compiled condition."""
        return _compiled(self.when)

    def default(self, name: str) -> Scalar:
        """The value of a setting that a launch does not give; None if unknown."""
        return self.defaults.get(name.removeprefix(RAW))


@lru_cache(maxsize=1)
def advisories() -> tuple[Advisory, ...]:
    """All shipped advisories, by id."""
    found = [advisory for package in packages() for advisory in advisories_of(package)]
    return tuple(sorted(found, key=lambda advisory: advisory.id))


@cache
def advisories_of(package: str) -> tuple[Advisory, ...]:
    """The advisories of a package, reading its file only; empty if it has none."""
    return tuple(read_file(FOLDER / f"{package.replace('-', '_')}.yaml")) if package in packages() else ()


@lru_cache(maxsize=1)
def own_settings() -> frozenset[str]:
    """Frameworks' own settings that conditions name; sources keep these besides the canonical ones.

    Searches the text of the files: every run needs them, and parsing the files takes 20 times as long.
    """
    return frozenset(name for path in FOLDER.glob("*.yaml") for name in OWN.findall(path.read_text(encoding="utf-8")))


@lru_cache(maxsize=1)
def packages() -> frozenset[str]:
    """Packages whose versions matter: those with a file."""
    return frozenset(path.stem.replace("_", "-") for path in FOLDER.glob("*.yaml"))


def read_file(path: Path) -> list[Advisory]:
    """The advisories of one package.

    Raises:
        RuleError: a part is missing, unknown or malformed; with the file and the place in it.
    """
    raw = shipped_yaml(path)
    whole = [{"package": raw["package"], "frameworks": raw["frameworks"], **entry} for entry in raw["advisories"]]
    try:
        return msgspec.convert(whole, list[Advisory])
    except msgspec.ValidationError as error:
        raise RuleError(str(error), FilePlace(path.name, 1)) from None


@lru_cache(maxsize=512)
def _compiled(text: str) -> Expression:
    return compile_settings(text)
