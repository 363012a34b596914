"""The age of samples: bounds, a queue that fills up, and the frameworks that log it."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import ChannelKind, RawRow
from grpo_watch.frameworks.resolver import Resolver
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "samples-too-stale"


@pytest.mark.parametrize(
    ("keys", "age"),
    [
        ({"sample/staleness_mean": 1.5, "perf/fwd_bwd_s": 2.0, "reward": 0.5, "loss": 0.1}, 1.5),
        (
            {
                "critic/score/mean": 0.5,
                "critic/advantages/max": 1.0,
                "training/off_policy/trajectory_staleness/mean": 3.0,
            },
            3.0,
        ),
        ({"policy/policy_loss": 0.1, "async/staleness_mean": 2.0}, 2.0),
        ({"ppo_actor/task_reward/avg": 0.5, "ppo_actor/update/version_stats/sample_staleness_theta_avg": 1.25}, 1.25),
        ({"Reward": 0.5, "Seq. Length": 9.0, "Async Level": 1.0, "off_policy_level/all/mean": 2.5}, 2.5),
        ({"env/all/reward/total": 0.5, "async/staleness_mean": 4.0}, 4.0),
        ({"rollout/raw_reward": 0.5, "rollout/weight_version/mean": 7.5, "rollout/weight_version/max": 9.0}, 1.5),
    ],
    ids=["trl", "verl", "skyrl", "areal", "prime-rl", "tinker-cookbook", "slime"],
)
def test_each_framework_says_it_in_its_own_key(keys: dict[str, float], age: float) -> None:
    resolved = Resolver().resolve(RawRow("log", ChannelKind.JSONL, 1, keys))
    assert resolved.values["sample_staleness_steps"] == age


def test_an_async_trl_run_has_no_reference_kl() -> None:
    """Its `kl` is that of the policy to the one that generated."""
    keys = {"sample/staleness_mean": 1.0, "kl": 0.01, "reward": 0.5, "loss": 0.1}
    values = Resolver().resolve(RawRow("log", ChannelKind.JSONL, 1, keys)).values
    assert values["kl_policy_update"] == 0.01
    assert "kl_reference" not in values


def test_rows_without_the_key_hold_the_state() -> None:
    run = Watched(RULE, max_staleness=2).feed_all(row(step, sample_staleness_steps=5.0) for step in range(1, 8))
    run.feed_all(row(step, reward_mean=0.1) for step in range(8, 40))
    assert run.changes == [("firing", 7, "warning")]


def test_half_of_the_samples_may_be_older_than_the_bound_for_a_row() -> None:
    """One old batch after a slow step is no trend."""
    ages = [1.0] * 10 + [30.0, 30.0] + [1.0] * 10
    run = Watched(RULE, max_staleness=4).feed_all(row(at, sample_staleness_steps=age) for at, age in enumerate(ages, 1))
    assert run.changes == []
