"""Copies that lie where one seed lays them, among texts that repeat by chance."""

from __future__ import annotations

from itertools import permutations
from math import log10

import pytest

from grpo_watch.detectors.rollouts.copy_history import PLACE_CHANCE, SIZES, CopyPlaces, arrangements, counted_alike


def numbered(texts: tuple[int, ...]) -> tuple[int, ...]:
    first = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return tuple(first[text] for text in texts)


@pytest.mark.parametrize(
    ("pattern", "fits", "orders"),
    [((0, 1, 0, 1), {"stride"}, 3), ((0, 0, 1, 1), {"round-robin"}, 3), ((0, 0, 0, 0), {"stride", "round-robin"}, 1)],
)
def test_the_share_of_orders_that_fit(pattern: tuple[int, ...], fits: set[str], orders: int) -> None:
    """Of the 6 orders of two texts twice 2 fit a stride of two (each text may be first); one text always fits."""
    fitting = [each for each in arrangements(4) if each.fits(pattern)]
    assert {each.layout for each in fitting} == fits
    assert [each.log_chance(pattern) for each in fitting] == pytest.approx([-log10(orders)] * len(fitting))


@pytest.mark.parametrize("texts", [(0, 0, 1, 1, 2, 2), (0, 0, 0, 0, 1, 1), (0, 0, 0, 0, 0, 0), (0, 0, 0, 1, 1, 1)])
def test_chance_is_what_counting_all_orders_gives(texts: tuple[int, ...]) -> None:
    orders = set(permutations(texts))
    for each in arrangements(6):
        fitting = [order for order in orders if each.fits(order)]
        for order in fitting:
            assert each.log_chance(numbered(order)) == pytest.approx(log10(len(fitting) / len(orders)))


def test_it_takes_so_many_groups_in_a_row_and_one_text_proves_nothing() -> None:
    """1 in 3 per group: 19 groups are 1 in 10^9.07. One that does not fit starts over, another size says nothing."""
    places = CopyPlaces()
    for step in range(1, 19):
        places.add_group((0, 1, 0, 1), step)
        places.add_group((0, 0, 0, 0), step)
    assert places.found([(0,) * 4, (0,) * 6]) is None
    places.add_group((0, 1, 0, 1), 19)
    found = places.found([(0,) * 4, (0,) * 6])
    assert found is not None
    assert (found.arrangement.layout, found.arrangement.texts, found.first_step) == ("stride", 2, 1)
    assert found.groups == 37
    assert "2 apart" in found.says()
    places.add_group((0, 1, 1, 0), 20)
    assert places.found([(0,) * 4, (0,) * 6]) is None
    for step in range(21, 60):
        places.add_group((0,) * 4, step)
        places.add_group((0,) * 6, step)
    assert places.found([(0,) * 4, (0,) * 6]) is None
    assert log10(1 / 3) * 18 > PLACE_CHANCE


def test_groups_of_other_sizes_in_between_say_nothing() -> None:
    """Two groups of one prompt side by side, a lost row: each size has its own streak."""
    places = CopyPlaces()
    for step in range(1, 20):
        places.add_group((0, 1, 0, 1), step)
        places.add_group((0, 1, 1), step)
        places.add_group((0, 0, 1, 2, 3, 1, 0, 0), step)
    found = places.found([(0, 1, 1), (0, 1, 0, 1)])
    assert found is not None
    assert (found.groups, found.first_step) == (19, 1)
    assert places.found([(0, 1, 1)]) is None


def test_sizes_are_followed_in_bounds() -> None:
    """Hostile dumps have groups of every size: the one that was not seen for longest is forgotten."""
    places = CopyPlaces()
    for step in range(1, 20):
        places.add_group((0, 1, 0, 1), step)
    for size in range(5, 5 + SIZES):
        places.add_group(tuple(range(size)), 20)
    assert places.found([(0, 1, 0, 1)]) is None


def test_large_groups_of_a_dump_are_counted_too() -> None:
    """Of 512 texts each twice: 512! is beyond a float."""
    assert counted_alike((2,) * 256, 2, 2) < -6


def test_the_chance_that_texts_come_as_often() -> None:
    """Four and four of two texts: 70 of 256 orders at best. All different or all one may always be."""
    assert 10 ** counted_alike((4, 4), 1, 1) == pytest.approx(70 / 256)
    assert counted_alike((8,), 4, 4) == pytest.approx(0.0)
    assert counted_alike((4, 4), 3, 3) == pytest.approx(3 * log10(70 / 256))
