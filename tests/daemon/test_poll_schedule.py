"""A run that gives nothing is read less often, and never so rarely that its next row comes late."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.daemon.schedule import LONGEST_SECONDS, SHARE, Rest

TURN = 0.2


def reads(rest: Rest, start: float, seconds: float) -> list[float]:
    """When the run is read in turns of 0.2 seconds, every fifth of which ticks."""
    found = []
    for turn in range(int(seconds / TURN)):
        now = start + turn * TURN
        if rest.due(now, ticks=turn % 5 == 0):
            rest.read(now, gave=False)
            found.append(now - start)
    return found


def test_a_run_that_just_gave_rows_is_read_at_every_turn() -> None:
    assert len(reads(Rest(100.0), 100.0, 3.0)) == 15


def test_a_quiet_run_is_read_every_ten_seconds_at_most_that_rarely() -> None:
    times = reads(Rest(100.0), 100.0, 600.0)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert max(pauses) <= LONGEST_SECONDS + TURN
    assert len([each for each in times if each > 300.0]) <= 31
    for time, pause in zip(times, pauses, strict=False):
        assert pause <= time / SHARE + 1.0 + TURN  # a step a minute: within 3.6 seconds


def test_a_row_ends_the_rest() -> None:
    rest = Rest(0.0)
    rest.read(500.0, gave=False)
    assert not rest.due(501.0, ticks=True)
    rest.read(505.0, gave=True)
    assert rest.due(505.2, ticks=False)


@given(st.floats(-1e6, 1e6))
def test_a_clock_that_jumps_never_keeps_a_run_asleep(jump: float) -> None:
    rest = Rest(1e9)
    rest.read(1e9 + 600.0, gave=False)
    later = reads(rest, 1e9 + 600.0 + jump, 2 * LONGEST_SECONDS + 1.0)
    assert later
