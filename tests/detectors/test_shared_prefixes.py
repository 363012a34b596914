"""Texts that begin alike: where ranks with one seed would lay them, and where chance does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.detectors.rollouts.near_duplicate_completions import shared_openings
from grpo_watch.engine.records import GroupSummary
from tests.support.records import a_group

DISTINCT = (0, 1, 2, 3, 4, 5, 6, 7)


def groups(*openings: tuple[int, ...], pattern: tuple[int, ...] = DISTINCT) -> list[GroupSummary]:
    return [a_group(pattern[: len(each)], openings=each) for each in openings]


def test_a_stride_of_openings_under_different_texts() -> None:
    """Eight groups of eight: all begin like the one 4 before; of 24 pairs in other places none: 1 in 8 x 24 + 1."""
    found = shared_openings(groups(*[(0, 1, 2, 3, 0, 1, 2, 3)] * 8))
    assert found is not None
    assert (found.arrangement.layout, found.arrangement.texts, found.arrangement.copies, found.together) == (
        "stride",
        4,
        2,
        1.0,
    )
    assert found.apart == pytest.approx(1 / 193)
    assert found.says() == "completions begin alike in 100% of the cases (every 4th), others in 1%"


def test_neighbours_are_a_round_robin() -> None:
    found = shared_openings(groups(*[(0, 0, 0, 0, 1, 1, 1, 1)] * 4))
    assert found is not None
    assert (found.arrangement.layout, found.arrangement.texts, found.arrangement.copies) == ("round-robin", 2, 4)
    assert "4 neighbours each" in found.says()


def test_a_common_phrase_does_not_hide_it() -> None:
    """In each group the first two texts of four begin alike as well: of 24 pairs in other places 4 are."""
    found = shared_openings(groups(*[(0, 0, 1, 2, 0, 0, 1, 2)] * 8))
    assert found is not None
    assert (found.arrangement.layout, found.arrangement.texts) == ("stride", 4)
    assert found.apart == pytest.approx((8 * 4 + 1) / (8 * 24 + 1))


@pytest.mark.parametrize(
    "opening",
    [(0,) * 8, DISTINCT, (0, 1, 1, 0, 2, 0, 1, 3), (0, 0, 0, 0, 0, 0, 0, 1)],
)
def test_what_all_or_none_have_in_common_says_nothing(opening: tuple[int, ...]) -> None:
    """One phrase for all, no two alike, and no pattern."""
    assert shared_openings(groups(*[opening] * 64)) is None


def test_exact_copies_are_another_finding() -> None:
    assert shared_openings(groups(*[(0, 1, 2, 3, 0, 1, 2, 3)] * 8, pattern=(0, 1, 2, 3, 0, 1, 2, 3))) is None


def test_a_few_groups_may_be_chance() -> None:
    """4 of 24 pairs in other places are alike: 4 x log10(1/6) is -3.1 per group, so three are too few for -9."""
    opening = (0, 0, 1, 2, 0, 0, 1, 2)
    # (4 n + 1) / (24 n + 1) is 0.178 for three groups and 0.175 for four: 12 x -0.75 = -8.996, 16 x -0.76 = -12.1
    assert shared_openings(groups(*[opening] * 3)) is None
    assert shared_openings(groups(*[opening] * 4)) is not None


def test_groups_that_can_not_tell() -> None:
    """Mixed prompts, three texts, and what an older version stored."""
    assert shared_openings([]) is None
    assert shared_openings([a_group(DISTINCT, openings=(0, 1, 2, 3) * 2, prompts=2)] * 8) is None
    assert shared_openings(groups(*[(0, 0, 1)] * 64)) is None
    assert shared_openings([a_group(DISTINCT)] * 8) is None


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([4, 6, 8, 12]), st.integers(1, 64))
def test_texts_that_begin_at_random_are_never_reported(seed: int, phrases: int, size: int, count: int) -> None:
    """Each draws one of a few phrases, as a policy with habits does; every group has its own favourite."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        favourite = rng.randrange(phrases)
        made.append(tuple(favourite if rng.random() < 0.4 else rng.randrange(phrases) for _ in range(size)))
    reported = [a_group(tuple(range(size)), openings=tuple([each.index(one) for one in each])) for each in made]
    assert shared_openings(reported) is None
