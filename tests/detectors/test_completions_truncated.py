"""Truncation: how many rows, whether it gets better, and what else must agree."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import MetricRow
from grpo_watch.engine.traits import likely
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "completions-truncated"


def rows(*cut: float, reward: float | None = None, silent: float | None = None, start: int = 1) -> list[MetricRow]:
    more = {"reward_mean": reward, "reward_zero_std_ratio": silent}
    known = {name: value for name, value in more.items() if value is not None}
    return [row(start + at, completion_truncated_ratio=value, **known) for at, value in enumerate(cut)]


def test_ten_rows_are_needed() -> None:
    """Nine are a phase."""
    run = Watched(RULE, max_completion_length=128).feed_all(rows(*[0.9] * 9))
    assert run.changes == []
    assert run.blind_reason == "too few generation rows yet"
    run.feed_all(rows(0.9, start=10))
    assert run.changes == [("firing", 10, "warning")]
    assert run.said[-1].reading.message == "90% of the completions are cut off at the length limit of 128 tokens"


def test_it_began_with_the_first_row_that_was_cut() -> None:
    """The window holds rows 3 to 12; the first of these at or above the share is row 4."""
    run = Watched(RULE).feed_all(rows(0.1, 0.1, 0.6, *[0.9] * 9))
    assert [(change.first_step, change.step) for change in run.said] == [(4, 12)]


def test_rows_without_the_key_say_nothing() -> None:
    """A row that reuses a generation: no reading at all."""
    run = Watched(RULE).feed_all(rows(*[1.0] * 9)).feed(row(10, loss=0.1), row(11, completion_truncated_ratio=None))
    assert run.changes == []


def test_a_share_that_falls_is_recovery() -> None:
    """Second half 0.85, first half 0.95: 0.1 lower. At 0.92 it is 0.03 lower, which is noise."""
    assert Watched(RULE).feed_all(rows(*[0.95] * 5, *[0.85] * 5)).changes == []
    assert Watched(RULE).feed_all(rows(*[0.95] * 5, *[0.92] * 5)).changes == [("firing", 10, "warning")]


def test_below_the_share() -> None:
    """0.79 on average."""
    assert Watched(RULE).feed_all(rows(*[0.79] * 40)).said == []


def test_a_falling_reward_agrees() -> None:
    """0.9, then 0.1 for as long as it is cut: 0.4 as a mean of ten at row 24, 0.8 at row 28."""
    run = Watched(RULE).feed_all(rows(*[0.1] * 20, reward=0.9)).feed_all(rows(*[1.0] * 20, reward=0.1, start=21))
    assert run.changes == [("firing", 24, "warning"), ("firing", 28, "critical")]
    assert run.said[-1].reading.message.endswith("and the reward fell")


def test_lost_spread_agrees_unless_the_reward_gained() -> None:
    """All wrong is harm, all right is not: the reward rose from 0.1 to 1."""
    wrong = Watched(RULE).feed_all(rows(*[1.0] * 10, reward=-1.0, silent=1.0))
    assert wrong.changes == [("firing", 10, "critical")]
    right = Watched(RULE).feed_all(rows(*[0.0] * 10, reward=0.1, silent=0.0))
    right.feed_all(rows(*[1.0] * 20, reward=1.0, silent=1.0, start=11))
    assert right.changes == [("firing", 18, "warning")]


@pytest.mark.parametrize(("masked", "severity"), [(True, "critical"), (False, "warning")])
def test_masked_truncation_leaves_nothing(masked: object, severity: str) -> None:
    """Cut completions are left out of the loss, and all are cut."""
    run = Watched(RULE, mask_truncated_completions=bool(masked)).feed_all(rows(*[1.0] * 10, reward=0.5))
    assert run.changes == [("firing", 10, severity)]


@pytest.mark.parametrize(("norm", "severity"), [(0.0, "critical"), (0.3, "warning")])
def test_no_token_in_the_loss_teaches_nothing(norm: float, severity: str) -> None:
    """The setting is unknown; an entropy of exactly 0 and no gradient show that cut completions are left out."""
    masked = {"entropy": 0.0, "grad_norm": norm, "completion_truncated_ratio": 1.0}
    run = Watched(RULE).feed_all(row(step, **masked) for step in range(1, 11))
    assert run.changes == [("firing", 10, severity)]


def test_it_ends_ten_steps_after_the_last_breach() -> None:
    """Ten rows at 1, then 0: the mean is below 0.8 from row 13 on (0.7); the last breach is row 10."""
    run = Watched(RULE).feed_all(rows(*[1.0] * 10, *[0.0] * 12))
    assert run.changes == [("firing", 10, "warning"), ("resolved", 20, "warning")]


def test_a_solved_run_is_never_critical() -> None:
    """All rewards are 1, which leaves no spread: that texts are cut then costs little."""
    learned = rows(*[0.2] * 5, reward=0.4, silent=0.3)
    run = Watched(RULE).feed_all(learned).feed_all(rows(*[1.0] * 30, reward=1.0, silent=1.0, start=6))
    assert [severity for state, _, severity in run.changes if state == "firing"] == ["warning"]


def test_more_cut_off_and_a_lost_reward_ask_for_a_smaller_share() -> None:
    """0.1 cut off, 0.6 from row 21 on: 0.4 as a mean of ten at row 26; the reward is lost as a mean of five before."""

    def fed_with(cut: float, reward: float) -> Watched:
        rows = [(0.1, 0.7)] * 20 + [(cut, reward)] * 20
        return Watched(RULE).feed_all(
            row(n, completion_truncated_ratio=share, reward_mean=r) for n, (share, r) in enumerate(rows, 1)
        )

    assert fed_with(0.6, 0.4).changes == [("firing", 26, "warning")]
    assert fed_with(0.6, 0.6).changes == []
    assert fed_with(0.38, 0.4).changes == []


def lengths(*values: float, start: int = 1, **more: float) -> list[MetricRow]:
    return [row(step, completion_length_mean=value, **more) for step, value in enumerate(values, start)]


def test_one_length_on_all_rows_is_the_limit_where_no_share_is_logged() -> None:
    """The twentieth row of 256 tokens in a row is row 21; the first one differs."""
    run = Watched(RULE).feed_all(lengths(190.5, *[256.0] * 25))
    assert run.changes == [("firing", 21, "warning")]
    assert run.monitor.episodes[0].first_step == 2
    assert run.monitor.episodes[0].reading.message.startswith("every completion has 256 tokens")
    run.feed_all(lengths(*[240.5] * 12, start=27))
    assert run.changes[1:] == [("resolved", 36, "warning")]


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (lengths(*[256.0] * 19, 255.5, *[256.0] * 19), {}),
        (lengths(*[100.25] * 40), {}),  # a mean of many rows that were averaged
        (lengths(*[3.0] * 40), {}),  # a letter and its brackets
        (lengths(*[256.0] * 40), {"max_completion_length": 512}),
        (lengths(*[256.0] * 40, completion_truncated_ratio=0.0), {}),
    ],
)
def test_other_lengths_show_nothing(rows: list[MetricRow], settings: dict[str, int]) -> None:
    assert Watched(RULE, **settings).feed_all(rows).changes == []


def test_completions_that_none_of_them_reaches_the_limit_count_as_cut() -> None:
    """A model with two end tokens: the longest has 300 of 512 tokens. One that reaches the limit is no such case."""
    for longest, says in ((300.0, True), (512.0, False), (511.0, False)):
        run = Watched(RULE, max_completion_length=512)
        run.feed_all(row(at, completion_truncated_ratio=0.97, completion_length_max=longest) for at in range(1, 12))
        assert ("but the longest has 300: finished ones may be counted as cut" in run.said[-1].reading.message) is says
    causes = likely(run.monitor.detector.likely_causes, run.state, "finished ones may be counted as cut")
    assert "several end tokens" in causes[0]
