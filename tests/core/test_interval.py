"""How many steps a row stands for."""

from __future__ import annotations

import pytest

from grpo_watch.core.interval import Interval


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([], 1), ([40], 1), ([1, 2, 3], 1), ([1, 5, 10], 4), ([5, 10, 20], 5), ([10, 20, 11, 21], 10)],
)
def test_the_least_distance_between_rows(steps: list[int], expected: int) -> None:
    """Rows may be missing; a resume goes back."""
    interval = Interval()
    for step in steps:
        interval.take(step)
    assert interval.steps == expected
