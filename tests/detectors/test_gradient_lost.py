"""Zero gradients weighed by the chance that their step had no signal."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import MetricRow
from tests.support.detecting import Watched
from tests.support.records import row


def zeros(count: int, silent: float, start: int = 1) -> list[MetricRow]:
    return [row(step, grad_norm=0.0, reward_zero_std_ratio=silent) for step in range(start, start + count)]


@pytest.mark.parametrize(("silent", "needed"), [(0.0, 5), (0.2, 9), (0.5, 20), (0.75, 49), (0.9, 132)], ids=str)
def test_rows_needed_are_where_the_product_passes_a_millionth(silent: float, needed: int) -> None:
    """0.2^9 = 5.1e-7; 0.5^19 = 1.9e-6 and 0.5^20 = 9.5e-7; 0.75^49 = 7.6e-7; 0.9^132 = 9.1e-7."""
    run = Watched("gradient-lost").feed_all(zeros(needed + 3, silent))
    assert run.changes == [("firing", needed, "critical")]


@pytest.mark.parametrize("apart", [2, 5], ids=str)
def test_steps_that_are_not_logged_are_not_known(apart: int) -> None:
    """Every step is logged, the settings say, and rows are missing all the same: 20 rows at one half."""
    rows = [row(apart * n, grad_norm=0.0, reward_zero_std_ratio=0.5) for n in range(1, 25)]
    assert Watched("gradient-lost", logging_steps=1).feed_all(rows).changes == [("firing", 20 * apart, "critical")]


@pytest.mark.parametrize("silent", [0.0, 0.5, 0.97], ids=str)
def test_a_step_with_groups_of_its_own_has_a_gradient_if_one_group_differs(silent: float) -> None:
    """From the second row on, which follows the first: 0.97 · 0.01^3 is a millionth at most."""
    run = Watched("gradient-lost", logging_steps=1).feed_all(zeros(9, silent))
    assert run.changes == [("firing", 5, "critical")]


@pytest.mark.parametrize("setting", [{"fp16": True}, {"mask_truncated_completions": True}], ids=str)
def test_a_step_that_may_be_skipped_or_masked_is_weighed(setting: dict[str, bool]) -> None:
    """0.5^20 as above, although each row is one step: an overflow or only cut completions may have left it without."""
    cut = {"completion_truncated_ratio": 0.3} if "mask_truncated_completions" in setting else {}
    rows = (each._replace(values={**each.values, **cut}) for each in zeros(30, 0.5))
    run = Watched("gradient-lost", logging_steps=1, **setting).feed_all(rows)
    assert [step for _, step, _ in run.changes if step < 20] == []


def test_a_batch_that_serves_two_steps_may_have_its_live_groups_in_the_other() -> None:
    """Every second row has no share of its own, so none is certain: 20 rows at one half."""
    rows = [row(s, grad_norm=0.0, **({"reward_zero_std_ratio": 0.5} if s % 2 else {})) for s in range(1, 25)]
    assert Watched("gradient-lost", logging_steps=1).feed_all(rows).changes == [("firing", 20, "critical")]


def test_rows_without_signal_never_add_up() -> None:
    """1 x 1 x ... stays 1, however long."""
    assert Watched("gradient-lost").feed_all(zeros(500, 1.0)).changes == []


def test_a_gradient_ends_the_streak() -> None:
    """Four rows, a gradient, four more: neither half is enough."""
    run = Watched("gradient-lost", logging_steps=1).feed_all(zeros(4, 0.5))
    run.feed(row(5, grad_norm=0.1, reward_zero_std_ratio=0.5)).feed_all(zeros(4, 0.5, start=6))
    assert run.changes == []


def test_rows_that_reuse_a_batch_keep_its_share() -> None:
    """Only rows 1 and 4 carry the share; all five count with 0.01: fires at the fifth."""
    run = Watched("gradient-lost")
    for step in range(1, 7):
        run.feed(row(step, grad_norm=0.0, **({"reward_zero_std_ratio": 0.0} if step % 3 == 1 else {})))
    assert run.changes == [("firing", 5, "critical")]


def test_unknown_share_is_no_signal() -> None:
    """Nothing shows the groups, nor do rewards."""
    run = Watched("gradient-lost").feed_all(row(step, grad_norm=0.0) for step in range(1, 100))
    assert run.changes == []
    assert "not known" in run.blind_reason


@pytest.mark.parametrize(
    ("rewards", "fires"),
    [((0.3, 0.4, 0.5), [("firing", 32, "warning")]), ((1.0, 1.0, 1.0), []), ((0.4, 0.5, 0.4), [])],
    ids=["vary", "solved", "two numbers"],
)
def test_no_gradient_for_twenty_rows_trains_nothing_where_rewards_vary(
    rewards: tuple[float, ...], fires: list[object]
) -> None:
    """After twelve rows with one. The groups are not known: solved prompts, or one text for each, leave none either."""
    values = [(0.5 if step <= 12 else 0.0, rewards[step % 3]) for step in range(1, 61)]
    rows = [row(step, grad_norm=norm, reward_mean=reward) for step, (norm, reward) in enumerate(values, start=1)]
    assert Watched("gradient-lost").feed_all(rows).changes == fires


def test_rows_without_a_gradient_between_those_with_one_are_no_fault() -> None:
    """One of sixteen micro-steps updates; flat batches are skipped. Three times 30 rows end the doubt: 45 + 90."""

    def fed(norms: list[float]) -> Watched:
        rows = [row(n, grad_norm=norm, reward_mean=(0.3, 0.4, 0.5)[n % 3]) for n, norm in enumerate(norms, start=1)]
        return Watched("gradient-lost").feed_all(rows)

    assert fed(([0.0] * 15 + [0.5]) * 10).changes == []
    assert fed([0.5, *[0.0] * 12, 0.5, *[0.0] * 30, 0.5, *[0.0] * 95]).changes == [("firing", 135, "warning")]


def test_eight_decimals_round_a_tiny_gradient_down() -> None:
    """4e-9 prints as 0.0 there; it is a zero only where the channel says so."""
    exact = Watched("gradient-lost").feed_all(r._replace(values={**r.values, "grad_norm": 4e-9}) for r in zeros(9, 0.0))
    assert exact.changes == []


def test_kl_need_not_be_zero() -> None:
    """Weight decay moves KL without any gradient."""
    run = Watched("gradient-lost", weight_decay=0.1, beta=0.04)
    run.feed_all(row(s, grad_norm=0.0, reward_zero_std_ratio=0.0, kl_reference=1e-4 * s) for s in range(1, 8))
    assert run.changes == [("firing", 5, "critical")]


def test_a_masked_loss_has_no_gradient() -> None:
    """Only where every completion is truncated; one that is not makes the zero suspicious again."""
    run = Watched("gradient-lost", mask_truncated_completions=True, per_device_train_batch_size=16)
    run.feed_all(r._replace(values={**r.values, "completion_truncated_ratio": 1.0}) for r in zeros(20, 0.0))
    assert run.changes == []
    cut = {"completion_truncated_ratio": 0.5}
    run.feed_all(r._replace(values={**r.values, **cut}) for r in zeros(5, 0.0, start=21))
    assert run.changes == [("firing", 25, "critical")]


def test_float_noise_is_no_spread() -> None:
    """Eight equal rewards of 0.95 were logged with a spread of 6e-8 and a share of 0 (TRL 1.16.0)."""
    rows = (row(s, grad_norm=0.0, reward_batch_std=6e-8, reward_zero_std_ratio=0.0) for s in range(1, 50))
    assert Watched("gradient-lost").feed_all(rows).changes == []


@pytest.mark.parametrize(
    ("before", "severity"), [(0.004, "warning"), (0.2, "critical")], ids=["small all along", "was clearly printed"]
)
def test_three_decimals_may_hide_a_small_gradient(before: float, severity: str) -> None:
    """A norm of 0.0004 prints as 0.000; a run that was at 0.2 does not get there by chance five rows in a row."""
    rows = [row(1, grad_norm=before, reward_zero_std_ratio=0.0), *zeros(6, 0.0, start=2)]
    run = Watched("gradient-lost").feed_all(each._replace(resolution=1e-3) for each in rows)
    assert run.changes == [("firing", 6, severity)]
    assert ("may only be small" in run.said[-1].reading.message) == (severity == "warning")


@pytest.mark.parametrize(
    ("clip", "severity"), [(1e-9, "critical"), (1e-6, "critical"), (1e-5, None), (0.0, None), (1.0, None)]
)
def test_a_clip_that_leaves_nothing(clip: float, severity: str | None) -> None:
    """Adam adds 1e-8 to what is left of each element; 0 means that nothing is clipped."""
    rows = [row(step, grad_norm=0.5, reward_zero_std_ratio=0.0) for step in range(1, 9)]
    run = Watched("gradient-lost", max_grad_norm=clip).feed_all(rows)
    assert run.changes == ([("firing", 3, severity)] if severity else [])


def test_a_norm_that_was_logged_after_clipping() -> None:
    """Nothing but the clip is left on each row, whatever torch's epsilon takes off."""
    rows = [row(step, grad_norm=0.9995e-9, reward_zero_std_ratio=0.0) for step in range(1, 21)]
    assert [state for state, *_ in Watched("gradient-lost", max_grad_norm=1e-9).feed_all(rows).changes] == ["firing"]


