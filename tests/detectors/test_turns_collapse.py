"""Agents that give up their tools, and those that never used them."""

from __future__ import annotations

import pytest

from tests.support.detecting import Watched
from tests.support.records import row


def test_calls_that_were_never_made_are_not_given_up() -> None:
    run = Watched("turns-collapse").feed_all(
        row(step, tool_calls_mean=0.2 if step < 20 else 0.0) for step in range(1, 60)
    )
    assert run.changes == []
    assert run.blind_reason == "the model used no tools at the start"


def test_calls_count_where_turns_are_logged_too() -> None:
    """The turns stay, as another part of the environment answers; the calls end."""
    rows = [row(at, tool_calls_mean=3.0 if at <= 20 else 0.0, turns_mean=5.0) for at in range(1, 60)]
    assert Watched("turns-collapse").feed_all(rows).changes == [("firing", 28, "warning")]


def test_broken_tools_explain_it() -> None:
    assert Watched("turns-collapse").monitor.detector.explained_by == ("tool-failures",)


@pytest.mark.parametrize(("reward", "fires"), [(0.96, False), (0.6, True)])
def test_tasks_that_were_solved_from_the_start_need_no_tools(reward: float, fires: bool) -> None:  # noqa: FBT001
    rows = [row(at, tool_calls_mean=1.5 if at < 25 else 0.0, reward_mean=reward + 0.01 * (at % 3)) for at in range(60)]
    assert bool(Watched("turns-collapse").feed_all(rows).changes) is fires
