"""The layout of equal texts inside the groups of one generation batch, and whether such groups still teach."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

from grpo_watch.engine.records import CompletionSummary, GroupSummary, Scalar
from grpo_watch.engine.reward_functions import contradicted, names_of
from grpo_watch.engine.window import plain_sum


def shown(groups: Iterable[GroupSummary]) -> Mapping[str, Scalar]:
    """The first excerpt of the groups as evidence: at most 80 characters, secrets masked when it was read."""
    example = next((group.example for group in groups if group.example), "")
    return {"example": example} if example else {}


GROUPS_FOR_IRREGULAR = 3
"""Two groups of a collapsed policy were seen to share an irregular pattern by chance (TRL 1.16.0); three were not."""
CHARACTERS = 4.0
"""Characters per token, rather more than usual: fewer tokens are weaker proof."""
SURPRISE = 30.0
"""Nats of surprise from which copies in two groups or more are no chance (1e-13); counts half of the mean entropy."""

PAIR = 2
"""Least number of groups; a single one may be an odd prompt."""


class CopyLayout(str, Enum):
    """The layout of a group's copies."""

    DISTINCT = "distinct"
    STRIDE = "stride"
    ROUND_ROBIN = "round-robin"
    ONE_TEXT = "one text"
    IRREGULAR = "irregular"


ORDERLY = frozenset({CopyLayout.STRIDE, CopyLayout.ROUND_ROBIN})
"""How ranks and engines with one seed lay out copies of whole texts."""


def layout(pattern: tuple[int, ...]) -> CopyLayout:
    """The layout of a pattern that numbers equal texts by first appearance.

    ``(0, 1, 2, 0, 1, 2)`` is a stride (each of k engines repeats the same u texts), ``(0, 0, 1, 1, 2, 2)`` a
    round-robin (neighbours repeat), ``(0, 0, 0)`` one text.
    """
    size, unique = len(pattern), len(set(pattern))
    if unique == size:
        return CopyLayout.DISTINCT
    if unique == 1:
        return CopyLayout.ONE_TEXT
    if size % unique == 0:
        copies = size // unique
        if pattern == tuple(range(unique)) * copies:
            return CopyLayout.STRIDE
        if pattern == tuple(number for number in range(unique) for _ in range(copies)):
            return CopyLayout.ROUND_ROBIN
    return CopyLayout.IRREGULAR


@dataclass(frozen=True, slots=True)
class BatchCopies:
    """The copies in one dumped generation batch.

    ``pattern`` is the commonest one and ``alike`` the share of the ``groups`` judged that have it; ``repeated`` is the
    share of completions that repeat another one of their group. ``characters`` is the median length of the judged
    texts; the rewards are totals over the reward functions, None if none was dumped.
    ``one_text`` counts groups of one text; ``earned`` has the different rewards, and ``patterns`` the pattern, of each
    group judged. ``doubtful``: the trainer computed advantages from other rewards. ``short``: half of the texts are so
    short that they may be equal by chance, unless the entropy excludes it.
    """

    step: int
    pattern: tuple[int, ...]
    layout: CopyLayout
    alike: float
    groups: int
    repeated: float
    characters: float = 0.0
    lowest_reward: float | None = None
    highest_reward: float | None = None
    one_text: int = 0
    earned: tuple[frozenset[float], ...] = ()
    patterns: tuple[tuple[int, ...], ...] = ()
    doubtful: bool = False
    short: bool = False
    example: Mapping[str, Scalar] = field(default_factory=dict)

    def regular(self, alike: float) -> bool:
        """Whether nearly all groups repeat their texts in the same places."""
        return self.alike >= alike and self.layout is not CopyLayout.DISTINCT

    def impossible(self, entropy: float, alike: float) -> bool:
        """Whether an entropy of this size rules out one text per group, however short the texts are."""
        if self.layout is not CopyLayout.ONE_TEXT or not self.regular(alike) or self.groups < PAIR:
            return False
        tokens = self.repeated * self.groups * len(self.pattern) * self.characters / CHARACTERS
        return tokens * entropy / 2 >= SURPRISE

    @property
    def distinct(self) -> int:
        """Distinct texts per group in the commonest pattern."""
        return len(set(self.pattern))

    @property
    def rank_shaped(self) -> bool:
        """Whether copies lie as they do if ranks or engines share a seed (in a collapse they have no order)."""
        return self.layout in ORDERLY or (self.layout is CopyLayout.IRREGULAR and self.groups >= GROUPS_FOR_IRREGULAR)

    @property
    def groups_alike(self) -> int:
        """Groups that have the pattern."""
        return round(self.alike * self.groups)

    def says(self) -> str:
        """The copies in words."""
        return f"{self.distinct} distinct of {len(self.pattern)} completions in {self.alike:.0%} of the groups"

    def evidence(self) -> dict[str, Scalar]:
        """The values as evidence."""
        return {
            "pattern": str(self.pattern),
            "layout": self.layout.value,
            "groups": self.groups,
            "groups_alike_ratio": round(self.alike, 4),
            "repeated_ratio": round(self.repeated, 4),
            **self.example,
        }


