"""A reward that is lost, and what agrees with it."""

from __future__ import annotations

import random

import pytest

from grpo_watch.engine.records import Tick
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "reward-collapse"


def fed(rewards: list[float], every: int = 1, **more: tuple[float, float]) -> Watched:
    """Rows every ``every`` steps; other metrics have one value for the first thirty rows and another one after."""
    return Watched(RULE).feed_all(
        row(n * every, reward_mean=value, **{name: pair[n > 30] for name, pair in more.items()})
        for n, value in enumerate(rewards, 1)
    )


def test_alone_it_is_a_warning() -> None:
    """Two thirds are lost at row 34, whose window of three begins at 32; ten steps on it fires."""
    run = fed([0.9] * 30 + [0.0] * 30)
    assert run.changes == [("firing", 42, "warning")]
    assert run.said[-1].first_step == 32
    assert run.headline == ""


def on_levels(rewards: list[float], levels: list[float], key: str = "curriculum_stage") -> Watched:
    """Rows with a reward and the level of the tasks."""
    pairs = enumerate(zip(rewards, levels, strict=True), 1)
    return Watched(RULE).feed_all(row(n, reward_mean=reward)._replace(raw={key: level}) for n, (reward, level) in pairs)


@pytest.mark.parametrize(
    ("key", "levels", "fires"),
    [
        ("curriculum/level", (1.0, 2.0), False),
        ("curriculum/level", (2.0, 1.0), True),
        ("curriculum", (0.4, 0.5), True),
        ("level", (30.0, 40.0), True),
    ],
    ids=["harder tasks", "easier tasks", "no level", "level of a logger"],
)
def test_a_fall_with_harder_tasks_is_no_collapse(key: str, levels: tuple[float, float], fires: bool) -> None:  # noqa: FBT001
    run = on_levels([0.9] * 30 + [0.1] * 30, [levels[0]] * 30 + [levels[1]] * 30, key)
    assert bool(run.changes) is fires


def test_a_reward_that_stays_at_the_floor_of_harder_tasks_has_collapsed() -> None:
    """Ten rows at less than a tenth of 0.9 bring the best back, in row 40, whose window of three begins at 38."""
    assert on_levels([0.9] * 30 + [0.08] * 30, [1.0] * 30 + [2.0] * 30).changes == [("firing", 48, "warning")]
    assert on_levels([-0.1] * 30 + [-1.1] * 30, [1.0] * 30 + [2.0] * 30).changes == [("firing", 48, "warning")]


def test_a_collapse_on_harder_tasks_is_one() -> None:
    """Two thirds of 0.5 are lost by five rows at 0.1, in row 65."""
    changes = on_levels([0.9] * 30 + [0.5] * 30 + [0.1] * 30, [1.0] * 30 + [2.0] * 60).changes
    assert changes == [("firing", 73, "warning")]


def test_a_counter_of_rows_is_no_level() -> None:
    assert on_levels([0.9] * 30 + [0.1] * 30, [float(n) for n in range(60)]).changes == [("firing", 42, "warning")]


def test_harder_tasks_end_no_collapse_that_came_before_them() -> None:
    """Two thirds of 0.9 are lost by five rows at 0.2, in row 35; the window of three begins at 33."""
    assert on_levels([0.9] * 30 + [0.2] * 60, [1.0] * 36 + [2.0] * 54).changes == [("firing", 43, "warning")]
    assert on_levels([0.9] * 30 + [0.2] * 60, [1.0] * 60 + [2.0] * 30).changes == [("firing", 43, "warning")]


def test_a_resume_from_before_harder_tasks_meets_them_again() -> None:
    run = on_levels([0.9] * 30 + [0.2] * 15, [1.0] * 30 + [2.0] * 15)
    run.state.begin_attempt(2, 20)
    again = [(0.9, 1.0)] * 15 + [(0.2, 2.0)] * 30
    run.feed_all(
        row(n, reward_mean=reward)._replace(raw={"curriculum_stage": level})
        for n, (reward, level) in enumerate(again, 20)
    )
    assert run.changes == []


def test_a_reward_that_only_ever_fell_asks_for_the_sign() -> None:
    """One that had risen first asks for the checkpoint before the fall instead, as the rule's own hint does."""
    falls = fed([0.5 - 0.02 * n + 0.005 * (n % 3) for n in range(24)])
    assert "sign of the reward" in falls.said[-1].reading.hint
    rises = fed([0.1 + 0.02 * n for n in range(30)] + [0.1] * 20)
    assert rises.said[-1].reading.hint == ""


