"""Rows that a block must not skip, one kind after the other: with the findings that rows one by one give."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpo_watch.detectors.reward.constant_reward import Still
from grpo_watch.detectors.reward.dead_reward_component import DeadRewardComponent
from grpo_watch.detectors.reward.reward_components_diverge import RewardComponentsDiverge
from grpo_watch.engine.records import MetricRow, Record, RunConfig, Setting, Severity, Stream
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.run_state import RunState
from tests.model.test_blocks import cut, judged, shown
from tests.model.test_sleep import ALONE, LEVELS
from tests.support.feeding import RULES, RUN

STD = "reward_function_std[a]"
Change = Callable[[int, dict[str, float]], dict[str, float]]


def a_run(change: Change, rows: int = 400) -> Iterator[Record]:
    """A healthy run whose numbers ``change`` may replace, given the step."""
    rng = random.Random(1)
    yield RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "test"), "adapter": Setting(False, "test")})
    for step in range(1, rows + 1):
        usual = {name: level + 0.1 * noise * rng.random() for name, (level, noise) in LEVELS.items()}
        values = {name: value for name, value in usual.items() if name not in ALONE}
        values["kl_reference"] = 1e-4 * step
        yield MetricRow(RUN, Stream.TRAIN, 1, step, change(step, values))


def found(change: Change, rules: list[Rule] | None = None) -> set[str]:
    """The rules that fire in blocks, which are those that fire row by row, on the same rows."""
    records, known = list(a_run(change)), rules or list(RULES)
    by_row, alone = judged(records, known)
    for size in (33, 250):
        in_blocks, together = judged(cut(records, iter(lambda size=size: size, None)), known)
        assert in_blocks == by_row
        assert shown(together) == shown(alone)
    return {change.rule for change in by_row if change.to_state.value == "firing"}


def test_a_reward_that_is_stuck_at_half_of_the_best_ends_a_block() -> None:
    """It is a fall only because it is one and the same number on twenty rows."""
    assert "reward-collapse" in found(lambda step, row: {**row, "reward_mean": 0.22} if step > 200 else row)


def test_a_reward_that_is_low_and_moves_ends_none() -> None:
    """The same level, which is no fall as long as it moves."""
    assert "reward-collapse" not in found(
        lambda step, row: {**row, "reward_mean": 0.22 + step / 10_000} if step > 200 else row
    )


def test_groups_without_spread_are_counted_where_no_reward_is_logged() -> None:
    def change(step: int, row: dict[str, float]) -> dict[str, float]:
        rest = {name: value for name, value in row.items() if not name.startswith("reward_")}
        return {**rest, "reward_zero_std_ratio": 1.0 if step > 100 else 0.2}

    assert found(change, [rule for rule in RULES if rule.name == "reward-variance-collapse"])


def test_an_alert_gets_worse_once_its_evidence_counts_for_more() -> None:
    """A zero KL is an info while beta is open, then a warning, also under a rule that is an info itself."""
    (rule,) = [replace(rule, severity=Severity.INFO) for rule in RULES if rule.name == "kl-stuck-at-zero"]

    def change(step: int, row: dict[str, float]) -> dict[str, float]:
        zero = {"kl_reference": 0.0 if step > 100 else 0.02}
        return {name: row[name] for name in ("learning_rate", "reward_group_std", "reward_zero_std_ratio")} | zero

    _, *rows = a_run(change)
    records = [*rows[:300], RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "test")}), *rows[300:]]
    by_row, _ = judged(records, [rule])
    for size in (33, 250):
        assert judged(cut(records, iter(lambda size=size: size, None)), [rule])[0] == by_row
    assert [change.severity for change in by_row if change.to_state.value == "firing"] == ["info", "warning"]


def test_an_overflow_within_a_block_is_found() -> None:
    """A core metric this large is as good as infinite."""
    assert "non-finite-metric" in found(lambda step, row: {**row, "grad_norm": 1e20} if step == 211 else row)


def test_a_gradient_that_is_lost_within_a_block_is_found() -> None:
    assert "gradient-lost" in found(lambda step, row: {**row, "grad_norm": 0.0} if step > 211 else row)


def test_completions_that_shrink_below_the_first_reward_are_found() -> None:
    def change(step: int, row: dict[str, float]) -> dict[str, float]:
        return {**row, "completion_length_mean": 30.0, "reward_mean": 0.4} if step > 211 else row

    assert "length-collapse" in found(change)


def test_two_small_signs_within_a_block_are_found() -> None:
    def change(step: int, row: dict[str, float]) -> dict[str, float]:
        return {**row, "entropy": 1.5, "kl_reference": 0.9, "reward_mean": 0.4} if step > 211 else row

    assert "slow-degradation" in found(change)


def of_functions(draws: Sequence[tuple[float, float | None]]) -> Iterator[Record]:
    """Rows with the mean of one reward function, and its standard deviation where it is not None."""
    for step, (mean, std) in enumerate(draws, start=1):
        values = {"reward_mean": 0.5, "reward_function_mean[a]": mean, "reward_function_mean[b]": 0.01 * step}
        yield MetricRow(RUN, Stream.TRAIN, 1, 2 * step, values if std is None else {**values, STD: std})


spells = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5]), st.sampled_from([None, 0.0, 0.1]), st.integers(1, 60)),
    min_size=1,
    max_size=8,
)


@given(spells, st.integers(0, 99))
@example([(0.5, 0.0, 45), (0.25, 0.0, 60), (0.5, 0.1, 20), (0.0, 0.0, 30)], 1)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_dead_functions_are_found_on_the_same_rows(drawn: list[tuple[float, float | None, int]], seed: int) -> None:
    rng = random.Random(seed)
    rules = [rule for rule in RULES if rule.name == "dead-reward-component"]
    spread = ((mean if rng.random() < 0.9 else rng.random(), std) for mean, std, rows in drawn for _ in range(rows))
    records = [RunConfig("trl", "1.16.0", {}), *of_functions(list(spread))]
    by_row, alone = judged(records, rules)
    in_blocks, together = judged(cut(records, iter(lambda: rng.choice([9, 20, 64, 300]), None)), rules)
    assert (in_blocks, shown(together)) == (by_row, shown(alone))
    assert still(together) == still(alone)


def still(state: RunState) -> dict[str, Still]:
    """What the rule about dead functions remembers of each."""
    (detector,) = [monitor.detector for monitor in state.monitors]
    assert isinstance(detector, DeadRewardComponent)
    return detector.still


def kept(state: RunState) -> list[object]:
    """What the rule about diverging functions remembers of the total."""
    (detector,) = [monitor.detector for monitor in state.monitors]
    assert isinstance(detector, RewardComponentsDiverge)
    return list(detector.blocks.total.kept)


def test_other_keys_wake_a_rule_that_fell_asleep_in_a_block() -> None:
    """Rows of one function put the rule to sleep, rows of two, which are as they were at first, must wake it."""

    def change(step: int, row: dict[str, float]) -> dict[str, float]:
        one = 60 < step <= 160
        row |= {"reward_mean": 0.5 + step / 400, "reward_function_mean[a]": 0.9 - step / 500}
        return {name: value for name, value in row.items() if not (one and name.endswith("[b]"))}

    rules = [rule for rule in RULES if rule.name == "reward-components-diverge"]
    records = list(a_run(change))
    by_row, alone = judged(records, rules)
    for size in (20, 60, 100, 250):
        in_blocks, together = judged(cut(records, iter(lambda size=size: size, None)), rules)
        assert (in_blocks, shown(together)) == (by_row, shown(alone))
        assert kept(together) == kept(alone)
    assert len(kept(alone)) > 3
