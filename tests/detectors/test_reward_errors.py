"""Rewards that could not be computed: how many of a batch, and what is not known."""

from __future__ import annotations

from tests.support.detecting import Watched
from tests.support.records import evaluation, row


def test_rewards_that_fail_no_more_count_as_none() -> None:
    """Half fail for twelve rows, then rows without the count: it fires, and is over 10 steps after the last breach."""
    run = Watched("reward-errors", generation_batch_size=10)
    run.feed_all(row(step, reward_failures=5.0, reward_mean=0.3) for step in range(1, 13))
    assert run.changes == [("firing", 12, "warning")]
    run.feed_all(row(step, reward_mean=0.3) for step in range(13, 40))
    assert [change[0] for change in run.changes] == ["firing", "resolved"]


def test_an_unknown_batch_is_not_guessed() -> None:
    run = Watched("reward-errors").feed_all(row(step, reward_failures=5.0) for step in range(1, 20))
    assert run.changes == []
    assert run.blind_reason.startswith("how many completions a step has is not known")


def test_rows_that_use_a_batch_again_say_nothing() -> None:
    """Two optimizer steps per batch: only rows with a reward hold the failures of a batch, half of ten completions."""
    run = Watched("reward-errors", generation_batch_size=10)
    for step in range(1, 30):
        again = step % 2 == 0
        run.feed(row(step, loss=0.1) if again else row(step, reward_failures=5.0, reward_mean=0.3))
    assert run.changes == [("firing", 23, "warning")]


def test_rows_of_validations_are_left_out() -> None:
    """Every second row is an evaluation's, with the failures of both; the others have none."""
    run = Watched("reward-errors", generation_batch_size=10)
    for step in range(1, 80):
        run.feed_all([evaluation(step, math=0.4)] if step % 2 else [])
        run.feed(row(step, reward_mean=0.3, **({"reward_failures": 8.0} if step % 2 else {})))
    assert run.changes == []


def test_what_dynamic_sampling_drew_is_scored() -> None:
    """90 failures are more than the 32 completions trained on, and less than a fifth of the 480 drawn."""
    rows = [row(step, reward_failures=90.0, reward_mean=0.3) for step in range(1, 30)]
    known = {"prompts_per_step": 4, "num_generations": 8}
    assert Watched("reward-errors", **known).feed_all(rows).changes == [("firing", 12, "warning")]
    assert Watched("reward-errors", prompts_drawn=60, **known).feed_all(rows).changes == []


def test_a_reward_that_rises_from_the_first_row_on_is_left_alone() -> None:
    rows = [row(step, reward_failures=3.0, reward_mean=0.1 + 0.02 * step) for step in range(1, 40)]
    assert Watched("reward-errors", generation_batch_size=10).feed_all(rows).changes == []