def test_gradients_below_the_clip_are_left_alone() -> None:
    rows = [row(step, grad_norm=5e-8, reward_zero_std_ratio=0.0) for step in range(1, 9)]
    assert Watched("gradient-lost", max_grad_norm=1e-7).feed_all(rows).changes == []


def test_one_norm_on_ten_rows_is_not_measured() -> None:
    """1.4142 is DeepSpeed's; of ten rows the first is where it began. That no gradient arrives is not proven."""
    rows = [row(step, grad_norm=1.41421356, reward_zero_std_ratio=0.2) for step in range(1, 16)]
    run = Watched("gradient-lost").feed_all(rows)
    assert run.changes == [("firing", 12, "warning")]
    assert run.said[-1].first_step == 1
    assert run.headline == "The gradient norm never changes"


@pytest.mark.parametrize(
    ("norm", "resolution", "settings"),
    [
        (1.0, None, {}),  # a clip, in all likelihood
        (0.123456, None, {"max_grad_norm": 0.123457}),  # the clip, as torch leaves it
        (0.123, 1e-3, {}),  # three decimals are alike by chance
    ],
)
def test_one_norm_may_be_the_clip_or_rounded(norm: float, resolution: float | None, settings: dict[str, float]) -> None:
    rows = [row(step, grad_norm=norm, reward_zero_std_ratio=0.2) for step in range(1, 31)]
    run = Watched("gradient-lost", **settings).feed_all(each._replace(resolution=resolution) for each in rows)
    assert run.changes == []


