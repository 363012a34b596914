"""Unscored completions of a table."""

from __future__ import annotations

from grpo_watch.detectors.reward.unscored import MissingScores, worst_gaps
from grpo_watch.engine.records import CompletionSummary
from tests.support.records import a_group


def table(*rewards: dict[str, tuple[float | None, ...]]) -> CompletionSummary:
    return CompletionSummary("t", 1, tuple(a_group((0, 1), str(i), rewards=scores) for i, scores in enumerate(rewards)))


def test_the_worst_function_is_reported() -> None:
    assert worst_gaps(
        table({"a": (1.0, None), "b": (None, float("nan"))}, {"a": (1.0, 1.0), "b": (0.0, 1.0)})
    ) == MissingScores("a", 1, 4)


def test_a_whole_group_counts_only_for_the_only_function() -> None:
    found = worst_gaps(table({"a": (None, None)}, {"a": (1.0, 0.0)}))
    assert found is not None
    assert found.share == 0.5


def test_a_table_without_scores_says_nothing() -> None:
    assert worst_gaps(table({})) is None


def test_a_group_that_no_function_scored_counts_for_all() -> None:
    found = worst_gaps(table({"a": (None, None), "b": (None, None), "advantage": (0.0, 0.0)}))
    assert found is not None
    assert (found.unscored, found.completions) == (2, 2)
