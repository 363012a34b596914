"""Shrinking completions, with a lost reward or spread."""

from __future__ import annotations

from tests.support.detecting import Watched
from tests.support.records import row

RULE = "length-collapse"


def fed(length: float, reward: float = 0.9, silent: float = 0.2) -> Watched:
    """Twenty usual rows (length 100, reward 0.9, few dead groups), then twenty with these values."""
    early = {"completion_length_mean": 100.0, "reward_mean": 0.9, "reward_zero_std_ratio": 0.2}
    late = {"completion_length_mean": length, "reward_mean": reward, "reward_zero_std_ratio": silent}
    return Watched(RULE).feed_all(row(n, **(early if n <= 20 else late)) for n in range(1, 41))


def test_shorter_and_as_good_is_an_improvement() -> None:
    assert fed(5.0).changes == []


def test_with_a_lost_reward() -> None:
    """The mean is 24 (30 % of 100 at most) at row 24; three breaches."""
    assert fed(5.0, reward=0.0).changes == [("firing", 26, "warning")]


def test_with_a_lost_spread() -> None:
    assert fed(5.0, silent=0.9).changes == [("firing", 26, "warning")]
    assert fed(5.0, silent=0.6).changes == []


def test_a_lost_spread_beside_a_gain_is_that_of_solved_prompts() -> None:
    """Reward 0.3 to 0.9, and 90 % of the groups agree: they are right. Without the gain the mean length is 13 % of
    the longest at row 25, where the spread is lost as well; three breaches.
    """

    def fed_with(best: float) -> Watched:
        rows = [(3000.0, 0.3, 0.1)] * 20 + [(400.0, best, 0.9)] * 30
        return Watched(RULE).feed_all(
            row(n, completion_length_mean=length, reward_mean=reward, reward_zero_std_ratio=silent)
            for n, (length, reward, silent) in enumerate(rows, 1)
        )

    assert fed_with(0.9).changes == []
    assert fed_with(0.3).changes == [("firing", 27, "warning")]


def test_thirty_percent_is_the_bar() -> None:
    """Reached at row 25."""
    assert fed(29.0, reward=0.0).changes == [("firing", 27, "warning")]
    assert fed(31.0, reward=0.0).changes == []


def test_a_growth_before_counts_as_the_longest() -> None:
    """100 to 1,000 and back to 200: less than 30 % of the longest."""
    run = Watched(RULE)
    lengths = [100.0] * 10 + [1000.0] * 20 + [200.0] * 20
    run.feed_all(
        row(n, completion_length_mean=length, reward_mean=0.9 if n <= 30 else 0.0)
        for n, length in enumerate(lengths, 1)
    )
    assert run.changes == [("firing", 37, "warning")]


def test_the_longest_survives_a_resume() -> None:
    run = Watched(RULE).feed_all(row(n, completion_length_mean=100.0, reward_mean=0.9) for n in range(1, 21))
    run.feed_all(row(n, attempt=2, completion_length_mean=4.0, reward_mean=0.0) for n in range(16, 40))
    assert run.changes == [("firing", 22, "warning")]


def test_an_extreme_shrinking_asks_for_less_certainty_of_the_reward() -> None:
    """The reward of ``test_length_explosion``: six standard errors are never reached, four at row 75.

    A tenth of the longest is extreme (15 % at most), a quarter is not; neither is 30 % of the first.
    """

    def fed_with(length: float) -> Watched:
        rewards = [0.3, 0.7] * 20 + [0.0] * 40
        lengths = [60.0] * 5 + [200.0] * 35 + [length] * 40
        pairs = enumerate(zip(lengths, rewards, strict=True), 1)
        return Watched(RULE).feed_all(row(n, completion_length_mean=long, reward_mean=r) for n, (long, r) in pairs)

    assert fed_with(20.0).changes == [("firing", 77, "warning")]
    assert fed_with(50.0).changes == []


def test_far_shorter_than_at_the_start_with_a_reward_below_it() -> None:
    """A reward of 0.4 after 0.5 is 20 % below its start; 18 % of the first length are left. Mean and median of the
    lengths are 30 % or less from row 25 on (24: 32.8 %), the reward's error is known; three breaches.
    """

    def fed_with(length: float, reward: float) -> Watched:
        rows = [(346.0, 0.5)] * 20 + [(length, reward)] * 20
        return Watched(RULE).feed_all(
            row(n, completion_length_mean=long, reward_mean=r) for n, (long, r) in enumerate(rows, 1)
        )

    assert fed_with(63.0, 0.4).changes == [("firing", 27, "warning")]
    assert fed_with(63.0, 0.48).changes == []
    assert fed_with(120.0, 0.4).changes == []


def test_an_interlude_of_long_completions_ends_without_a_collapse() -> None:
    """100 to 1,000 and back: the first length is healthy with any spread, a shorter one without a spread is not."""

    def back_to(length: float) -> list[tuple[str, int, str]]:
        lengths = [100.0] * 10 + [1000.0] * 20 + [length] * 20
        return (
            Watched(RULE)
            .feed_all(
                row(n, completion_length_mean=at, reward_mean=0.9, reward_zero_std_ratio=0.2 if n <= 30 else 0.9)
                for n, at in enumerate(lengths, 1)
            )
            .changes
        )

    assert back_to(120.0) == []
    assert [change[0] for change in back_to(60.0)] == ["firing"]
