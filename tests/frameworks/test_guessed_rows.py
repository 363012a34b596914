"""Rows under names that no table knows, and under names that the user explained."""

from __future__ import annotations

from grpo_watch.engine.records import ChannelKind, RawRow, RunConfig
from grpo_watch.frameworks.resolver import Resolver


def row(step: int = 1, **values: float) -> RawRow:
    return RawRow("log", ChannelKind.JSONL, step, dict(values))


def test_unknown_keys_give_metrics_that_are_marked() -> None:
    resolver = Resolver()
    found = resolver.resolve(row(avg_reward=0.5, kl_divergence=0.01, mystery=3.0))
    assert found.values == {"reward_mean": 0.5, "kl_reference": 0.01}
    assert found.config is not None
    assert found.config.guessed == {"avg_reward": "reward_mean", "kl_divergence": "kl_reference"}
    assert resolver.resolve(row(2, avg_reward=0.5, kl_divergence=0.01, mystery=3.0)).config is None


def test_a_known_key_is_never_replaced_by_a_guess() -> None:
    found = Resolver().resolve(row(reward=0.5, avg_reward=0.25, loss=0.1))
    assert found.values["reward_mean"] == 0.5
    assert found.config is None


def test_the_programs_own_names_are_no_guess() -> None:
    found = Resolver().resolve(row(reward_mean=0.5, loss=0.1))
    assert found.values == {"reward_mean": 0.5, "loss": 0.1}
    assert found.config is None


def test_columns_add_to_what_is_known() -> None:
    """One explained key leaves all others what they are, and wins over a table's meaning."""
    resolver = Resolver()
    resolver.set_config(RunConfig(None, None, {}, precedence=0, columns={"kl_reference": "my_kl", "entropy": "loss"}))
    found = resolver.resolve(row(reward=0.5, my_kl=0.02, loss=0.7, grad_norm=1.5))
    assert found.values == {"reward_mean": 0.5, "kl_reference": 0.02, "entropy": 0.7, "grad_norm": 1.5}
    assert resolver.unknown_keys == ()


def test_a_column_that_no_row_has_is_reported() -> None:
    resolver = Resolver()
    resolver.set_config(RunConfig(None, None, {}, precedence=0, columns={"kl_reference": "mykl", "reward_mean": "r"}))
    resolver.resolve(row(r=0.5, my_kl=0.02, loss=0.7))
    assert resolver.unused_columns == {"mykl": "kl_reference"}


def test_a_spread_under_another_name_is_decided_by_the_rows() -> None:
    """Every group is degenerate, yet the number is not 0: it is the batch's."""
    resolver = Resolver()
    found = resolver.resolve(row(reward=0.5, std_reward=0.3, zero_std_fraction=1.0, loss=0.1))
    assert found.values["reward_batch_std"] == 0.3
    assert "reward_group_std" not in found.values


def test_a_statistic_is_no_reward_function() -> None:
    """``rewards/mean`` of an own loop is the reward; ``rewards/format`` is a function."""
    found = Resolver().resolve(row(**{"rewards/mean": 0.5, "rewards/std": 0.25, "rewards/format": 1.0}, kl=0.01))
    assert found.values["reward_mean"] == 0.5
    assert {name for name in found.values if name.startswith("reward_function")} == {"reward_function_mean[format]"}


def test_the_one_key_that_can_be_the_reward_is_it() -> None:
    """Of several the one that names the whole; of parts alone none, and none of preference training."""
    assert Resolver().resolve(row(outcome_reward=0.5, loss=0.1)).values["reward_mean"] == 0.5
    found = Resolver().resolve(row(task_reward=0.5, style_reward=0.1, loss=0.1))
    assert found.values["reward_mean"] == 0.5
    assert "reward_mean" not in Resolver().resolve(row(style_reward=0.1, tone_reward=0.2, loss=0.1)).values
    preferences = {"rewards/chosen": 0.1, "rewards/margins": 0.1, "final_reward": 0.3}
    assert "reward_mean" not in Resolver().resolve(row(**preferences)).values
    assert "reward_mean" not in Resolver().resolve(row(reward_weight=1.0, reward_time=0.1, loss=0.1)).values


def test_a_spread_of_unknown_meaning_shows_dead_groups_at_zero() -> None:
    """Nothing says whether it is that of the groups: both meanings agree where it is 0."""
    resolver = Resolver()
    assert [resolver.resolve(row(n, avg_reward=0.0, std_reward=0.0)).values["reward_batch_std"] for n in (1, 2)] == [
        0,
        0,
    ]
