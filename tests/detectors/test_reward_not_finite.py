"""Scores that are none: in rows, in tables, in the console."""

from __future__ import annotations

import math

import pytest

from grpo_watch.engine.records import CompletionSummary, EventKind, RunEvent
from tests.support.detecting import Watched
from tests.support.records import a_group, row

RULE = "reward-not-finite"
NAN = math.nan
MATH, CODE = "reward_function_mean[math]", "reward_function_mean[code]"


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, None])
def test_one_row_is_an_info_two_are_a_warning(value: float | None) -> None:
    """The second row in a row escalates; it ends ten steps after the last."""
    run = Watched(RULE).feed_all(row(s, reward_mean=0.5) for s in range(1, 5))
    run.feed(row(5, reward_mean=value), row(6, reward_mean=value))
    assert run.changes == [("firing", 5, "info"), ("firing", 6, "warning")]
    run.feed_all(row(s, reward_mean=0.5) for s in range(7, 20))
    assert run.changes[-1] == ("resolved", 16, "warning")


def test_the_only_function_is_nan_while_the_total_says_zero() -> None:
    """TRL 0.24 logs reward 0.0 for a batch of NaN."""
    run = Watched(RULE).feed_all(row(s, reward_mean=0.0, **{MATH: NAN}) for s in (1, 2))
    assert run.changes == [("firing", 1, "info"), ("firing", 2, "warning")]


def test_of_many_functions_eight_are_named() -> None:
    scores = {f"reward_function_mean[f{number}]": NAN for number in range(1_000)}
    run = Watched(RULE).feed(row(1, reward_mean=NAN, **scores))
    assert run.said[-1].reading.message == (
        "reward: " + ", ".join(f"f{number} is nan" for number in range(8)) + ", and 993 more"
    )


def test_a_task_of_its_own_is_no_fault() -> None:
    """The function is NaN by turns from the start, and the total is finite (ms-swift#4653)."""
    scores = [NAN, 0.5, NAN, NAN, 0.4] * 10
    run = Watched(RULE).feed_all(row(s, reward_mean=0.3, **{MATH: v, CODE: 0.2}) for s, v in enumerate(scores, 1))
    assert run.changes == []


def test_a_function_that_used_to_score_is_judged() -> None:
    """Ten finite rows make it one that is meant for every sample."""
    scores = [0.5] * 10 + [NAN] * 3
    run = Watched(RULE).feed_all(row(s, reward_mean=0.3, **{MATH: v, CODE: 0.2}) for s, v in enumerate(scores, 1))
    assert run.changes == [("firing", 11, "info"), ("firing", 12, "warning")]


def test_an_infinite_score_is_never_a_task_of_its_own() -> None:
    """It takes the advantages of its whole group."""
    run = Watched(RULE).feed(row(1, reward_mean=0.3, **{MATH: math.inf, CODE: 0.2}))
    assert run.changes == [("firing", 1, "info")]


@pytest.mark.parametrize(("missing", "severity"), [(1, "info"), (2, "warning")])
def test_a_table_with_unscored_completions(missing: int, severity: str) -> None:
    """1 of 12 is below a tenth, 2 of 12 are above."""
    scores = tuple([None] * missing + [1.0] * (12 - missing))
    group = a_group(tuple(range(12)), rewards={"math": scores})
    run = Watched(RULE).feed(CompletionSummary("completions", 3, (group,)))
    assert run.changes == [("firing", 3, severity)]
    assert f"{missing} of 12" in run.said[-1].reading.message


def test_a_group_of_another_task_is_not_counted() -> None:
    """Each of two functions scores its own prompts."""
    one = a_group((0, 1), "a", rewards={"math": (None, None), "code": (1.0, 0.0)})
    two = a_group((0, 1), "b", rewards={"math": (1.0, 0.0), "code": (NAN, NAN)})
    run = Watched(RULE).feed(CompletionSummary("completions", 3, (one, two)))
    assert run.changes == []
    assert run.monitor.evaluated


