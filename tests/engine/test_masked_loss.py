"""Whether a loss held any token."""

from __future__ import annotations

import pytest

from grpo_watch.engine.learning import MaskedLoss
from tests.support.records import row

SIZES = {"per_device_train_batch_size": 4.0, "gradient_accumulation_steps": 2.0}


def after(rows: list[dict[str, float]], *, masks: bool | None, every: int = 1) -> MaskedLoss:
    """What is known after rows of these values."""
    masked = MaskedLoss()
    for index, values in enumerate(rows, start=1):
        masked.add_row(row(index * every, **values), masks, SIZES.get)
    return masked


@pytest.mark.parametrize(
    ("masks", "cut", "entropy", "whole"),
    [
        (True, 1.0, 0.0, True),
        (True, 0.9, 0.0, True),
        (True, 0.9, 2.0, False),
        (None, 1.0, 0.0, True),
        (None, 0.9, 0.0, False),
        (False, 1.0, 0.0, False),
    ],
)
def test_an_entropy_of_nothing_is_zero(*, masks: bool | None, cut: float, entropy: float, whole: bool) -> None:
    """Where cut ones may be left out; where that is not known, all of them must be cut."""
    assert after([{"completion_truncated_ratio": cut, "entropy": entropy}], masks=masks).whole is whole


def test_rows_that_reuse_a_generation_carry_no_share() -> None:
    """The newest one counts."""
    rows = [{"completion_truncated_ratio": 1.0, "entropy": 0.0}, {"entropy": 0.0}]
    assert after(rows, masks=True).whole
    assert not after([{"entropy": 0.0}], masks=True).whole


def test_a_log_without_entropy_judges_by_the_share_alone() -> None:
    """0.5 of completions cut, eight in a step."""
    assert after([{"completion_truncated_ratio": 1.0}], masks=True).chance == 1.0
    assert after([{"completion_truncated_ratio": 0.5}], masks=True).chance == 0.5**8


def test_the_last_step_of_a_window_may_be_one() -> None:
    """Its mean entropy is not 0, and the gradient norm is that of the last of five steps."""
    rows = [{"completion_truncated_ratio": 0.9, "entropy": 0.4}]
    assert after(rows, masks=True, every=5).chance == pytest.approx(0.9**8)
    assert after(rows, masks=True).chance == 0.0


def test_the_zeros_of_an_empty_loss_are_no_measurement_where_the_setting_is_not_known() -> None:
    """All cut, entropy and KL exactly 0: the trend of the entropy leaves the row out. A KL shows tokens in the loss."""
    empty = {"completion_truncated_ratio": 1.0, "entropy": 0.0, "kl_reference": 0.0}
    masked = after([empty], masks=None)
    assert (masked.diluted, masked.chance) == (True, 1.0)
    assert not after([empty | {"kl_reference": 8.0}], masks=None).diluted


def test_means_over_many_empty_micro_batches_are_diluted() -> None:
    """Four completions each: 0.9 to the fourth are empty; 0.5 to the fourth is rare."""
    assert after([{"completion_truncated_ratio": 0.9, "entropy": 0.4}], masks=True).diluted
    assert not after([{"completion_truncated_ratio": 0.5, "entropy": 3.4}], masks=True).diluted
    assert not after([{"completion_truncated_ratio": 0.9, "entropy": 0.4}], masks=None).diluted
