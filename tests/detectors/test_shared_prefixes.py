"""Texts that begin alike: where ranks with one seed would lay them, and where chance does."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import GroupSummary, Reading
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group

DISTINCT = (0, 1, 2, 3, 4, 5, 6, 7)


def reported(*groups: GroupSummary) -> Reading | None:
    """What a batch of these groups shows of openings."""
    said = Watched("near-duplicate-completions").feed_all([replace(a_batch(1), groups=groups)]).said
    return next((each.reading for each in said if each.reading.key == "openings"), None)


def beginning(*openings: tuple[int, ...], pattern: tuple[int, ...] = DISTINCT) -> list[GroupSummary]:
    return [a_group(pattern[: len(each)], f"p{at}", openings=each) for at, each in enumerate(openings)]


def test_a_stride_of_openings_under_different_texts() -> None:
    """Of 8! / 2!^4 = 2520 orders 4! fit: 10^-2.02 for each group, five of which are below 10^-9."""
    assert reported(*beginning(*[(0, 1, 2, 3, 0, 1, 2, 3)] * 4)) is None
    found = reported(*beginning(*[(0, 1, 2, 3, 0, 1, 2, 3)] * 5))
    assert found is not None
    assert found.evidence == {"layout": "stride", "distinct_openings": 4, "groups": 5}
    assert "(4 apart) in 5 groups in a row" in found.message


def test_neighbours_are_a_round_robin() -> None:
    """Of 8! / 4!^2 = 70 orders 2 fit: 10^-1.54, six times."""
    found = reported(*beginning(*[(0, 0, 0, 0, 1, 1, 1, 1)] * 6))
    assert found is not None
    assert found.evidence["layout"] == "round-robin"
    assert "4 neighbours each" in found.message


def test_a_common_phrase_does_not_hide_it() -> None:
    """The first two texts of four begin alike as well: of 8! / (4! 2! 2!) = 420 orders 12 fit, 10^-1.54."""
    assert reported(*beginning(*[(0, 0, 1, 2, 0, 0, 1, 2)] * 5)) is None
    found = reported(*beginning(*[(0, 0, 1, 2, 0, 0, 1, 2)] * 6))
    assert found is not None
    assert (found.evidence["layout"], found.evidence["distinct_openings"]) == ("stride", 4)


@pytest.mark.parametrize(
    "opening",
    [(0,) * 8, DISTINCT, (0, 1, 1, 0, 2, 0, 1, 3), (0, 0, 0, 0, 0, 0, 0, 1)],
)
def test_what_all_or_none_have_in_common_says_nothing(opening: tuple[int, ...]) -> None:
    """One phrase for all, no two alike, and no pattern."""
    assert reported(*beginning(*[opening] * 64)) is None


def test_exact_copies_are_another_finding() -> None:
    assert reported(*beginning(*[(0, 1, 2, 3, 0, 1, 2, 3)] * 8, pattern=(0, 1, 2, 3, 0, 1, 2, 3))) is None


def test_groups_that_can_not_tell() -> None:
    """Mixed prompts, three texts, and what an older version stored."""
    assert reported() is None
    assert reported(*[a_group(DISTINCT, openings=(0, 1, 2, 3) * 2, prompts=2)] * 8) is None
    assert reported(*beginning(*[(0, 0, 1)] * 64)) is None
    assert reported(*[a_group(DISTINCT)] * 8) is None


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([4, 6, 8, 12]), st.integers(1, 64))
def test_texts_that_begin_at_random_are_never_reported(seed: int, phrases: int, size: int, count: int) -> None:
    """Each draws one of a few phrases, as a policy with habits does; every group has its own favourite."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        favourite = rng.randrange(phrases)
        made.append(tuple(favourite if rng.random() < 0.4 else rng.randrange(phrases) for _ in range(size)))
    openings = [tuple([each.index(one) for one in each]) for each in made]
    assert reported(*beginning(*openings, pattern=tuple(range(size)))) is None
