"""A run's copies so far: how often, where, how likely by chance, and whether groups still teach."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import comb, factorial, lgamma, log, log10, prod

from grpo_watch.detectors.rollouts.copies import ORDERLY, BatchCopies, GroupSignal, counts_of
from grpo_watch.engine.window import plain_sum

PLACE_CHANCE = -9.0
"""Decimal logarithm of the chance below which copies in the same places (or shared prefixes) are no coincidence."""
SIZES = 16
"""Most group sizes that are followed; the newest ones are kept."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A layout of the same ``texts`` texts by ``copies`` ranks or engines; ``place`` maps a completion to its text."""

    layout: str
    texts: int
    copies: int
    place: Callable[[int], int]

    def fits(self, pattern: Sequence[int]) -> bool:
        """Whether all completions in one place have the same text."""
        first: dict[int, int] = {}
        return all(first.setdefault(self.place(at), number) == number for at, number in enumerate(pattern))

    def log_chance(self, pattern: Sequence[int]) -> float:
        """Decimal logarithm of the chance that texts counted as in ``pattern``, which fits, fall in an order that fits.

        Independent draws fall in each order equally often, whatever the texts are and however sure the policy is. So
        the chance is the share of all orders of these texts that give each place one text.
        """
        counts = Counter(pattern).values()
        fitting = factorial(self.texts) // prod(factorial(count // self.copies) for count in counts)
        return log10(fitting) - log10(factorial(len(pattern)) // prod(map(factorial, counts)))

    def says(self) -> str:
        """The layout in words."""
        return f"{self.texts} apart" if self.layout == "stride" else f"{self.copies} neighbours each"


def arrangements(size: int) -> Iterator[Arrangement]:
    """All ways in which ranks or engines can lay copies of two texts or more in a group."""
    for texts in range(2, size):
        if size % texts == 0:
            yield Arrangement("stride", texts, size // texts, lambda at, texts=texts: at % texts)  # type: ignore[misc]
            yield Arrangement("round-robin", texts, size // texts, lambda at, each=size // texts: at // each)  # type: ignore[misc]


@dataclass(slots=True)
class SharedCopyPlaces:
    """The newest ``groups`` groups in a row, since ``first_step``, whose copies fit one arrangement.

    ``chance`` is the decimal logarithm of the chance that they do.
    """

    arrangement: Arrangement
    groups: int = 0
    chance: float = 0.0
    first_step: int = 0

    def add_group(self, pattern: Sequence[int], step: int) -> None:
        """Extend the streak by a group, or end it if the group does not fit."""
        if not self.arrangement.fits(pattern):
            self.groups, self.chance = 0, 0.0
            return
        self.first_step = self.first_step if self.groups else step
        self.groups += 1
        self.chance += self.arrangement.log_chance(pattern)

    def says(self) -> str:
        """The streak in words."""
        where = self.arrangement.says()
        return f"equal texts lie in the same places ({where}) in {self.groups} groups in a row"


@dataclass(slots=True)
class CopyPlaces:
    """Tracks, for the groups of each size, how long each arrangement has held.

    Groups of other sizes in between don't end a streak: a dump grouped by equal prompts joins two groups, and a lost
    row leaves one short.
    """

    _sizes: OrderedDict[int, list[SharedCopyPlaces]] = field(default_factory=OrderedDict)

    def add_group(self, pattern: Sequence[int], step: int) -> None:
        """Take one group."""
        size = len(pattern)
        if size not in self._sizes:
            self._sizes[size] = [SharedCopyPlaces(each) for each in arrangements(size)]
        self._sizes.move_to_end(size)
        if len(self._sizes) > SIZES:
            self._sizes.popitem(last=False)
        for streak in self._sizes[size]:
            streak.add_group(pattern, step)

    def found(self, patterns: Collection[Sequence[int]]) -> SharedCopyPlaces | None:
        """The least likely arrangement of groups of these sizes; None if chance may explain all."""
        streaks = [streak for size in {*map(len, patterns)} for streak in self._sizes.get(size, ())]
        least = min(streaks, key=lambda streak: streak.chance, default=None)
        return least if least is not None and least.chance <= PLACE_CHANCE else None


CHANCE = -6.0
"""Decimal logarithm of a negligible chance. One in a hundred runs of ten thousand batches would reach it, and fewer in
truth: copies must not only lie alike, there must be as many of them each time."""
AT_FIRST = -3.5
"""The same for the first batches of a run, before any diverse one: there is one such streak per run. Two groups of six
in one stride are 10^-3.9."""
EQUAL_IF_UNSURE = 0.7
"""Chance that two answers are equal if the logged entropy is not low: one of two answers in 82 % of the draws …"""
EQUAL_IF_SURE = 0.97
"""… and if none is logged: a policy that is 98.5 % sure of one answer."""
EQUAL_IF_LONG = 0.9
"""The same for texts too long for answers in tags (tool calls, templates): 95 % sure."""
REPEATS = 0.1
"""Share of copies in earlier batches from which texts of any length are drawn from a few (healthy real runs: 0)."""


def laid_alike(pattern: tuple[int, ...], alike: int, groups: int, candidates: int | None = 1) -> float:
    """Decimal logarithm of the chance that the copies of ``alike`` of ``groups`` groups lie in these places.

    Independent draws fall in each order equally often, whatever the texts are and however often each comes. So only the
    number of ways in which as many copies can lie in a group matters.

    Args:
        pattern: where the copies lie.
        alike: groups of that pattern.
        groups: groups judged.
        candidates: patterns that would also have been reported: 1 if an earlier batch had the pattern; None: any.
    """
    counts = Counter(pattern).values()
    ways = factorial(len(pattern)) // prod(map(factorial, counts)) // prod(map(factorial, Counter(counts).values()))
    any_of = ways if candidates is None else min(candidates, ways)
    return min(0.0, log10(comb(groups, alike)) + log10(any_of) - alike * log10(ways))


def one_text_each(groups: int, copies: int, before: tuple[int, int], equal: float) -> float:
    """Decimal logarithm of the chance that ``groups`` groups hold one text each, with ``copies`` copies of their first.

    The larger of two estimates: by the chance that two texts are equal, and by the share of groups that held one text
    ``before`` (counted with one more than was seen).
    """
    ones, seen = before
    return max(copies * log10(equal), groups * log10((ones + 1) / (seen + 1)) if ones < seen else float("-inf"))


@lru_cache(maxsize=256)
def counted_alike(counts: tuple[int, ...], groups: int, alike: int) -> float:
    """Decimal logarithm of the chance that texts repeat so often in ``alike`` of ``groups`` groups, in any order.

    An approximate upper bound: the largest over policies with some number of equally likely texts, or with texts as
    likely as these counts, where texts that occur once are drawn from very many.
    """
    size, once = sum(counts), counts.count(1)
    orders = _factorial(size) - plain_sum(map(_factorial, counts))
    same = plain_sum(map(_factorial, Counter(counts).values()))
    equally = max(
        _factorial(texts) - _factorial(texts - len(counts)) - same + orders - size * log(texts)
        for texts in range(len(counts), 4 * size + 1)
    )
    shares = [count for count in counts if count > 1] + [once] * (once > 0)
    likely = orders - _factorial(once) + plain_sum(count * log(count / size) for count in shares)
    return min(0.0, log10(comb(groups, alike)) + alike * max(equally, likely) / log(10))


def _factorial(number: int) -> float:
    """Natural logarithm of a factorial; that of a large group overflows a float."""
    return lgamma(number + 1)


BEFORE = 64
"""Streaks and batches before the newest streak that show how texts usually repeat."""
MANY = 10
"""Groups needed to know that this run's groups hold several texts."""
NEWEST = 5
"""Batches over which groups are checked for differing rewards; a single batch holds few groups."""


class CopyHistory:
    """The copies of a run so far.

    ``batches`` counts consecutive ones with repeated texts, since ``first_step``; ``alike`` counts the newest of them
    in which nearly all groups share one pattern. These have ``groups`` groups with ``copies`` copies; ``chance`` is the
    decimal logarithm of the chance that the copies lie so, ``drawn`` of the chance that there are so many.
    ``was_diverse``: groups differed before, and ``best_reward`` is the highest total reward that they earned (-inf:
    unknown). ``sampled``: some group held several texts in no order of ranks, which greedy decoding can't give.
    """

    def __init__(self) -> None:
        self.was_diverse, self.sampled, self.best_reward = False, False, float("-inf")
        self.places = CopyPlaces()
        self.group_signal = GroupSignal(NEWEST)
        self._before: deque[tuple[int, int, float]] = deque(maxlen=BEFORE)
        self._ones = self._seen = 0
        self._repeated = 0.0
        self.end_streak()

    def end_streak(self) -> None:
        """End the streak: a diverse batch, or a new attempt."""
        self.batches = self.first_step = 0
        self._newest: BatchCopies | None = None
        self._end_alike()

    def _end_alike(self) -> None:
        if self._seen:
            self._before.append((self._ones, self._seen, self._repeated))
        self.alike = self.groups = self.copies = self._ones = self._seen = 0
        self.chance = self.drawn = self._repeated = 0.0

    def add_diverse(self, batch: BatchCopies) -> None:
        """Take a batch whose texts differ."""
        self._note(batch)
        self.end_streak()
        self.was_diverse = self.sampled = True
        self._before.append((batch.one_text, batch.groups, batch.repeated * batch.groups))
        if batch.highest_reward is not None:
            self.best_reward = max(self.best_reward, batch.highest_reward)

    def extend(self, batch: BatchCopies, alike: float) -> None:
        """Take a batch that repeats its texts."""
        before, self._newest = self._newest, batch
        self._note(batch)
        self.batches += 1
        self.first_step = self.first_step or batch.step
        regular = batch.regular(alike)
        if before is None or before.pattern != batch.pattern or not (regular and before.regular(alike)):
            self._end_alike()
        first = len(ORDERLY) if batch.layout in ORDERLY else None
        self.chance += laid_alike(batch.pattern, batch.groups_alike, batch.groups, 1 if self.alike else first)
        self.drawn += counted_alike(counts_of(batch.pattern), batch.groups, batch.groups_alike)
        self.alike += 1
        self.groups += batch.groups_alike
        self.copies += batch.groups_alike * (len(batch.pattern) - batch.distinct)
        self._ones, self._seen = self._ones + batch.one_text, self._seen + batch.groups
        self._repeated += batch.repeated * batch.groups
        self.sampled = self.sampled or (batch.one_text < batch.groups and not (regular and batch.rank_shaped))

    @property
    def one_text_before(self) -> tuple[int, int]:
        """Groups of one text, and all groups, before the batches of the newest pattern."""
        return sum(ones for ones, _, _ in self._before), sum(groups for _, groups, _ in self._before)

    @property
    def never_one_text(self) -> bool:
        """Whether many groups came before the newest pattern, none of them of one text."""
        ones, groups = self.one_text_before
        return ones == 0 and groups >= MANY

    @property
    def few_texts(self) -> bool:
        """Whether texts already repeated before the newest pattern, so that they are drawn from a few."""
        groups = sum(groups for _, groups, _ in self._before)
        return plain_sum(repeated for _, _, repeated in self._before) >= REPEATS * groups > 0

    def _note(self, batch: BatchCopies) -> None:
        for pattern in batch.patterns:
            self.places.add_group(pattern, batch.step)
        self.group_signal.add_batch(batch.earned, doubtful=batch.doubtful)
