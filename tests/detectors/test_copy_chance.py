"""The chance that independent draws look like a shared seed, against all that can be drawn."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import log10, prod

import pytest

from grpo_watch.detectors.rollouts.copies import ORDERLY, layout
from grpo_watch.detectors.rollouts.copy_history import counted_alike, laid_alike

Pattern = tuple[int, ...]


def pattern_of(texts: tuple[str, ...]) -> Pattern:
    """Equal texts numbered by first appearance."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(text, len(numbers)) for text in texts)


def laid(pattern: Pattern) -> tuple[int, ...]:
    """How often the texts of a group come, in whatever places."""
    return tuple(sorted(Counter(pattern).values()))


@pytest.mark.parametrize("weights", [{"a": 0.5, "b": 0.5}, {"a": 0.7, "b": 0.2, "c": 0.1}])
@pytest.mark.parametrize("batches", [(2,), (3,), (1, 1), (2, 1), (1, 2)])
def test_no_less_than_the_exact_chance(weights: dict[str, float], batches: tuple[int, ...]) -> None:
    """Groups of four texts drawn by these weights: of those with as many copies, how often do all lie alike?

    In an order of ranks (two of the three ways in which two texts come twice), and in any other way.
    """
    groups: Counter[Pattern] = Counter()
    for texts in product(weights, repeat=4):
        groups[pattern_of(texts)] += prod(weights[text] for text in texts)
    for copies, orderly in product({laid(pattern) for pattern in groups}, (True, False)):
        same = {pattern: chance for pattern, chance in groups.items() if laid(pattern) == copies}
        reported = [pattern for pattern in same if (layout(pattern) in ORDERLY) == orderly]
        if not reported:
            continue
        exact = sum((same[pattern] / sum(same.values())) ** sum(batches) for pattern in reported)
        first = len(ORDERLY) if orderly else None
        said = sum(laid_alike(reported[0], size, size, 1 if number else first) for number, size in enumerate(batches))
        assert said >= log10(exact) - 1e-9


def test_of_many_groups_some_may_lie_otherwise() -> None:
    """Nine of ten: ten choices of the one that does not, and never more than certain."""
    assert laid_alike((0, 1, 0, 1), 9, 10) == pytest.approx(log10(10) - 9 * log10(3))
    assert laid_alike((0, 1, 0, 1), 9, 10, 2) == pytest.approx(log10(20) - 9 * log10(3))
    assert laid_alike((0, 0, 1, 2), 9, 9, None) == pytest.approx(-8 * log10(6))
    assert laid_alike((0, 0, 0, 0), 5, 5) == 0.0
    assert laid_alike((0, 1, 0, 1), 1, 10) == 0.0


@pytest.mark.parametrize(
    ("counts", "chance"),
    [((2, 2), 6 / 16), ((3, 1), 8 / 16), ((1, 1), 1.0), ((2, 1, 1), 360 / 625), ((4,), 1.0)],
    ids=str,
)
def test_how_often_texts_come_is_weighed_by_the_policy_that_gives_it_most(
    counts: tuple[int, ...], chance: float
) -> None:
    """Two equally likely texts give 2+2 in 6 of 16 draws of four and 3+1 in 8.

    Of more of them, five give 2+1+1 most often: 10 choices of the texts, 3 of the one that comes twice and 12 orders.
    """
    assert counted_alike(counts, 1, 1) == pytest.approx(log10(chance))
    assert counted_alike(counts, 10, 9) == pytest.approx(min(0.0, log10(10) + 9 * log10(chance)))