def test_the_frameworks_complaint_mentions_the_next_step() -> None:
    """It is printed while the batch after the last logged step is scored."""
    said = RunEvent("log", EventKind.REWARD_NONE, 30, "All reward functions returned None")
    run = Watched(RULE).feed(row(30, reward_mean=0.5), said, row(31, reward_mean=None))
    assert run.changes == [("firing", 31, "info"), ("firing", 31, "warning")]


def test_rows_without_rewards_say_nothing() -> None:
    run = Watched(RULE).feed(row(1, loss=NAN), RunEvent("log", EventKind.FINISHED))
    assert run.said == []
    assert not run.monitor.evaluated


def test_a_function_that_never_scored_is_reported() -> None:
    """Each completion gets None from it, and the total, which leaves it out, looks well. Its first score ends it."""
    run = Watched(RULE).feed_all(row(s, reward_mean=0.3, **{MATH: None, CODE: 0.2}) for s in range(1, 20))
    assert run.changes == []
    assert run.blind_reason == "math has not returned a single score yet"
    assert not run.monitor.evaluated
    run.feed(row(20, reward_mean=0.3, **{MATH: None, CODE: 0.2}))
    assert run.changes == [("firing", 20, "warning")]
    assert "math returned no score for any completion in 20 rows" in run.said[-1].reading.message
    run.feed_all(row(s, reward_mean=0.3, **{MATH: 0.1, CODE: 0.2}) for s in range(21, 40))
    assert run.changes[-1][0] == "resolved"


def test_a_table_that_nobody_scored() -> None:
    """None from the only function, and advantages of 0 beside it (TRL 1.16.0)."""
    group = a_group((0, 1), rewards={"math": (None, None), "advantage": (0.0, 0.0)})
    run = Watched(RULE).feed(CompletionSummary("completions", 3, (group,)))
    assert run.changes == [("firing", 3, "warning")]


def table(step: int, *scores: float) -> CompletionSummary:
    return CompletionSummary("completions", step, (a_group((0, 1, 2, 3), str(step), rewards={"f": scores}),))


def test_a_score_that_stands_for_none_hides_the_others() -> None:
    """The fifth such group fires; it is over after 20 batches without one."""
    run = Watched(RULE).feed_all(table(s, -1e6 if s % 2 else 0.4, 0.1, 0.3, 0.2) for s in range(1, 10))
    assert run.changes == [("firing", 9, "warning")]
    assert run.headline == "One score hides all others"
    run.feed_all(table(s, 0.4, 0.1, 0.3, 0.2) for s in range(10, 30))
    assert [state for state, _, _ in run.changes] == ["firing", "resolved"]


@pytest.mark.parametrize(
    "scores", [(-1e6, 0.2, 0.2, 0.2), (-1.0, 0.99991, 0.99992, 0.99993), (0.0, 1e4, 3e4, 1e6), (1e3, 1e-9, 0.0, 0.0)]
)
def test_far_scores_that_hide_nothing(scores: tuple[float, ...]) -> None:
    """The others are equal, but for rounding at least; or the penalty is of their size; or all are large."""
    assert Watched(RULE).feed_all(table(s, *scores) for s in range(1, 40)).changes == []


def test_a_rare_prize_or_an_undivided_one_hides_little() -> None:
    """One group of 50; and where the group's deviation does not divide, the others keep their differences."""
    rare = (table(s, 1e4 if s % 50 == 1 else 0.4, 0.1, 0.3, 0.2) for s in range(1, 1000))
    assert Watched(RULE).feed_all(rare).changes == []
    undivided = (table(s, 1e4, 0.1, 0.3, 0.2) for s in range(1, 40))
    assert Watched(RULE, scale_rewards="none").feed_all(undivided).changes == []


def test_a_new_attempt_counts_from_the_start() -> None:
    """Four such groups before the crash do not add to those after it."""
    run = Watched(RULE).feed_all(table(s, -1e6, 0.1, 0.3, 0.2) for s in range(1, 5))
    assert run.feed(row(5, attempt=2, reward_mean=0.3), table(5, -1e6, 0.1, 0.3, 0.2)).changes == []
    assert run.feed_all(table(s, -1e6, 0.1, 0.3, 0.2) for s in range(6, 10)).changes == [("firing", 9, "warning")]
