"""When a KL lies on a floor of noise: flat from the first row on, without a trend over 50 rows."""

from __future__ import annotations

import pytest

from grpo_watch.detectors.policy.kl_stuck_at_zero import NoiseFloor
from grpo_watch.engine.window import correlation, ranks

LEVEL = 0.001


def level(values: list[float]) -> float | None:
    """The floor that rows of 50 steps give, in multiples of 0.001."""
    floor = NoiseFloor()
    for step, value in enumerate(values, 1):
        floor.push(step, value * LEVEL)
    return None if floor.level is None else floor.level / LEVEL


def order(values: list[float]) -> float:
    return correlation(range(len(values)), ranks(values))


def test_noise_around_a_constant_is_a_floor() -> None:
    """1.0 and 1.1 in turn: the median of 50 values lies between."""
    assert level([1.0, 1.1] * 25) == pytest.approx(1.05)


def test_half_of_the_rows_on_a_climb_are_no_floor() -> None:
    """Every other row climbs by 10 % in all, well within the factor of 1.3, but in order (0.4 is allowed)."""
    values = [1.0 + 0.002 * (n if n % 2 else 25) for n in range(50)]
    assert 0.4 < order(values) < 0.95
    assert level(values) is None


@pytest.mark.parametrize(("last", "found"), [(1.25, True), (1.35, False)])
def test_the_last_quarter_lies_at_the_first_ones_level(last: float, *, found: bool) -> None:
    """Factor of 1.3. The rows between rise first and then fall below, so that there is no order in time."""
    values = [1.0] * 12 + [1.5] * 13 + [0.9] * 13 + [last] * 12
    assert abs(order(values)) < 0.4
    assert (level(values) is not None) is found
