"""Loads the advisories, each with its checked condition; a file that lacks a part is refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec

from grpo_watch.advisories.condition import compile_settings
from grpo_watch.engine.expression import RAW, Expression
from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.errors import FilePlace, RuleError
from grpo_watch.shipped_yaml import shipped_yaml

FOLDER = Path(__file__).parent
CHECK = "known-bug"
"""The rule, and the check of preflight, that reports an advisory."""

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
Thread = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+/[\w.-]+(?:#\d+|@[0-9a-f]{7,40})$")]
Releases = Annotated[str, msgspec.Meta(pattern=r"^(?:(?:^|, *)(?:>=|<=|==|!=|>|<) *\d+(?:\.\d+)*)+$")]


class Advisory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One known bug.

    Attributes:
        id: ``GW-YYYY-NNNN``, never used for another one.
        package: the distribution that has the bug (``ms-swift``, ``deepspeed``).
        frameworks: whose runs can have it; empty: those of any framework.
        affected: versions as a PEP 440 range (``>=3.1,<3.12``).
        fixed: the release or commit that fixed it, or ``not yet``.
        when: a condition over settings, in the language of rules.
        severity: ``critical`` where the run learns nothing or the wrong thing, else ``warning``; ``info`` where the
            condition can't say that the bug shows, so that it is only named as a cause.
        title: what goes wrong, in under 100 characters.
        wrong: the same in one or two sentences, with its size where it is known.
        shows: rules whose findings it explains; empty: nothing shows it.
        fix: what to do.
        threads: where it was reported and fixed (``owner/repository#number`` or ``@commit``).
        defaults: settings that the affected versions have where a launch does not give them.
        check: under which name preflight reports it.
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
        """Refuse a condition that is none; raises ``RuleError``."""
        _compiled(self.when)

    @property
    def condition(self) -> Expression:
        """The compiled condition."""
        return _compiled(self.when)

    def default(self, name: str) -> Scalar:
        """What a setting is where a launch does not give it; None where that is not known."""
        return self.defaults.get(name.removeprefix(RAW))


@lru_cache(maxsize=1)
def advisories() -> tuple[Advisory, ...]:
    """All shipped advisories, by id."""
    found = [advisory for path in sorted(FOLDER.glob("*.yaml")) for advisory in read_file(path)]
    return tuple(sorted(found, key=lambda advisory: advisory.id))


@lru_cache(maxsize=1)
def own_settings() -> frozenset[str]:
    """Frameworks' own settings that conditions name; sources keep these besides the canonical ones."""
    needed = (name for advisory in advisories() for name in advisory.condition.names)
    return frozenset(name.removeprefix(RAW) for name in needed if name.startswith(RAW))


@lru_cache(maxsize=1)
def packages() -> frozenset[str]:
    """Packages whose versions matter."""
    return frozenset(advisory.package for advisory in advisories())


def read_file(path: Path) -> list[Advisory]:
    """The advisories of one package.

    Raises:
        RuleError: a part is missing, is not known or is malformed; with the file and the place in it.
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