@pytest.mark.parametrize(
    "agreeing",
    [
        {"entropy": (1.0, 0.1)},
        {"entropy": (0.2, 2.0)},
        {"completion_length_mean": (200.0, 5.0)},
        {"completion_length_mean": (200.0, 400.0)},
        {"completion_truncated_ratio": (0.0, 1.0)},
        {"kl_reference": (0.1, 2.0)},
    ],
    ids=str,
)
def test_critical_with_entropy_length_or_kl(agreeing: dict[str, tuple[float, float]]) -> None:
    assert fed([0.9] * 30 + [0.0] * 30, **agreeing).changes == [("firing", 42, "critical")]


def test_lost_spread_is_the_same_thing_and_does_not_agree() -> None:
    """Groups of one reward each, but not all of the same."""
    low = [0.0, 0.1] * 15
    assert fed([0.9] * 30 + low, reward_zero_std_ratio=(0.2, 1.0)).changes == [("firing", 42, "warning")]


@pytest.mark.parametrize(("value", "best"), [(0.0, 0.9), (0.25, 1.0), (-1.0, 0.5)])
def test_one_reward_for_every_completion_is_a_broken_function(value: float, best: float) -> None:
    """From one row to the next, and the policy goes on: nothing to go back for, and nothing to learn from either."""
    run = fed([best] * 30 + [value] * 30, reward_zero_std_ratio=(0.2, 1.0), entropy=(0.5, 0.5))
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "critical")]
    assert "the reward function broke" in run.said[-1].reading.message
    assert "manually" in run.said[-1].reading.hint
    collapsed = fed([best] * 30 + [value] * 30, reward_zero_std_ratio=(0.2, 1.0), entropy=(0.5, 0.01))
    assert "the reward function broke" not in collapsed.said[-1].reading.message


def test_no_policy_is_called_unchanged_of_which_nothing_is_logged() -> None:
    """A learning rate that is too high does this as well."""
    run = fed([0.5] * 30 + [0.0] * 30, reward_zero_std_ratio=(0.2, 1.0))
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "critical")]
    assert run.said[-1].reading.message.endswith("the reward function or the policy broke")


def test_rows_every_five_steps_fire_after_ten_steps() -> None:
    """Row 34 is step 170; its window of three began at 160."""
    assert fed([0.9] * 30 + [0.0] * 10, every=5).changes == [("firing", 170, "warning")]


def test_a_third_of_the_best_may_stay() -> None:
    assert fed([0.9] * 30 + [0.31] * 40).changes == []
    assert fed([0.9] * 30 + [0.3] * 40).changes == [("firing", 43, "warning")]


def test_noise_of_sparse_rewards_is_no_collapse() -> None:
    """One in ten rows is rewarded: long stretches of nothing follow lucky ones."""
    rng = random.Random(7)
    assert fed([float(rng.random() < 0.1) for _ in range(3000)]).changes == []


def test_noise_of_four_completions_is_no_collapse() -> None:
    rng = random.Random(8)
    assert fed([sum(rng.random() < 0.4 for _ in range(4)) / 4 for _ in range(3000)]).changes == []


def test_the_best_survives_a_resume() -> None:
    run = fed([0.9] * 30)
    run.feed_all(row(n, attempt=2, reward_mean=0.0) for n in range(21, 50))
    assert run.changes == [("firing", 33, "warning")]


def test_a_new_beginning_has_its_own_best() -> None:
    run = fed([0.9] * 30)
    run.feed_all(row(n, attempt=2, reward_mean=0.1) for n in range(1, 50))
    assert run.changes == []


def test_a_reward_below_zero_has_no_scale() -> None:
    """-0.3 to -0.5 is no collapse; three times the distance is (from row 33 on, whose window begins at 31)."""
    assert fed([-0.3] * 30 + [-0.5] * 30).changes == []
    assert fed([-0.3] * 30 + [-0.9] * 30).changes == [("firing", 41, "warning")]


@pytest.mark.parametrize("spread", ["reward_batch_std", "reward_group_std"])
@pytest.mark.parametrize("constant", [-10.0, -1.0, 0.0, 100.0])
def test_a_constant_in_every_reward_changes_nothing(constant: float, spread: str) -> None:
    """0.9 with a deviation of 0.3, then 0: at row 33 the mean has fallen by 0.54 of 0.45 needed, whatever is added."""
    run = fed([constant + 0.9] * 30 + [constant] * 30, **{spread: (0.3, 0.1)})
    assert run.changes == [("firing", 41, "warning")]
    assert run.said[-1].first_step == 31


def test_shifted_rewards_must_fall_by_more_than_completions_lay_apart() -> None:
    """From 101 to 100.35 with a deviation of 0.3 is reported (0.45 is needed), with one of 0.5 it is not (0.75)."""
    assert fed([101.0] * 30 + [100.35] * 30, reward_batch_std=(0.3, 0.3)).changes != []
    assert fed([101.0] * 30 + [100.35] * 30, reward_batch_std=(0.5, 0.1)).changes == []


