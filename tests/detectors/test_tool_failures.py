"""Failing tools: the keys of each framework, and failures that fade."""

from __future__ import annotations

import random

import pytest

from grpo_watch.engine.records import ChannelKind, RawRow, RunConfig, Setting
from grpo_watch.frameworks.resolver import Resolver
from tests.support.detecting import Watched
from tests.support.records import row


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (
            {
                "completions/mean_length": 9.0,
                "num_tokens": 9.0,
                "tools/failure_frequency": 0.2,
                "tools/call_frequency": 3.0,
            },
            {"tool_failure_ratio": 0.2, "tool_calls_mean": 3.0},
        ),
        (
            {"actor/pg_clipfrac": 0.0, "actor/ppo_kl": 0.0, "num_turns/mean": 4.0, "tool_call_counts/mean": 1.5},
            {"turns_mean": 4.0, "tool_calls_mean": 1.5},
        ),
        (
            {"Reward": 0.5, "Seq. Length": 9.0, "Async Level": 1.0, "errored_rollouts/all": 0.5},
            {"tool_failure_ratio": 0.5},
        ),
        ({"train/gen_kl_error": 0.1, "train/avg_turns_per_sample": 2.5}, {"turns_mean": 2.5}),
        ({"env/all/reward/total": 0.5, "env/all/turns_per_episode": 3.0}, {"turns_mean": 3.0}),
    ],
    ids=["trl", "verl", "prime-rl", "nemo-rl", "tinker-cookbook"],
)
def test_each_framework_says_it_in_its_own_key(keys: dict[str, float], found: dict[str, float]) -> None:
    values = Resolver().resolve(RawRow("log", ChannelKind.JSONL, 1, keys)).values
    assert {name: values.get(name) for name in found} == found


def test_failures_that_fade_are_left_alone_until_they_stay() -> None:
    """At 40 half of the twenty rows before the newest ten are at 0.93: their median is 0.965, and no more fades."""
    fading = [1.0] * 20 + [0.93] * 40
    run = Watched("tool-failures").feed_all(row(at, tool_failure_ratio=share) for at, share in enumerate(fading, 1))
    assert run.changes == [("firing", 42, "warning")]


def test_rows_without_the_key_hold_the_state() -> None:
    run = Watched("tool-failures").feed_all(row(step, tool_failure_ratio=1.0) for step in range(1, 33))
    assert run.changes == [("firing", 32, "warning")]
    run.feed_all(row(step, entropy=1.0) for step in range(33, 99))
    assert len(run.changes) == 1


def test_numbers_of_rollouts_are_no_shares() -> None:
    """One or two rollouts in error per step, of hundreds."""
    rows = [row(step, tool_failure_ratio=2.0 if step % 5 == 0 else 1.0) for step in range(1, 99)]
    run = Watched("tool-failures").feed_all(rows)
    assert run.changes == []
    assert run.blind_reason == "failures are logged as numbers, not as shares"


def test_prime_rl_counts_rollouts() -> None:
    run = Watched("tool-failures").feed(RunConfig("prime-rl", None, {}))
    run.feed_all(row(step, tool_failure_ratio=1.0) for step in range(1, 33))
    assert run.said[-1].reading.message.startswith("100% of the rollouts end in an error")


@pytest.mark.parametrize(("first", "fires"), [(0.8, False), (0.5, True)])
def test_a_share_below_nearly_all_must_have_risen(first: float, fires: bool) -> None:  # noqa: FBT001
    """An agent that always fails at four calls in five is no environment that broke."""
    shares = [first] * 30 + [0.8] * 60
    run = Watched("tool-failures").feed_all(row(at, tool_failure_ratio=share) for at, share in enumerate(shares, 1))
    assert bool(run.changes) is fires


@pytest.mark.parametrize(("calls", "fires"), [(0.05, False), (1.0, True)])
def test_hardly_any_calls_may_fail(calls: float, fires: bool) -> None:  # noqa: FBT001
    rows = [row(at, tool_failure_ratio=1.0, tool_calls_mean=calls) for at in range(1, 60)]
    assert bool(Watched("tool-failures").feed_all(rows).changes) is fires


@pytest.mark.parametrize(("best", "fires"), [(0.5, False), (0.1, True)])
def test_a_slow_gain_in_much_noise_is_one(best: float, fires: bool) -> None:  # noqa: FBT001
    """Calls break at step 100; the reward, 0.2 to 0.5 with a noise of 0.12, goes on rising or falls to its start."""
    rng = random.Random(5)
    means = [0.2 + 0.003 * at if at <= 100 else best for at in range(1, 161)]
    rows = [
        row(at, tool_failure_ratio=0.1 if at <= 100 else 0.95, reward_mean=rng.gauss(mean, 0.12))
        for at, mean in enumerate(means, 1)
    ]
    assert bool(Watched("tool-failures").feed_all(rows).changes) is fires


@pytest.mark.parametrize(("settings", "fires"), [({}, True), ({"parallel_tool_calls": 5}, False)])
def test_a_turn_may_make_several_calls(settings: dict[str, int], fires: bool) -> None:  # noqa: FBT001
    """64 rollouts of four turns make 64 calls, or 320 where each turn makes five: then 64 errors are a fifth."""
    config = {name: Setting(value, "config") for name, value in {"generation_batch_size": 64, **settings}.items()}
    run = Watched("tool-failures").feed(RunConfig("verl", None, config))
    rows = [row(at, tool_errors=64.0, turns_mean=4.0, reward_mean=0.4) for at in range(1, 60)]
    assert bool(run.feed_all(rows).changes) is fires
