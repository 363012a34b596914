"""A run that gives nothing is read less often, and never so rarely that its next row comes late."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.daemon.schedule import LONGEST_SECONDS, LONGEST_WATCHED_SECONDS, SHARE, Rest
from grpo_watch.daemon.turn_order import Timers

TURN = 0.2


def reads(rest: Rest, start: float, seconds: float) -> list[float]:
    """When the run is read in turns of 0.2 seconds."""
    found = []
    for turn in range(int(seconds / TURN)):
        now = start + turn * TURN
        if now >= rest.until():
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
    assert rest.until() == 500.0 + LONGEST_SECONDS
    rest.read(505.0, gave=True)
    assert rest.until() == 505.0


def test_where_a_write_rings_a_run_rests_longer() -> None:
    rest = Rest(0.0)
    rest.read(1.0, gave=True)
    assert rest.until(0.5) == 1.5
    assert rest.until(0.5, watched=True) == 1.0 + LONGEST_WATCHED_SECONDS


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100) | st.none())), st.integers(0, 100))
def test_timers_are_due_at_the_time_that_was_set_last(settings: list[tuple[int, int | None]], now: int) -> None:
    timers, last = Timers[int](), dict[int, int]()
    for thing, at in settings:
        if at is None:
            timers.drop(thing)
            last.pop(thing, None)
        else:
            timers.set(thing, at)
            last[thing] = at
    assert timers.next() == min(last.values(), default=None)
    assert sorted(timers.take_due(now)) == sorted(thing for thing, at in last.items() if at <= now)
    assert timers.next() == min((at for at in last.values() if at > now), default=None)
