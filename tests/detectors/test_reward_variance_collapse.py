"""Dead groups over time, and what kind of dead they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.engine.records import CompletionSummary, Tick
from tests.support.detecting import Watched
from tests.support.records import a_batch, row

RULE = "reward-variance-collapse"


def fed(*ratios: float, **more: float) -> Watched:
    return Watched(RULE).feed_all(row(s, reward_zero_std_ratio=r, **more) for s, r in enumerate(ratios, 1))


def test_five_dead_rows_or_ten_nearly_dead_ones() -> None:
    """0.9 on average is a breach, 0.89 is not."""
    assert fed(*[1.0] * 8).changes == [("firing", 5, "warning")]
    assert fed(*[0.9] * 12).changes == [("firing", 10, "warning")]
    assert fed(*[0.89] * 50).changes == []
    assert fed(*[1.0] * 4, 0.0, *[1.0] * 4).changes == []


@pytest.mark.parametrize("update", ["grad_norm", "loss"])
def test_a_run_that_never_had_a_spread_nor_an_update_trains_nothing(update: str) -> None:
    """0.9 to the power of 65 is 0.00106, of 66 it is 0.00096: no chance where a tenth of the groups live."""
    still = {update: 0.0, "reward_mean": 0.0}
    assert fed(*[1.0] * 65, **still).changes == [("firing", 5, "warning")]
    assert fed(*[1.0] * 66, **still).changes == [("firing", 5, "warning"), ("firing", 66, "critical")]
    assert fed(*[1.0] * 66, **{**still, "reward_mean": -0.5}).changes[1:] == [("firing", 66, "critical")]
    assert fed(0.5, *[1.0] * 80, **still).changes == [("firing", 6, "warning")]


@pytest.mark.parametrize(
    "more",
    [
        {"grad_norm": 0.1, "loss": 0.0, "reward_mean": 0.0},
        {"reward_mean": 0.0},
        {"grad_norm": 0.0},
        *({"grad_norm": 0.0, "loss": 0.0, "reward_mean": reward} for reward in (2.0, 0.9999999, 10.0, 1.0, 0.5)),
    ],
    ids=str,
)
def test_without_a_second_sign_or_with_a_reward_above_zero_it_may_be_hard_or_solved(more: dict[str, float]) -> None:
    assert fed(*[1.0] * 100, **more).changes == [("firing", 5, "warning")]


def test_a_sparse_reward_that_scores_late_was_no_critical_finding() -> None:
    """25 rows without any success, and then the run learns."""
    rows = [row(s, reward_zero_std_ratio=1.0, reward_mean=0.0, grad_norm=0.0, loss=0.0) for s in range(1, 26)]
    rows += [row(s, reward_zero_std_ratio=0.5, reward_mean=0.01 * (s - 25), grad_norm=0.4) for s in range(26, 60)]
    changes = Watched(RULE).feed_all(rows).changes
    assert [(state, severity) for state, _, severity in changes] == [("firing", "warning"), ("resolved", "warning")]


def test_scores_that_the_total_leaves_out_are_the_second_sign() -> None:
    values = {"reward_function_mean[a]": 0.3, "reward_function_std[a]": 0.1, "reward_batch_std": 0.0}
    run = fed(*[1.0] * 25, reward_mean=0.5, **values)
    assert run.changes == [("firing", 5, "warning"), ("firing", 20, "critical")]


def test_a_function_that_the_total_leaves_out_is_named() -> None:
    """Its scores differ, and those of the batch do not (weights of 0 and 1); else only the prompts differ."""
    for batch, says in ((0.0, "but the total is the same for all"), (0.1, "but not between the completions of one")):
        values = {"reward_function_mean[a]": 0.3, "reward_function_std[a]": 0.1, "reward_batch_std": batch}
        means = (0.3, 0.5, 0.4, 0.6, 0.5)
        rows = [row(s, reward_zero_std_ratio=1.0, reward_mean=mean, **values) for s, mean in enumerate(means, 1)]
        assert Watched(RULE).feed_all(rows).said[-1].reading.message.endswith(says)


def every(steps: int, ratios: list[float], **settings: float) -> Watched:
    rows = (row(steps * n, reward_zero_std_ratio=ratio) for n, ratio in enumerate(ratios, 1))
    return Watched(RULE, **settings).feed_all(rows)


def test_rows_that_are_means_over_several_steps_count_as_so_many() -> None:
    """Three dead rows of ten steps are thirty generations; of three steps they are nine, one too few."""
    assert every(10, [1.0] * 3).changes == [("firing", 30, "warning")]
    assert every(3, [1.0] * 4).changes == [("firing", 12, "warning")]
    assert every(10, [0.95] * 4).changes == [("firing", 40, "warning")]
    assert every(10, [0.89] * 9).changes == []


def test_steps_that_use_a_generation_again_are_not_more_of_it() -> None:
    """Rows of four steps that share a generation are one each: it takes five, whether named or seen."""
    assert every(4, [1.0] * 6, num_iterations=4).changes == [("firing", 20, "warning")]
    run = Watched(RULE)
    for step in range(2, 23, 2):
        run.feed(row(step, reward_zero_std_ratio=1.0) if step % 4 else row(step, kl_reference=0.1))
    assert run.changes == [("firing", 18, "warning")]


def test_what_was_enough_stays_enough() -> None:
    """A row out of turn, one step after the third: they now seem to be one step each."""
    run = every(10, [1.0] * 3)
    run.feed_all(row(step, reward_zero_std_ratio=1.0) for step in (31, 41, 51, 61))
    assert run.changes == [("firing", 30, "warning")]


def test_rows_without_a_generation_neither_count_nor_clear() -> None:
    """Generation rows are 1, 3, 5, 7, 9."""
    run = Watched(RULE)
    for step in range(1, 11):
        run.feed(row(step, reward_zero_std_ratio=1.0) if step % 2 else row(step, kl_reference=0.1))
    assert run.changes == [("firing", 9, "warning")]


def test_a_short_recovery_does_not_end_it() -> None:
    """Rows 6 to 9 have a spread, 10 to 14 have none: one episode, which ends ten steps after row 14 at the earliest."""
    run = fed(*[1.0] * 5, *[0.5] * 4, *[1.0] * 5, *[0.5] * 20)
    assert run.changes == [("firing", 5, "warning"), ("resolved", 24, "warning")]


def test_rows_of_a_single_group_are_judged_by_their_mean_once_one_was_alive() -> None:
    """Shares of 0 and 1 only: five dead rows in a row are chance at 60 %, so the episode ends ten steps after row 5."""
    run = fed(*[1.0] * 5, *[0.0] * 4, *[1.0] * 5, *[0.0] * 20)
    assert run.changes == [("firing", 5, "warning"), ("resolved", 15, "warning")]


def test_where_only_the_batch_has_a_spread_rows_with_some_are_alive() -> None:
    """A single group each, alive every third time: never nine of ten dead. Then all dead: nine of ten at 28."""
    chance = [0.4 if step % 3 == 0 else 0.0 for step in range(1, 19)]
    run = Watched(RULE).feed_all(row(s, reward_batch_std=std) for s, std in enumerate([*[0.4] * 3, *chance], 1))
    assert run.changes == []
    run.feed_all(row(s, reward_batch_std=0.0) for s in range(22, 34))
    assert run.changes == [("firing", 28, "warning")]


def test_it_begins_with_the_first_dead_row() -> None:
    """Row 2 is the first without any spread; the fifth of them, row 6, fires."""
    assert [(t.first_step, t.step) for t in fed(0.5, *[1.0] * 8).said] == [(2, 6)]


@pytest.mark.parametrize(
    "values",
    [{"reward_group_std": 0.0}, {"advantage_max": 0.0, "advantage_min": 0.0}, {"reward_batch_std": 0.0}],
    ids=" and ".join,
)
def test_other_signs_of_dead_groups(values: dict[str, float]) -> None:
    """The mean spread inside groups, all advantages, or the batch's spread: zero implies every group's."""
    assert Watched(RULE).feed_all(row(s, **values) for s in range(1, 9)).changes == [("firing", 5, "warning")]


def test_the_batchs_spread_above_zero_is_no_data() -> None:
    """TRL >= 0.27 without a share: never evaluated, never healthy."""
    run = Watched(RULE).feed_all(row(s, reward_batch_std=0.4) for s in range(1, 50))
    assert run.changes == []
    assert not run.monitor.evaluated


def said(mean: list[float], **more: float) -> str:
    rows = (row(s, reward_zero_std_ratio=1.0, reward_mean=m, **more) for s, m in enumerate(mean, 1))
    return Watched(RULE).feed_all(rows).said[-1].reading.message


def test_says_which_kind() -> None:
    """Ceiling, floor, cut off, constant, or equal inside groups only."""
    assert "highest" in said([0.0, 0.5, 1.0, 1.0, 1.0])
    assert "lowest" in said([1.0, 0.5, 0.0, 0.0, 0.0])
    assert "length limit" in said([0.0] * 5, completion_truncated_ratio=1.0)
    constant = {"reward_function_mean[f]": 0.5, "reward_function_std[f]": 0.0}
    assert "same reward" in said([0.5] * 5, **constant)
    assert "same reward" in said([0.5] * 5)
    assert "never scores" in said([0.0] * 5)
    assert "members of a group" in said([0.5] * 5, **{**constant, "reward_function_std[f]": 0.4})


def test_only_a_window_without_any_spread_is_a_constant_function() -> None:
    """Groups of the last five rows are dead, those of the rows before lived: 5.5 of 10 at the row that fires."""
    ratios = [0.1] * 5 + [1.0] * 5
    rows = (row(s, reward_zero_std_ratio=r, reward_mean=0.5) for s, r in enumerate(ratios, 1))
    reading = Watched(RULE).feed_all(rows).said[-1].reading
    assert reading.message == "55% of the groups have no reward spread: members of a group get equal rewards"
    assert reading.evidence["kind"] == "unknown"


def test_a_row_at_the_edge_says_nothing_of_the_others() -> None:
    """The newest reward is the run's highest, the median (0.2) is not."""
    assert "members of a group" in said([0.1, 0.1, 0.2, 0.3, 0.9])