def test_norms_that_differ_in_their_last_digits_are_measured() -> None:
    rows = [row(step, grad_norm=0.5123 + 1e-7 * step, reward_zero_std_ratio=0.2) for step in range(1, 31)]
    assert Watched("gradient-lost").feed_all(rows).changes == []


def norms(*values: float, silent: float = 0.0) -> Watched:
    rows = [row(step, grad_norm=norm, reward_zero_std_ratio=silent) for step, norm in enumerate(values, 1)]
    return Watched("gradient-lost").feed_all(rows)


def test_a_gradient_that_has_all_but_vanished() -> None:
    """The fifth row below a thousandth of the first ten rows' median of 0.5; one row above it starts again."""
    usual = [0.4, 0.6, 0.5, 0.5, 0.5] * 2
    run = norms(*usual, *[1e-4] * 6)
    assert (run.changes, run.headline) == ([("firing", 15, "warning")], "Next to nothing is left of the gradient")
    assert norms(*usual, *[1e-4] * 4, 0.01, *[1e-4] * 4).changes == []
    assert norms(*usual, *[0.01 * 0.7**n for n in range(6)]).changes == []  # as a policy that converges
    assert norms(*usual, *[1e-4] * 9, silent=0.9).changes == []
    assert norms(*[1e-4] * 20).changes == []  # a scale of its own
