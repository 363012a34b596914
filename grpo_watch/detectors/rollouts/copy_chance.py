"""How likely it is that independent draws repeat their texts as a streak of batches does."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import comb, factorial, lgamma, log, log10, prod

from grpo_watch.engine.window import plain_sum

CHANCE = -6.0
"""Decimal logarithm of a chance that is negligible. Of runs of ten thousand batches one in a hundred would come so far,
and fewer in truth: copies must not only lie alike, there must be as many of them each time."""
AT_FIRST = -3.5
"""The same for the first batches of a run, before which no diverse one came: there is one such streak per run. Two
groups of six in one stride are 10^-3.9."""
EQUAL_IF_UNSURE = 0.7
"""Chance that two answers are equal while the logged entropy is not low: one of two answers in 82 % of the draws …"""
EQUAL_IF_SURE = 0.97
"""… and while none is logged: a policy that is 98.5 % sure of one answer."""
EQUAL_IF_LONG = 0.9
"""The same for texts that are too long for answers in tags (tool calls, templates): 95 % sure."""
REPEATS = 0.1
"""Share of copies in earlier batches from which texts of any length are drawn from a few (healthy real runs: 0)."""


def laid_alike(pattern: tuple[int, ...], alike: int, groups: int, candidates: int | None = 1) -> float:
    """Decimal logarithm of the chance that the copies of ``alike`` of ``groups`` groups lie in these places.

    Texts that are drawn independently fall in each order equally often, whatever the texts are and however often each
    comes: only the number of ways in which as many copies can lie in a group counts.

    Args:
        pattern: where the copies lie.
        alike: groups of that pattern.
        groups: groups judged.
        candidates: patterns that would have been reported as well: one where an earlier batch gave it; None: any.
    """
    counts = Counter(pattern).values()
    ways = factorial(len(pattern)) // prod(map(factorial, counts)) // prod(map(factorial, Counter(counts).values()))
    any_of = ways if candidates is None else min(candidates, ways)
    return min(0.0, log10(comb(groups, alike)) + log10(any_of) - alike * log10(ways))


def one_text_each(groups: int, copies: int, before: tuple[int, int], equal: float) -> float:
    """Decimal logarithm of the chance that ``groups`` groups hold one text each, ``copies`` equal to their first.

    The milder one of two estimates: by the chance that two texts are equal, and by how many groups of so many held one
    text ``before`` (one more is counted than was seen).
    """
    ones, seen = before
    return max(copies * log10(equal), groups * log10((ones + 1) / (seen + 1)) if ones < seen else float("-inf"))


@lru_cache(maxsize=256)
def counted_alike(counts: tuple[int, ...], groups: int, alike: int) -> float:
    """Decimal logarithm of the chance that the texts of ``alike`` of ``groups`` groups come so often, in any order.

    At most about: the largest over policies that have some number of equally likely texts, or texts as likely as these
    counts are, what comes once being drawn from very many.
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
    """Natural logarithm of a factorial: those of large groups are beyond a float."""
    return lgamma(number + 1)