def test_single_groups_die_by_chance() -> None:
    """All-or-nothing rows: eight after a live one are chance, nine of ten are not; with fractions five suffice."""
    assert fed(0.0, *[1.0] * 8, 0.0, 0.0, *[1.0] * 8).changes == []
    assert fed(0.0, *[1.0] * 9).changes == [("firing", 10, "warning")]
    assert fed(0.5, *[1.0] * 8).changes == [("firing", 6, "warning")]


def test_a_second_signal_makes_it_critical() -> None:
    """Entropy fell to a tenth; the same with a reward that rose is a solved task."""

    def run(reward: float) -> Watched:
        watched = Watched(RULE)
        for step in range(1, 41):
            late = step > 20
            watched.feed(
                row(
                    step,
                    reward_zero_std_ratio=1.0 if late else 0.1,
                    entropy=0.05 if late else 0.5,
                    reward_mean=reward if late else 0.3 + step % 2 / 100,
                )
            )
        return watched

    assert run(0.3).changes[-1][2] == "critical"
    assert run(1.0).changes[-1][2] == "warning"


def scored(step: int, **columns: tuple[float | None, ...]) -> CompletionSummary:
    """Two groups of four different texts, with the same scores in each."""
    batch = a_batch(step, (0, 1, 2, 3), (0, 1, 2, 3))
    groups = tuple(replace(g, digest=f"{step}-{n}", rewards=columns) for n, g in enumerate(batch.groups))
    return replace(batch, groups=groups)


