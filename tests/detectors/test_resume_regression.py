"""Restarts that go on, and restarts that lost something."""

from __future__ import annotations

from grpo_watch.engine.records import MetricRow
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "resume-regression"


def before(last: int = 50) -> list[MetricRow]:
    """Reward 0.01 a step, KL 0.001 a step, an epoch every 100 steps."""
    return [
        row(s, reward_mean=s / 100, kl_reference=s / 1000, learning_rate=1e-6, epoch=s / 100) for s in range(1, last)
    ]


def after(at: int = 41, **changes: float) -> list[MetricRow]:
    """The same again from ``at`` on, but for what changed."""
    rows = []
    for s in range(at, at + 20):
        same = {"reward_mean": s / 100, "kl_reference": s / 1000, "learning_rate": 1e-6, "epoch": s / 100}
        rows.append(row(s, 2, **{**same, **changes}))
    return rows


def test_a_good_resume_is_quiet_with_repeated_steps_or_without() -> None:
    assert Watched(RULE).feed(*before(), *after()).changes == []
    assert Watched(RULE).feed(*before(), *after(50)).changes == []


def test_kl_back_at_its_start_is_enough() -> None:
    """Step 50 is the tenth row of the new attempt."""
    run = Watched(RULE).feed(*before(), *after(kl_reference=1e-4))
    assert run.changes == [("firing", 50, "warning")]
    assert "base model" in run.said[-1].reading.message


def test_one_other_sign_is_an_info_two_are_a_warning() -> None:
    assert Watched(RULE).feed(*before(), *after(learning_rate=5e-7)).changes == [("firing", 50, "info")]
    assert Watched(RULE).feed(*before(), *after(reward_mean=0.2)).changes == [("firing", 50, "info")]
    both = after(learning_rate=5e-7, reward_mean=0.05)
    assert Watched(RULE).feed(*before(), *both).changes == [("firing", 50, "warning")]
    assert Watched(RULE).feed(*before(), *after(epoch=0.01)).changes == [("firing", 50, "info")]


def test_a_reward_back_at_its_start_is_enough() -> None:
    """From 0.36 (steps 31 to 40) to 0.05, where the run began; 0.2 above is half of the gain."""
    run = Watched(RULE).feed(*before(), *after(reward_mean=0.05))
    assert run.changes == [("firing", 50, "warning")]


def test_a_rate_that_differs_by_a_tenth_is_the_schedule() -> None:
    assert Watched(RULE).feed(*before(), *after(learning_rate=1.1e-6)).changes == []


def test_a_run_that_starts_over_is_no_resume() -> None:
    run = Watched(RULE).feed(*before(), *after(1))
    assert run.changes == []


def test_without_a_restart_it_says_why() -> None:
    run = Watched(RULE).feed(*before())
    assert run.blind_reason == "the run was not restarted"


def test_every_restart_is_judged() -> None:
    """The second one loses the weights."""
    third = [r._replace(attempt=3) for r in after(55, kl_reference=1e-4)]
    run = Watched(RULE).feed(*before(), *after(), *third)
    assert [(change[0], change[1]) for change in run.changes] == [("firing", 64)]


def test_a_fall_within_noise_or_of_an_earlier_restart_is_no_lost_reward() -> None:
    """The rate alone is an info: rewards of 0.27 to 0.35 to 0.14 (noise 0.18), and a third attempt without rewards."""
    rows = [row(s, reward_mean=0.1, learning_rate=1e-6) for s in range(1, 11)]
    rows += [row(s, reward_mean=(0.27, 0.31, 0.35)[s % 3], learning_rate=1e-6) for s in range(11, 41)]
    second = [row(s, 2, reward_mean=0.14, learning_rate=2e-6) for s in range(41, 51)]
    assert Watched(RULE).feed(*rows, *second).changes == [("firing", 50, "info")]
    second = [row(s, 2, reward_mean=0.14, learning_rate=1e-6) for s in range(41, 61)]
    third = [row(s, 3, learning_rate=3e-6) for s in range(61, 81)]
    assert Watched(RULE).feed(*rows, *second, *third).changes == [("firing", 70, "info")]