def test_shifted_rewards_that_keep_what_was_gained_have_not_collapsed() -> None:
    """From 100 up to 104 and back to 102: ten deviations down, half of the gain is kept."""
    rise = [100.0] * 10 + [104.0] * 20
    assert fed([*rise, *[102.0] * 30], reward_batch_std=(0.2, 0.2)).changes == []
    assert fed([*rise, *[101.0] * 30], reward_batch_std=(0.2, 0.2)).changes != []


def test_shifted_rewards_of_one_group_per_row_are_compared_by_means_of_many_rows() -> None:
    """As in a run of single groups above, 100 higher; completions lie 0.5 apart, so 0.75 are needed."""
    rewards = [100.0 + value for value in [1.0, 0.4, 1.6, 0.8, 1.3] * 12 + [0.0] * 40]
    run = Watched(RULE).feed_all(row(n, reward_mean=r, reward_group_std=0.5) for n, r in enumerate(rewards, 1))
    assert run.changes == [("firing", 80, "warning")]


def test_a_large_constant_does_not_hide_the_fall_in_the_message() -> None:
    run = fed([100.9] * 30 + [100.0] * 30, reward_batch_std=(0.3, 0.1))
    assert run.said[-1].reading.message == "reward fell from 100.9 to 100"


def test_a_run_of_single_groups_is_recognised_by_means_of_many_rows() -> None:
    """Rewards of 0.4 to 1.6 around 1.02, then 0: a row's noise is 0.5, so that five rows can't tell.

    At row 80 the mean of 25 rows is 0.20, 0.82 below the best; 6 x 0.47 x sqrt(2 / 25) = 0.80 is needed.
    """
    rewards = [1.0, 0.4, 1.6, 0.8, 1.3] * 12 + [0.0] * 40
    run = Watched("reward-collapse").feed_all(row(n, reward_mean=reward) for n, reward in enumerate(rewards, 1))
    assert run.changes == [("firing", 80, "warning")]
    assert run.said[-1].first_step == 64


def test_what_has_come_back_is_not_lost_though_the_mean_of_many_rows_is_low() -> None:
    """Rows 61 to 85 are 0; the first five rows back at 1.02 are in at row 90; ten steps later it is over."""
    rewards = [1.0, 0.4, 1.6, 0.8, 1.3] * 12 + [0.0] * 25 + [1.0, 0.4, 1.6, 0.8, 1.3] * 12
    run = Watched("reward-collapse").feed_all(row(n, reward_mean=reward) for n, reward in enumerate(rewards, 1))
    assert [state for state, _, _ in run.changes] == ["firing", "resolved"]
    assert run.changes[1][1] <= 100


def ended(rewards: list[float], *, after: float) -> Watched:
    """Rows a second apart, and a tick so many seconds after the newest one."""
    rows = [row(n, reward_mean=value)._replace(time=float(n)) for n, value in enumerate(rewards, 1)]
    return Watched(RULE).feed_all(rows).feed(Tick(len(rows) + after))


def test_a_fall_within_the_last_three_rows_of_a_log() -> None:
    """0.64 for twenty rows, then 0.057: the step of 0.583 makes a noise of 0.088, six errors 0.385."""
    run = ended([0.64] * 20 + [0.057] * 3, after=3600.0)

    assert run.changes == [("firing", 23, "warning")]
    assert run.said[-1].first_step == 21
    assert run.said[-1].reading.message == "reward fell from 0.64 to 0.057 within the last 3 rows of the log"


def test_more_rows_may_still_come() -> None:
    assert ended([0.64] * 20 + [0.057] * 3, after=3599.0).changes == []


@pytest.mark.parametrize("end", [[0.057, 0.057], [0.057, 0.3, 0.057], [0.64, 0.057, 0.2]])
def test_two_low_rows_are_not_enough(end: list[float]) -> None:
    assert ended([0.64] * 20 + end, after=9999.0).changes == []


def test_noise_at_the_end_is_no_fall() -> None:
    assert ended([1.0, 0.0, 1.0, 1.0] * 6 + [0.0] * 3, after=9999.0).changes == []


def test_a_row_after_the_silence_ends_it() -> None:
    run = ended([0.64] * 20 + [0.057] * 3, after=9999.0)
    run.feed_all(row(n, reward_mean=0.64)._replace(time=20000.0) for n in range(24, 60))

    assert [change[0] for change in run.changes] == ["firing", "resolved"]


def test_a_reward_that_stands_still_needs_to_lose_half_only() -> None:
    """60 % of the best, on rows 31 to 50 and on; with rewards that differ, or did repeat before, it is no sign."""
    before = [0.9, 0.8] * 15
    run = fed(before + [0.34] * 40)
    assert [change[0] for change in run.changes] == ["firing"]
    assert run.said[-1].first_step == 31
    assert fed(before + [0.34, 0.35] * 20).changes == []
    assert fed([0.9] * 30 + [0.34] * 40).changes == []