EQUAL, MIXED = (0.5,) * 4, (0.0, 1.0, 0.0, 1.0)


def test_dumps_alone_tell_of_dead_groups() -> None:
    """Five batches without any row: the tick says that none will come. One alert, at the fifth batch."""
    run = Watched(RULE).feed_all(scored(step, score=EQUAL) for step in range(1, 8))
    assert run.changes == []
    run.feed(Tick(1.0))
    assert run.changes == [("firing", 5, "warning")]
    assert run.said[-1].reading.message.startswith("100% of the groups have no reward spread")
    assert Watched(RULE).feed_all(scored(s, score=MIXED) for s in range(1, 30)).feed(Tick(1.0)).said == []


@pytest.mark.parametrize("dump_first", [True, False])
def test_dumps_count_where_rows_do_not_tell(*, dump_first: bool) -> None:
    """Rows with a mean only; the order of row and dump does not matter. A spread from step 9 on ends it."""
    run = Watched(RULE)
    for step in range(1, 31):
        pair = [scored(step, score=EQUAL if step < 9 else MIXED), row(step, reward_mean=0.5)]
        run.feed_all(pair if dump_first else pair[::-1])
    assert run.changes == [("firing", 5, "warning"), ("resolved", 18, "warning")]


@pytest.mark.parametrize("dump_first", [True, False])
@pytest.mark.parametrize(("ratio", "changes"), [(0.0, []), (1.0, [("firing", 5, "warning")])])
def test_rows_that_tell_are_the_only_ones_that_count(
    *, ratio: float, changes: list[tuple[str, int, str]], dump_first: bool
) -> None:
    """Dumps whose groups are dead beside rows that say 0, and beside rows that say the same: one alert, not two."""
    run = Watched(RULE)
    for step in range(1, 16):
        pair = [scored(step, score=EQUAL), row(step, reward_zero_std_ratio=ratio, reward_mean=0.5)]
        run.feed_all(pair if dump_first else pair[::-1])
    assert run.changes == changes


