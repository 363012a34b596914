"""Entropy against its own start, with a second sign."""

from __future__ import annotations

import pytest

from tests.support.detecting import Watched
from tests.support.records import a_batch, row

RULE = "entropy-collapse"


def fed(low: float = 0.1, **late: float) -> Watched:
    """Ten rows at entropy 1 and then twenty at ``low``; other metrics are 0 (reward 0.9) before that."""
    early = {name: 0.9 if name == "reward_mean" else 0.0 for name in late}
    rows = [row(n, entropy=1.0, **early) for n in range(1, 11)]
    return Watched(RULE).feed_all(rows + [row(n, entropy=low, **late) for n in range(11, 31)])


def test_never_by_its_level_alone() -> None:
    run = fed(0.0)
    assert run.changes == []
    assert "are unaffected" in run.blind_reason


def test_a_fifth_of_the_start_is_the_bar() -> None:
    """The mean of five is below 0.2 at row 15 (0.19), where three breaches later it fires; 0.2 is not below."""
    assert fed(0.19, reward_zero_std_ratio=1.0).changes == [("firing", 17, "critical")]
    assert fed(0.21, reward_zero_std_ratio=1.0).changes == []


@pytest.mark.parametrize(
    ("late", "severity"),
    [
        ({"reward_zero_std_ratio": 0.3}, "warning"),
        ({"completion_duplicate_ratio": 0.3}, "warning"),
        ({"reward_mean": 0.5}, "warning"),
        ({"completion_truncated_ratio": 1.0}, "warning"),
        ({"reward_zero_std_ratio": 0.8}, "critical"),
        ({"completion_duplicate_ratio": 0.8}, "critical"),
        ({"reward_mean": 0.0}, "critical"),
    ],
    ids=str,
)
def test_signs_and_their_weight(late: dict[str, float], severity: str) -> None:
    assert [change[2] for change in fed(**late).changes][-1:] == [severity]


def test_where_no_row_shows_the_groups_next_to_no_choice_is_enough() -> None:
    """At 0.0015 nats, one token in 600 is drawn by chance; groups that are known to differ refute it."""
    assert [change[2] for change in fed(0.0015).changes] == ["warning"]
    assert fed(0.0025).changes == []
    assert fed(0.0015, reward_zero_std_ratio=0.1).changes == []


@pytest.mark.parametrize(
    "late", [{"reward_zero_std_ratio": 0.15}, {"reward_mean": 0.7}, {"completion_truncated_ratio": 0.4}], ids=str
)
def test_small_changes_are_no_signs(late: dict[str, float]) -> None:
    assert fed(**late).changes == []


def test_repeated_texts_of_dumped_batches_agree() -> None:
    """No metric tells, the completions do."""
    run = Watched(RULE)
    for n in range(1, 31):
        run.feed(row(n, entropy=1.0 if n <= 10 else 0.05))
        run.feed(a_batch(n, (0, 1, 2, 3) if n <= 10 else (0, 0, 0, 0)))
    assert [change[2] for change in run.changes][-1:] == ["critical"]


def test_the_start_survives_a_resume() -> None:
    """A resumed run is compared with the policy that training began with, not with the collapsed one."""
    run = Watched(RULE).feed_all(row(n, entropy=1.0, reward_zero_std_ratio=0.0) for n in range(1, 21))
    run.feed_all(row(n, attempt=2, entropy=0.05, reward_zero_std_ratio=1.0) for n in range(16, 30))
    assert run.changes == [("firing", 22, "critical")]


def test_near_zero_from_the_start_cannot_fall() -> None:
    run = Watched(RULE).feed_all(row(n, entropy=0.01 / n, reward_zero_std_ratio=min(1.0, n / 20)) for n in range(1, 60))
    assert run.changes == []
    assert not run.monitor.evaluated


def test_a_solved_run_is_no_emergency() -> None:
    """Entropy falls from 1 to 0.05 and the groups lose their spread while the reward rises from 0.2 to 1: a warning."""

    def fed_with(reward: float) -> Watched:
        return Watched(RULE).feed_all(
            row(
                n,
                entropy=1.0 if n <= 20 else 0.05,
                reward_zero_std_ratio=0.1 if n <= 20 else 1.0,
                reward_mean=0.2 if n <= 20 else reward,
            )
            for n in range(1, 61)
        )

    assert {severity for _, _, severity in fed_with(1.0).changes} == {"warning"}
    assert {severity for _, _, severity in fed_with(0.2).changes} == {"critical"}


def test_a_task_that_is_solved_within_a_window_is_no_emergency() -> None:
    """So fast that no window of rows shows the gain; a completion in a hundred is still wrong."""
    first = [(0.68, 0.2, 0.77), (0.8, 0.4, 0.59), (0.93, 0.64, 0.23), (0.98, 0.74, 0.15)]
    rows = first + [(0.99 + 0.01 * (n % 2), 0.97, 0.005) for n in range(40)]
    run = Watched(RULE).feed_all(
        row(n, reward_mean=reward, reward_zero_std_ratio=silent, entropy=entropy)
        for n, (reward, silent, entropy) in enumerate(rows, 1)
    )
    assert {severity for _, _, severity in run.changes} == {"warning"}
