"""Near copies: on average over batches, and apart from exact ones."""

from __future__ import annotations

from dataclasses import replace

from grpo_watch.core.records import CompletionSummary
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group

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
