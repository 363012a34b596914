"""Reading is slowed down to the rate that was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.sources.checkpoints.weights import Throttle


class Clock:
    """Goes on only while somebody waits, and by what reading takes."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_ten_seconds_for_ten_times_the_rate() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.wait)
    for _ in range(100):
        throttle.take(100)
    assert clock.now == pytest.approx(110)


@pytest.mark.slow
def test_a_slow_disk_is_not_slowed_down() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.wait)
    throttle.take(0)
    clock.now += 5
    throttle.take(4000)
    assert clock.now == 105


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 5)), min_size=1, max_size=30))
def test_never_faster_than_the_rate(pieces: list[tuple[int, float]]) -> None:
    clock = Clock()
    throttle = Throttle(500, clock, clock.wait)
    for count, reading in pieces:
        clock.now += reading
        throttle.take(count)
    assert clock.now - 100 >= sum(count for count, _ in pieces) / 500 - 1e-6
