"""Failing tools: the keys of each framework, and failures that fade."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import ChannelKind, RawRow
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
    """From 1 down to 0.8 over 40 rows, then 0.8 for ever: 30 rows at one level are the first that do not fade."""
    fading = [1.0 - 0.005 * at for at in range(40)] + [0.8] * 40
    run = Watched("tool-failures").feed_all(row(at, tool_failure_ratio=share) for at, share in enumerate(fading, 1))
    (fired,) = [step for state, step, _ in run.changes if state == "firing"]
    assert fired > 40


def test_rows_without_the_key_hold_the_state() -> None:
    run = Watched("tool-failures").feed_all(row(step, tool_failure_ratio=1.0) for step in range(1, 33))
    assert run.changes == [("firing", 32, "warning")]
    run.feed_all(row(step, entropy=1.0) for step in range(33, 99))
    assert len(run.changes) == 1