@pytest.mark.parametrize(
    "columns", [{"format": EQUAL, "accuracy": MIXED}, {"score": (0.5, 0.5, 0.5, None)}, {}], ids=["one", "gap", "none"]
)
def test_dumps_that_show_a_spread_or_can_not_tell(columns: dict[str, tuple[float | None, ...]]) -> None:
    """One of two functions differs; one score is missing; there are none: then the rule says that it is blind."""
    run = Watched(RULE)
    for step in range(1, 21):
        run.feed(scored(step, **columns), row(step, reward_mean=0.5))
    assert run.said == []
    if len(columns) < 2:
        run.feed(scored(21, **columns))
        assert run.blind_reason == "neither metrics nor dumps show the rewards inside groups so far"


def test_dead_groups_by_chance_of_a_run_with_one_group_a_step() -> None:
    """Six of ten groups are dead throughout; ten in a row are no surprise among 400 (0.6 ** 10 x 40 windows = 0.24).

    In a run where one in five is dead, they are: 0.2 ** 10 x 42 is 4e-6. Nine of ten are enough: 4e-6 x 41.
    """

    def fed_with(usual: list[float]) -> Watched:
        shares = usual * 40 + [1.0] * 10 + usual * 3
        return Watched(RULE).feed_all(row(n, reward_zero_std_ratio=share) for n, share in enumerate(shares, 1))

    often, seldom = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0] * 2
    assert fed_with(often).changes == []
    assert [change[0] for change in fed_with(seldom).changes] == ["firing", "resolved"]


def test_a_lasting_collapse_is_no_chance() -> None:
    """One group a step, one in five dead, then all: it does not end when dead groups become usual."""
    shares = [0.0, 0.0, 0.0, 1.0, 0.0] * 12 + [1.0] * 200
    run = Watched(RULE).feed_all(row(n, reward_zero_std_ratio=share) for n, share in enumerate(shares, 1))

    assert [change[0] for change in run.changes] == ["firing"]


def test_a_run_that_is_mostly_dead_gets_no_allowance_for_chance() -> None:
    """Nine of ten rows are dead from the beginning: that is what the rule is about."""
    shares = ([1.0] * 9 + [0.0]) * 20
    run = Watched(RULE).feed_all(row(n, reward_zero_std_ratio=share) for n, share in enumerate(shares, 1))

    assert [change[0] for change in run.changes] == ["firing"]


@pytest.mark.parametrize(
    ("rewards", "fired"),
    [
        ([0.0] * 60, 50),
        ([0.5 * (step % 12 == 1) for step in range(60)], 51),  # 5 of the last 50 rows scored, the 51st did not
        ([0.5 * (step % 5 == 1) for step in range(60)], None),  # one in five
        ([-0.1, *[0.0] * 60], None),  # a penalty: 0 may be a mean of +1 and -1
        ([0.0] * 45, None),
    ],
)
def test_a_mean_of_exactly_zero_where_nothing_else_is_logged(rewards: list[float], fired: int | None) -> None:
    """An own loop that prints loss and reward: a reward of 0 or more that is 0 on the mean is 0 for all."""
    run = Watched(RULE).feed_all(row(step, loss=0.0, reward_mean=value) for step, value in enumerate(rewards, 1))
    assert run.changes == ([] if fired is None else [("firing", fired, "warning")])


