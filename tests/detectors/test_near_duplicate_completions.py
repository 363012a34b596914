"""Near copies: on average over batches, and apart from exact ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.engine.records import CompletionSummary
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group, row

RULE = "near-duplicate-completions"
DISTINCT = (0, 1, 2, 3, 4, 5, 6, 7)


def batch(
    step: int, near_unique: int | None, pattern: tuple[int, ...] = DISTINCT, prompts: int = 1
) -> CompletionSummary:
    return replace(a_batch(step), groups=(a_group(pattern, f"{step}", near_unique=near_unique, prompts=prompts),))


def test_half_of_the_texts_nearly_repeat() -> None:
    """4 different of 8 in each of seven batches: the fifth fills the window."""
    run = Watched(RULE).feed_all(batch(step, 4) for step in range(1, 8))
    assert run.changes == [("firing", 7, "warning")]
    assert run.said[0].first_step == 5
    assert run.said[-1].reading.evidence["repeated_ratio"] == 0.5


def test_fewer_are_normal() -> None:
    """5 different of 8: three eighths repeat."""
    assert Watched(RULE).feed_all(batch(step, 5) for step in range(1, 30)).said == []


def test_exact_copies_are_another_rule() -> None:
    """Four exact copies, and one near copy of eight: an eighth is below a quarter."""
    exact = (0, 1, 2, 3, 0, 1, 2, 3)
    assert Watched(RULE).feed_all(batch(step, 3, exact) for step in range(1, 30)).said == []
    assert Watched(RULE).feed_all(batch(step, 2, exact) for step in range(1, 8)).changes == [("firing", 7, "warning")]


def test_groups_that_can_not_tell() -> None:
    """Not compared (more than 64 texts, or stored by an older version), or several prompts."""
    run = Watched(RULE).feed_all(batch(step, None) for step in range(1, 9))
    assert (run.said, run.blind_reason) == ([], "the texts were not compared")
    assert Watched(RULE).feed_all(batch(step, 1, prompts=2) for step in range(1, 9)).said == []


def test_openings_in_a_pattern_point_at_a_seed() -> None:
    """Different texts, of which the i-th and the i+4-th begin alike in eight groups: one batch is enough."""
    pattern, opening = tuple(range(8)), (0, 1, 2, 3, 0, 1, 2, 3)
    batches = [
        replace(a_batch(step), groups=tuple(a_group(pattern, f"{step}-{at}", openings=opening) for at in range(8)))
        for step in range(1, 4)
    ]
    run = Watched(RULE).feed_all(batches)
    assert run.changes == [("firing", 1, "warning")]
    reading = run.said[-1].reading
    assert (reading.key, reading.evidence["distinct_openings"]) == ("openings", 4)
    assert "share a seed" in reading.message
    assert "seed" in reading.hint
    healthy = [
        replace(a_batch(step), groups=tuple(a_group(pattern, f"{step}-{at}", openings=(0,) * 8) for at in range(32)))
        for step in range(1, 9)
    ]
    assert Watched(RULE).feed_all(healthy).said == []


def near_copies(step: int, *scores: tuple[float, float]) -> CompletionSummary:
    """A group of four near copies for each pair of scores; advantages at step 1 that no sum of scores explains."""
    turned = a_group((0, 1), f"{step}-t", near_unique=2, rewards={"a": (0.0, 1.0), "b": (0.0, 0.0)})
    doubted = replace(turned, rewards={**turned.rewards, "advantage": (1.0, -1.0)})
    alike = [
        a_group((0, 1, 2, 3), f"{step}-{at}", near_unique=1, rewards={"a": (a,) * 4, "b": (b,) * 4})
        for at, (a, b) in enumerate(scores)
    ]
    return replace(a_batch(step), groups=(*([doubted] if step == 1 else ()), *alike))


def test_without_weights_any_group_may_be_solved() -> None:
    run = Watched(RULE).feed_all(near_copies(step, (0.0, 0.5), (1.0, 0.5), (0.0, 1.0)) for step in range(1, 10))
    assert [(state, said) for state, _, said in run.changes] == [("firing", "info")]


def test_the_finding_shows_one_excerpt() -> None:
    pattern = (0, 1, 2, 3)
    groups = [a_group(pattern, near_unique=1, example=text, distinct=0.25) for text in ("", "So it is", "And so")]
    run = Watched(RULE).feed_all(
        replace(a_batch(step), groups=tuple(replace(group, digest=f"{step}") for group in groups))
        for step in range(1, 9)
    )
    evidence = run.said[-1].reading.evidence
    assert (evidence["example"], evidence["distinct_3"]) == ("So it is", 0.25)


@pytest.mark.parametrize(
    ("rewards", "entropy", "severity"),
    [
        ((0.0, 1.0), 2.0, "info"),  # edits of one text, of which some are right
        ((0.0, 1.0), None, "info"),
        ((1.0, 1.0), 2.0, "warning"),  # nothing left to tell them apart
        ((), 2.0, "warning"),  # no rewards dumped
        ((0.0, 1.0), 0.9, "warning"),  # below half of the entropy that the run began with
    ],
)
def test_edits_that_earn_different_rewards_are_an_info(
    rewards: tuple[float, ...], entropy: float | None, severity: str
) -> None:
    """Answers of 110 words that differ in two: three words in a row are shared by nearly all."""
    scores = {"f": rewards * 4} if rewards else {}
    logged = [row(step, loss=0.0, **({} if entropy is None else {"entropy": 2.0})) for step in range(1, 6)]
    fallen = [row(step, loss=0.0, **({} if entropy is None else {"entropy": entropy})) for step in range(6, 12)]
    batches = [
        replace(made, groups=tuple(replace(group, rewards=scores) for group in made.groups))
        for made in (batch(step, 2) for step in range(12, 22))
    ]
    run = Watched(RULE).feed_all([*logged, *fallen, *batches])
    assert run.changes == [("firing", 18, severity)]
    assert ("the task" in run.said[-1].reading.hint) is (severity == "info")