def copies_in(summary: CompletionSummary, min_characters: int) -> BatchCopies | None:
    """The copies of a batch, or None if its texts can't tell.

    Judges groups of one prompt without empty completions, at least half of whose texts have ``min_characters``. If
    these are less than half of a batch, its task has short answers, and texts of any length are judged.
    """
    groups = [group for group in summary.groups if _telling(group, min_characters)]
    short = len(groups) * 2 < max(1, len(summary.groups))
    if short:
        groups = [group for group in summary.groups if _telling(group, 1)]
    if len(groups) * 2 < max(1, len(summary.groups)):
        return None
    patterns = tuple(group.pattern for group in groups)
    seen = Counter(patterns)
    pattern, count = seen.most_common(1)[0]
    earned = earned_by(groups)
    rewards = [total for each in earned for total in each]
    return BatchCopies(
        step=summary.step,
        pattern=pattern,
        layout=layout(pattern),
        alike=count / len(groups),
        groups=len(groups),
        repeated=sum(group.size - group.unique for group in groups) / sum(group.size for group in groups),
        characters=median(length for group in groups for length in group.lengths),
        lowest_reward=min(rewards, default=None),
        highest_reward=max(rewards, default=None),
        example=shown(groups),
        one_text=sum(group.unique == 1 for group in groups),
        earned=earned,
        patterns=patterns,
        doubtful=contradicted(groups),
        short=short,
    )


def counts_of(pattern: tuple[int, ...]) -> tuple[int, ...]:
    """How often each distinct text of a group occurs, ascending."""
    return tuple(sorted(Counter(pattern).values()))


def totals(group: GroupSummary) -> Iterator[float]:
    """Summed reward of each completion that every function scored (weighted before, if weights are known)."""
    for scores in zip(*(group.rewards[name] for name in names_of(group)), strict=True):
        known = [score for score in scores if score is not None]
        if known and len(known) == len(scores):
            yield plain_sum(known)


def _telling(group: GroupSummary, min_characters: int) -> bool:
    long = sum(length >= min_characters for length in group.lengths)
    return group.size > 1 and group.prompts == 1 and group.empty == 0 and 2 * long >= group.size


class GroupSignal:
    """The share of unsolved groups whose rewards differ, over the newest batches.

    A group is solved if each of its texts earns the best reward of the run, once rewards have differed at all; equal
    rewards are a success there. ``doubtful``: the total rewards are unknown, so that any group may be solved.
    """

    def __init__(self, batches: int) -> None:
        self._newest: deque[tuple[int, int]] = deque(maxlen=batches)
        self._lowest, self._highest = float("inf"), float("-inf")
        self.doubtful = False

    def add_batch(self, earned: Sequence[AbstractSet[float]], *, doubtful: bool = False) -> None:
        """Take a batch: the different total rewards of each group (empty if none were dumped)."""
        self.doubtful |= doubtful
        known = [each for each in earned if each]
        if not known:
            return
        self._lowest = min(self._lowest, *map(min, known))
        self._highest = max(self._highest, *map(max, known))
        best = self._highest if self._lowest < self._highest else float("inf")
        differing = sum(len(each) > 1 for each in known)
        self._newest.append((differing, sum(len(each) > 1 or max(each) < best for each in known)))

    @property
    def share(self) -> float | None:
        """The share; 1 if all groups are or may be solved, None if no rewards are known."""
        if not self._newest:
            return None
        if self.doubtful:
            return 1.0
        differing, unsolved = (sum(each) for each in zip(*self._newest, strict=True))
        return differing / unsolved if unsolved else 1.0


def earned_by(groups: Sequence[GroupSummary]) -> tuple[frozenset[float], ...]:
    """The different total rewards of each group's completions."""
    return tuple(frozenset(totals(group)) for group in groups)
