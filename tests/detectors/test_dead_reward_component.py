"""Functions that stand still, and functions that only seem to."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import ChannelKind, RawRow, Severity
from grpo_watch.engine.snapshot import RunVerdict
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "dead-reward-component"
MEAN, STD, OTHER = "reward_function_mean[f]", "reward_function_std[f]", "reward_function_mean[g]"


def fed(means: Iterable[float], std: float | None = None, *, other: bool = True, **settings: str) -> Watched:
    """Another function, where there is one, gives another value on every row."""
    run = Watched(RULE, **settings)
    for step, mean in enumerate(means, 1):
        values = {MEAN: mean} | ({STD: std} if std is not None else {}) | ({OTHER: step / 7} if other else {})
        run.feed(row(step, **values))
    return run


def test_twenty_rows_without_change() -> None:
    """Nineteen are not enough."""
    assert fed([0.0] * 19).changes == []
    assert fed([0.0] * 20).changes == [("firing", 20, "warning")]
    assert fed([0.0] * 20).said[-1].key == "f"


def test_rows_over_several_steps_count_as_so_many() -> None:
    """Four rows of five steps are twenty generations; where four steps share one, they are five."""
    rows = [row(5 * n, **{MEAN: 0.0, OTHER: n / 7}) for n in range(1, 6)]
    assert Watched(RULE).feed_all(rows).changes == [("firing", 20, "warning")]
    assert Watched(RULE, num_iterations=4).feed_all(rows).changes == []


def test_it_ends_with_another_value() -> None:
    assert fed([0.0] * 25 + [0.1]).changes == [("firing", 20, "warning"), ("resolved", 26, "warning")]


def test_a_function_that_scored_later_is_no_fault_of_the_run() -> None:
    """A strict format is often learned late: what fired as a warning is an info once it scores."""
    pipeline = Pipeline("run", load_rules([]), catalogue())
    for step in range(1, 41):
        values = {"reward": step / 10, "reward_std": 0.3, "grad_norm": 0.5, "kl": 0.01}
        values |= {"rewards/strict/mean": 0.0 if step <= 25 else step / 50, "rewards/other/mean": step / 7}
        pipeline.feed(RawRow("log", ChannelKind.JSONL, step, values))
    found = pipeline.snapshot()
    (finding,) = [one for one in found.findings if one.rule == RULE]
    assert (finding.resolved_step, finding.severity, finding.told_severity) == (26, Severity.INFO, Severity.WARNING)
    assert found.verdict is RunVerdict.HEALTHY


def test_the_length_limit_is_no_reason_while_whole_completions_score_the_same() -> None:
    """Half of the completions end by themselves and score what the others do; with nearly all cut, nobody knows."""
    for cut, kind in ((0.5, None), (0.95, "cut off"), (1.0, "cut off")):
        run = Watched(RULE)
        run.feed_all(row(n, **{MEAN: 0.5, OTHER: n / 7, "completion_truncated_ratio": cut}) for n in range(1, 21))
        assert run.said[-1].reading.evidence.get("kind") == kind


@pytest.mark.parametrize("value", [0.0, -0.5, 0.3, 1.0, 2.0])
def test_a_whole_reward_that_never_moved_is_no_more_than_a_warning(value: float) -> None:
    """A sparse reward, or prompts that were solved before: `reward-variance-collapse` tells by a second sign."""
    rows = [row(step, **{MEAN: value, "reward_mean": value, "grad_norm": 0.0}) for step in range(1, 101)]
    assert Watched(RULE).feed_all(rows).changes == [("firing", 20, "warning")]


def test_a_spread_is_life() -> None:
    """The mean stays, the completions differ; float noise is no spread."""
    assert fed([0.5] * 40, std=0.1).changes == []
    assert fed([0.0] * 20, std=6e-8).changes == [("firing", 20, "warning")]


def test_a_learnt_format_is_an_info() -> None:
    """It rose to its highest and stays there."""
    run = fed([0.2, 0.5, 0.8] + [1.0] * 20)
    assert run.changes == [("firing", 23, "info")]
    assert run.said[-1].first_step == 4


def test_one_that_fell_still_is_a_warning() -> None:
    assert fed([0.2, 0.5, 0.8] + [0.0] * 20).changes == [("firing", 23, "warning")]


def test_a_positive_constant_is_an_info_only_beside_others() -> None:
    """Nobody cheats, against a reward that is the same for every completion."""
    assert fed([1.0] * 20).changes == [("firing", 20, "info")]
    assert fed([1.0] * 20, other=False).changes == [("firing", 20, "warning")]


def test_a_total_is_no_component() -> None:
    run = Watched(RULE).feed_all(
        row(s, **{MEAN: s / 9, "reward_function_mean[total_reward]": 0.0}) for s in range(1, 40)
    )
    assert run.changes == []


def test_rows_without_functions_say_nothing() -> None:
    run = Watched(RULE).feed_all(row(s, reward_mean=0.0) for s in range(1, 40))
    assert run.said == []
    assert not run.monitor.evaluated


def test_nan_is_another_rules_matter() -> None:
    assert fed([float("nan")] * 40).changes == []


def test_a_weight_of_zero_only_measures() -> None:
    run = fed([0.0] * 20, reward_weights="0 1")
    assert run.changes == [("firing", 20, "info")]
    assert run.said[-1].reading.message.endswith("its weight is 0")


def test_a_penalty_that_stays_away_is_an_info() -> None:
    """A negative weight: at 0, and at the lowest that it ever was, there is nothing left to take off."""
    assert fed([0.0] * 20, reward_weights="-1 1").changes == [("firing", 20, "info")]
    assert fed([0.8, 0.5] + [0.2] * 20, reward_weights="-1 1").changes == [("firing", 22, "info")]
    assert fed([0.2, 0.5] + [0.8] * 20, reward_weights="-1 1").changes == [("firing", 22, "warning")]
    assert fed([1.0] * 20, reward_weights="-1 1").changes == [("firing", 20, "warning")]


def test_functions_without_any_score_are_not_judged() -> None:
    run = Watched(RULE).feed_all(row(step, **{MEAN: None}) for step in range(1, 40))
    assert not run.monitor.evaluated


def agent(rates: Iterable[float], key: str = "episode/success_rate", **more: float) -> Watched:
    """An agent loop whose reward a penalty moves; the share of successes is under a key that is no metric."""
    run = Watched(RULE)
    for step, rate in enumerate(rates, 1):
        reward = -0.01 * (step % 7)
        run.feed(row(step, reward_mean=reward)._replace(raw={"reward": reward, key: rate, **more}))
    return run


@pytest.mark.parametrize(
    "key", ["episode/success_rate", "val/accuracy", "pass@8", "pass_at_1", "env.solve rate", "win_rate", "Correct"]
)
def test_an_agent_that_never_solved_anything_is_named_though_its_reward_moves(key: str) -> None:
    run = agent([0.0] * 32, key)
    assert run.changes == [("firing", 20, "warning")]
    assert run.said[-1].reading.message.startswith(f"{key} is 0 on all 20 rows")


@pytest.mark.parametrize(
    "key", ["rewards/accuracy", "mean_token_accuracy", "solve_none", "tool/fail_rate", "accumulated", "success_time"]
)
def test_other_keys_are_no_share_of_successes(key: str) -> None:
    assert agent([0.0] * 32, key).changes == []


def test_one_success_of_any_kind_is_enough() -> None:
    """Late, or on another benchmark; a share that is the reward itself is left to the rules about rewards."""
    assert agent([0.0] * 19 + [0.125] + [0.0] * 40).changes == []
    assert agent([0.0] * 32, "aime/accuracy", **{"math/accuracy": 0.4}).changes == []
    assert agent([0.0] * 30 + [0.1]).changes == [("firing", 20, "warning"), ("resolved", 31, "warning")]
    same = [row(step, reward_mean=0.0)._replace(raw={"accuracy": 0.0}) for step in range(1, 40)]
    assert Watched(RULE).feed_all(same).changes == []


@pytest.mark.parametrize(
    ("name", "value", "asks"), [("format_reward", 0.0, True), ("format_reward", 0.5, False), ("accuracy", 0.0, False)]
)
def test_a_format_that_never_matches_may_be_prefilled(name: str, value: float, asks: bool) -> None:  # noqa: FBT001
    """The template ends in <think>, so the completion does not begin with it."""
    run = Watched(RULE)
    for step in range(1, 30):
        run.feed(row(step, **{f"reward_function_mean[{name}]": value, OTHER: step / 7}))
    assert ("<think>" in run.said[-1].reading.hint) is asks
