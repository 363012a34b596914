"""How equal texts lie inside groups, and which batches can tell at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.detectors.rollouts.copies import CopyLayout, copies_in, layout
from grpo_watch.engine.records import CompletionSummary
from tests.support.records import a_batch, a_group

quick = settings(derandomize=True, deadline=None, max_examples=100)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ((0, 1, 2, 3), CopyLayout.DISTINCT),
        ((0,), CopyLayout.DISTINCT),
        ((0, 0), CopyLayout.ONE_TEXT),
        ((0, 0, 0, 0), CopyLayout.ONE_TEXT),
        ((0, 1, 2, 0, 1, 2), CopyLayout.STRIDE),
        ((0, 1, 0, 1, 0, 1), CopyLayout.STRIDE),
        ((0, 0, 1, 1, 2, 2), CopyLayout.ROUND_ROBIN),
        ((0, 0, 0, 1, 1, 1), CopyLayout.ROUND_ROBIN),
        ((0, 1, 1, 0), CopyLayout.IRREGULAR),
        ((0, 0, 1, 2), CopyLayout.IRREGULAR),
        ((0, 1, 2, 0, 1), CopyLayout.IRREGULAR),
        ((0, 0, 1, 1, 2), CopyLayout.IRREGULAR),
    ],
)
def test_the_layout_of_a_pattern(pattern: tuple[int, ...], expected: CopyLayout) -> None:
    assert layout(pattern) is expected


@quick
@given(st.integers(2, 8), st.integers(2, 6))
def test_engines_with_one_seed_are_a_stride_and_repeated_prompts_a_round_robin(texts: int, copies: int) -> None:
    assert layout(tuple(range(texts)) * copies) is CopyLayout.STRIDE
    assert layout(tuple(number for number in range(texts) for _ in range(copies))) is CopyLayout.ROUND_ROBIN


def test_the_commonest_pattern_represents_the_batch() -> None:
    stride, other = (0, 1, 0, 1), (0, 1, 2, 3)
    copies = copies_in(a_batch(7, stride, stride, stride, other), 12)
    assert copies is not None
    assert (copies.step, copies.pattern, copies.layout) == (7, stride, CopyLayout.STRIDE)
    assert (copies.alike, copies.groups, copies.repeated, copies.distinct) == (0.75, 4, 6 / 16, 2)


def test_a_batch_of_one_group_has_no_majority_to_ask() -> None:
    copies = copies_in(a_batch(1, (0, 0)), 12)
    assert copies is not None
    assert (copies.groups, copies.alike, copies.repeated) == (1, 1.0, 0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": (3, 3, 3, 11)},
        {"lengths": (12, 11, 11, 11)},
        {"empty": 1},
        {"prompts": 2},
    ],
)
def test_groups_that_can_not_tell_are_not_judged(changes: dict[str, object]) -> None:
    """Short answers, empty completions and mixed prompts; half of the texts must have 12 characters."""
    mute = a_group((0, 0, 1, 1), **changes)
    judged = copies_in(CompletionSummary("c", 1, (mute,)), 12)
    assert judged is None or judged.short


def test_a_group_of_one_completion_is_not_judged() -> None:
    assert copies_in(CompletionSummary("c", 1, (a_group((0,)),)), 12) is None


def test_half_long_texts_suffice() -> None:
    half = a_group((0, 0, 1, 1), lengths=(12, 12, 2, 2))
    assert copies_in(CompletionSummary("c", 1, (half,)), 12) is not None


def test_a_batch_of_mostly_short_answers_is_not_judged() -> None:
    long, short = a_group((0, 0)), a_group((0, 0), lengths=(2, 2))
    assert copies_in(CompletionSummary("c", 1, (long, short)), 12) is not None
    judged = copies_in(CompletionSummary("c", 1, (long, short, short)), 12)
    assert judged is not None
    assert judged.short


def test_tables_without_groups_are_not_judged() -> None:
    assert copies_in(a_batch(1), 12) is None


def test_the_evidence_names_pattern_and_shares() -> None:
    copies = copies_in(a_batch(1, (0, 1, 0, 1), (0, 1, 0, 1)), 12)
    assert copies is not None
    assert copies.evidence() == {
        "pattern": "(0, 1, 0, 1)",
        "layout": "stride",
        "groups": 2,
        "groups_alike_ratio": 1.0,
        "repeated_ratio": 0.5,
    }
    assert copies.says() == "2 distinct of 4 completions in 100% of the groups"
