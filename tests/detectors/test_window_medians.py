"""Blocks of a series."""

from __future__ import annotations

import pytest

from grpo_watch.detectors.reward.components import WindowMedian, WindowMedians


def test_a_block_has_a_median_its_error_and_the_floor_so_far() -> None:
    """Quartiles 2 and 4, over 1.349; times 1.25, over the root of 5."""
    blocks = WindowMedians(3)
    blocks.values += [1, 2, 3, 4, 5]
    blocks.close()
    assert blocks.kept[0] == WindowMedian(3, pytest.approx(1.25 * 2 / 1.349 / 5**0.5), 0.0)
    blocks.values += [-1, 7, 7]
    blocks.close()
    assert blocks.kept[1].floor == -1
    assert blocks.middles(1) == [3, 7]
    blocks.close()
    assert len(blocks.kept) == 2


def test_above_counts_errors() -> None:
    assert WindowMedian(2.0, 0.1, 0.0).above(WindowMedian(1.5, 0.1, 0.0), 4.0)
    assert not WindowMedian(2.0, 0.1, 0.0).above(WindowMedian(1.7, 0.1, 0.0), 4.0)
