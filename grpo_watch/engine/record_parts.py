"""Parts of records: groups of completions, how weights moved, an advisory that applies to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from types import MappingProxyType

from grpo_watch.engine.window import plain_sum


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group of G completions of one prompt.

    ``pattern`` numbers equal texts by first appearance, e.g. ``(0, 1, 2, 0, 1, 2)``; ``lengths`` are characters;
    ``rewards`` maps each reward function to its G values (None: not scored); ``prompts`` counts distinct prompts (1 in
    a healthy group); ``empty`` counts completions without text once special tokens are removed. ``near_unique`` counts
    different texts, with near copies as one; of the ``judged`` texts (long enough to tell) ``looping`` repeat
    themselves to the end and ``scattered`` mix many scripts (None: not examined). ``digest`` is a hash of the prompt
    and all texts: equal digests mean a re-dumped table. ``openings`` numbers equal beginnings of texts like
    ``pattern``; ``distinct`` is distinct-3 (different word triples as a share of all); ``marks`` are 32-bit hashes of
    the first 16 distinct texts, by their numbers in ``pattern``. ``shown`` holds the prompt's beginning and each of the
    first completions, redacted: empty unless the settings ask for a table of completions; never stored with the rows.
    """

    prompt_id: str
    size: int
    pattern: tuple[int, ...]
    unique: int
    lengths: tuple[int, ...]
    empty: int = 0
    prompts: int = 1
    near_unique: int | None = None
    judged: int | None = None
    looping: int = 0
    scattered: int = 0
    rewards: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    digest: str = ""
    example: str = ""
    openings: tuple[int, ...] = ()
    distinct: float | None = None
    marks: tuple[int, ...] = ()
    shown: tuple[str, ...] = ()


def without_texts(groups: tuple[GroupSummary, ...]) -> tuple[GroupSummary, ...]:
    """The groups without ``shown``, as they are stored."""
    return tuple([replace(group, shown=()) for group in groups]) if any(group.shown for group in groups) else groups


FRACTION = MappingProxyType({"BF16": 7, "F16": 10})
"""Fraction bits of the types whose resolution is near the size of an update."""


@dataclass(frozen=True, slots=True)
class Movement:
    """How weights moved since the previous checkpoint, on a sample of the changed tensors.

    ``counts`` holds, per binary exponent of the earlier values, how many weights have it and how many of them changed.
    """

    dtype: str
    tensors: int
    counts: tuple[tuple[int, int, int], ...]

    def step(self, exponent: int) -> float:
        """Distance between neighbouring values with this exponent."""
        return float(2.0 ** (exponent - FRACTION[self.dtype]))

    @property
    def typical(self) -> float:
        """Root mean square of the earlier values, each taken as the middle of its binade."""
        held = sum(count for _, count, _ in self.counts)
        return sqrt(plain_sum(count * (1.5 * 2.0**exponent) ** 2 for exponent, count, _ in self.counts) / max(1, held))

    def beyond(self, update: float) -> Movement:
        """The weights that rounding returns to their old value after an update of that size."""
        held = tuple(one for one in self.counts if self.step(one[0]) / 2 > update)
        return Movement(self.dtype, self.tensors, held)

    def expected(self, distance: float) -> float:
        """How many weights would have changed if each had moved by ``distance`` before rounding."""
        return plain_sum(count * min(1.0, distance / self.step(exponent)) for exponent, count, _ in self.counts)

    @property
    def elements(self) -> int:
        """Number of weights sampled."""
        return sum(count for _, count, _ in self.counts)

    @property
    def changed(self) -> int:
        """Number of sampled weights that changed."""
        return sum(moved for _, _, moved in self.counts)


@dataclass(frozen=True, slots=True)
class AdvisoryMet:
    """An advisory that applies to the run by the versions and settings read so far.

    ``given`` names the settings that meet its condition, ``shows`` the rules whose findings it explains; ``severity``
    is the advisory's. ``applies`` is False once something more exact was read that rules it out.
    """

    id: str
    package: str
    version: str
    severity: str
    title: str
    fix: str
    given: str
    shows: tuple[str, ...]
    applies: bool = True