def test_a_run_that_begins_to_score_is_cleared() -> None:
    rewards = [*[0.0] * 60, *[0.3] * 20]
    run = Watched(RULE).feed_all(row(step, loss=0.0, reward_mean=value) for step, value in enumerate(rewards, 1))
    assert [state for state, _, _ in run.changes] == ["firing", "resolved"]


@pytest.mark.parametrize(
    ("rewards", "fired", "kind"),
    [
        ([-3.25] * 60, 50, "constant"),
        ([1.0] * 60, 50, "highest"),
        ([0.4, *[2.5] * 60], 51, "constant"),
        ([0.75, 0.5, *[1.0] * 40, 0.75, *[1.0] * 20], 50, "highest"),  # steps of solved prompts, skipped by the loop
        (([1.0] * 7 + [0.75]) * 10, None, None),
        (([1.0] * 15 + [1.5]) * 6, None, None),  # 1 is not the most that can be had
        (([1.0] * 24 + [0.9]) * 4, None, None),  # printed with one decimal: 1.0 may be 0.96
        ([2.5] * 49 + [2.625] + [2.5] * 49, None, None),
        ([0.5 + 0.01 * (step % 3) for step in range(120)], None, None),
    ],
)
def test_a_mean_that_is_one_number_where_nothing_else_is_logged(
    rewards: list[float], fired: int | None, kind: str | None
) -> None:
    watched = Watched(RULE).feed_all(row(step, reward_mean=reward) for step, reward in enumerate(rewards, 1))
    assert watched.changes == ([] if fired is None else [("firing", fired, "warning")])
    assert fired is None or watched.said[-1].reading.evidence["kind"] == kind


def test_a_constant_mean_beside_a_spread_proves_nothing() -> None:
    rows = (row(step, reward_mean=2.0, reward_batch_std=0.3) for step in range(1, 90))
    assert Watched(RULE).feed_all(rows).changes == []


def equal(step: int, *rewards: tuple[float, ...]) -> CompletionSummary:
    batch = a_batch(step, *[(0, 1)] * len(rewards))
    made = [
        replace(group, rewards={"f": own, "advantage": tuple((score - own[0]) / 1e-4 for score in own)})
        for group, own in zip(batch.groups, rewards, strict=True)
    ]
    return replace(batch, groups=tuple(made))


def test_equal_rewards_whose_deviation_is_rounding() -> None:
    """Rows count half of the groups as alive, and advantages of 3e-4; the dumps show one reward for each group."""
    run = Watched(RULE)
    for step in range(1, 10):
        run.feed(row(step, reward_zero_std_ratio=0.5), equal(step, (0.1, 0.1 + 3e-8), (0.3, 0.3)))
    assert run.changes == [("firing", 5, "warning")]
    assert "counts rounding as a spread" in run.said[-1].reading.message
    for step in range(10, 30):
        run.feed(row(step, reward_zero_std_ratio=0.5), equal(step, (0.1, 0.2), (0.3, 0.3)))
    assert [state for state, _, _ in run.changes] == ["firing", "resolved"]


def test_dead_groups_that_rows_count_too_are_one_alert() -> None:
    """Each dump comes before its row, so that the newest row is still an earlier one, with a spread."""
    run = Watched(RULE).feed(row(1, reward_zero_std_ratio=0.5))
    for step in range(2, 20):
        run.feed(equal(step, (0.1, 0.1), (0.3, 0.3)), row(step, reward_zero_std_ratio=1.0))
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "warning")]


def test_some_batches_without_a_spread_are_chance() -> None:
    run = Watched(RULE)
    for step in range(1, 30):
        run.feed(row(step, reward_zero_std_ratio=0.5), equal(step, (0.1, 0.1 + 0.1 * (step % 5 == 0)), (0.3, 0.3)))
    assert run.changes == []
