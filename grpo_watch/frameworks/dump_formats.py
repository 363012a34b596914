"""The files to which frameworks write completions: ``DUMPS`` of a ``<framework>/dumps.py``, or ``keys.yaml``."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct

from grpo_watch.frameworks.framework import TableColumns
from grpo_watch.frameworks.framework_tables import contributions, frameworks


class DumpRow(NamedTuple):
    """One completion. ``group`` is its group's id (None: the prompt decides), ``rollout`` the id of the attempt.

    Of several rows with one ``group`` and ``rollout`` (an agent's turns) the one of the highest ``turn`` counts.
    """

    prompt: object
    completion: object
    rewards: Mapping[str, object]
    group: Hashable = None
    rollout: Hashable = None
    turn: int = 0


class RolloutDumps(Struct, frozen=True):
    """JSON-lines files, one per step.

    ``file`` matches a file's whole name, its first group is the step; with ``inner`` it matches a folder, and ``inner``
    is the file inside. ``keys`` are in every row. ``read`` gives the completions of one decoded line (none for padding,
    many for a line of columns). ``ordered``: there is no id, and the completions of a group follow each other in the
    file. ``evaluation`` decides from a folder's name and its steps whether evaluation is dumped there. ``measure``:
    there are no texts; it computes a row of numbers from a file's lines and the configured completion limit (None:
    unknown). ``attempts`` names the folder beside the file's own with all attempts of the step, if the file leaves out
    failed ones; ``failed`` says which attempts of a line failed.
    """

    framework: str
    file: re.Pattern[str]
    keys: frozenset[str]
    read: Callable[[Mapping[str, object]], Iterable[DumpRow]] = lambda row: ()  # noqa: ARG005
    ordered: bool = False
    inner: str = ""
    evaluation: Callable[[str, Iterable[int]], bool] = lambda name, steps: False  # noqa: ARG005
    measure: Callable[[Iterable[Mapping[str, Any]], float | None], Mapping[str, float | None]] | None = None
    attempts: str = ""
    failed: Callable[[Mapping[str, Any]], Iterable[bool]] = lambda row: ()  # noqa: ARG005

    @property
    def depth(self) -> int:
        """Folders between the one that holds all steps and a file."""
        return self.inner.count("/") + 1 if self.inner else 0

    def named(self, path: PurePath) -> re.Match[str] | None:
        """The match of ``file`` in a path that ends like one of these files; its first group is the step."""
        names = path.parts[-1 - self.depth :]
        return self.file.fullmatch(names[0]) if "/".join(names[1:]) == self.inner else None


ERRORS = "rollouts/errors"
"""Key of the share of a step's attempts that failed."""
NUMBERS = frozenset({int, float, type(None)})
"""Types of a decoded score; booleans are not scores."""


@cache
def rollout_dumps() -> tuple[RolloutDumps, ...]:
    """Every framework's dumps of rollouts."""
    return tuple(contributions("dumps", "DUMPS"))


@cache
def table_columns() -> TableColumns:
    """The column names of all frameworks' rows, merged."""
    found = [table.columns for table in frameworks().values() if table.columns is not None]
    lists = ("step", "prompt", "completion", "not_rewards")
    return TableColumns(
        per_generation=next(filter(None, (one.per_generation for one in found)), ""),
        **{name: tuple(dict.fromkeys(each for one in found for each in getattr(one, name))) for name in lists},
    )


def is_reward(name: str, column: Sequence[object]) -> bool:
    """Whether a column holds the values of a reward function, or the advantages: numbers and nulls only."""
    known = table_columns()
    others = {*known.not_rewards, *known.step, *known.prompt, *known.completion}
    return name not in others and NUMBERS.issuperset(map(type, column))


def parquet_dump(name: str) -> tuple[str, int] | None:
    """The framework and step of a Parquet dump (columns ``prompt`` and ``completion``) by its file name, or None."""
    found = ((table.name, table.parquet.fullmatch(name)) for table in frameworks().values() if table.parquet)
    return next(((framework, int(match[1])) for framework, match in found if match is not None), None)
