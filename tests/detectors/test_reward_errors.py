"""Rewards that could not be computed: how many of a batch, and what is not known."""

from __future__ import annotations

from tests.support.detecting import Watched
from tests.support.records import row


def test_rewards_that_fail_no_more_count_as_none() -> None:
    """Half fail for six rows, then rows without the count: it fires, and is over 10 steps after the last breach."""
    run = Watched("reward-errors", generation_batch_size=10)
    run.feed_all(row(step, reward_failures=5.0, reward_mean=0.3) for step in range(1, 8))
    assert run.changes == [("firing", 7, "warning")]
    run.feed_all(row(step, reward_mean=0.3) for step in range(8, 40))
    assert [change[0] for change in run.changes] == ["firing", "resolved"]


def test_an_unknown_batch_is_not_guessed() -> None:
    run = Watched("reward-errors").feed_all(row(step, reward_failures=5.0) for step in range(1, 20))
    assert run.changes == []
    assert run.blind_reason.startswith("how many completions a step has is not known")


def test_rows_that_use_a_batch_again_say_nothing() -> None:
    """Two optimizer steps per batch: only rows with a reward hold the failures of a batch, half of ten completions."""
    run = Watched("reward-errors", generation_batch_size=10)
    for step in range(1, 20):
        again = step % 2 == 0
        run.feed(row(step, loss=0.1) if again else row(step, reward_failures=5.0, reward_mean=0.3))
    assert run.changes == [("firing", 13, "warning")]
