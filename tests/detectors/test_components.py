"""Whether a total is the sum of its functions."""

from __future__ import annotations

from grpo_watch.detectors.reward.components import WeightedSums


def test_rows_that_do_not_add_up() -> None:
    """A tenth of them may be torn or repeated ones."""
    sums = WeightedSums()
    for _ in range(9):
        sums.add_row(0.5, (0.3, 0.2), (1.0, 1.0))
    sums.add_row(0.9, (0.3, 0.2), (1.0, 1.0))
    assert not sums.wrong
    sums.add_row(0.9, (0.3, 0.2), (1.0, 1.0))
    assert sums.wrong


def test_four_printed_digits_add_up() -> None:
    """0.33335 + 0.66664 = 0.99999, printed as 0.3333, 0.6666 and 1: off by 0.0001. Weights count as well."""
    sums = WeightedSums()
    sums.add_row(1.0, (0.3333, 0.6666), (1.0, 1.0))
    sums.add_row(-0.667, (0.3333, 1.0), (1.0, -1.0))
    assert not sums.wrong
