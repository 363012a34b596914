"""What a wall clock that is set back or forward does to the watch's time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.daemon.schedule import Jumps, SteadyClock


class Hands:
    """A wall clock and a monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.timer = 1_000.0, 50.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.timer += seconds

    def steady(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.timer)


def test_a_clock_that_is_set_back_by_an_hour() -> None:
    """Half speed for two hours, then the wall clock again; never back."""
    hands = Hands()
    steady = hands.steady()
    hands.pass_by(10)
    assert steady() == 1_010
    hands.wall -= 3_600
    assert steady() == 1_010
    hands.pass_by(600)
    assert steady() == 1_310  # the wall shows 1,010 - 3,600 + 600
    hands.pass_by(6_600)  # two hours since
    assert steady() == hands.wall == 4_610
    hands.pass_by(1)
    assert steady() == 4_611


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(-1e6, 1e6))))
def test_it_never_goes_back_and_never_stands_still(moves: list[tuple[float, float]]) -> None:
    hands = Hands()
    steady = hands.steady()
    before = steady()
    for passed, step in moves:
        hands.pass_by(passed)
        hands.wall += step
        now = steady()
        assert now >= max(before + 0.49 * passed, hands.wall)
        before = now


def test_jumps() -> None:
    """An hour forward is one; time that passes, a clock that is set back or drifts is none."""
    jumps, hands = Jumps(), Hands()
    assert not jumps.seen(hands.wall, hands.timer)
    for passed, step, jumped in ((1, 0, False), (7_200, 0, False), (1, 3_600, True), (1, -9_000, False), (1, 5, False)):
        hands.pass_by(passed)
        hands.wall += step
        assert jumps.seen(hands.wall, hands.timer) is jumped
