"""Version ranges as PEP 440 writes them, as far as advisories need them: ``>=3.1,<3.12``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType

VERSION = re.compile(
    r"v?(\d{1,6}(?:\.\d{1,6}){0,5})((?:[.\-_]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[.\-_]?\d{0,9}){0,3})"
    r"(?:[.\-_]?post\d{0,6})?(?:\+[\w.]{0,60})?"
)
CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
COMPARISONS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = MappingProxyType(
    {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
)


@dataclass(frozen=True)
class VersionRange:
    """Clauses joined by commas, all of which must hold."""

    text: str

    @cached_property
    def bounds(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Each clause as its comparison and release.

        Raises:
            ValueError: a clause is none, or names no plain release.
        """
        clauses = [clause.strip() for clause in self.text.split(",")]
        found = [CLAUSE.fullmatch(clause) for clause in clauses]
        if None in found:
            raise ValueError(f"affected {self.text!r}: write a range of releases, e.g. '>=3.1,<3.12'")
        return tuple((match[1], _numbers(match[2])) for match in found if match is not None)

    def holds(self, version: str) -> bool | None:
        """Whether a version is in the range; None where that is not known.

        A pre-release of a bound (``3.12.0.dev0`` against ``<3.12``, as an installation from source reports itself) may
        have the fix or not. So may a text that is no version, such as a commit.
        """
        parsed = VERSION.fullmatch(version.strip())
        if parsed is None:
            return None
        release, early = _numbers(parsed[1]), bool(parsed[2])
        if early and any(release == bound for _, bound in self.bounds):
            return None
        return all(COMPARISONS[operator](release, bound) for operator, bound in self.bounds)


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    """The release without zeros at its end: 3.12 is 3.12.0."""
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
