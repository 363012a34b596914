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


def test_what_the_framework_reports_and_the_tables_show_is_one_alert() -> None:
    said = RunEvent("log", EventKind.REWARD_NONE, 1, "All reward functions returned None")
    tables = [
        CompletionSummary("completions", step, (a_group((0, 1), rewards={"math": (score, 1.0)}),))
        for step, score in ((1, 1.0), (2, None))
    ]
    run = Watched(RULE).feed(tables[0], said, tables[1])
    assert {each.key for each in run.said if each.to_state.value == "firing"} == {"completions"}


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
