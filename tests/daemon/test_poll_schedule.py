"""A run that gives nothing is read less often, and never so rarely that its next row comes late."""

from __future__ import annotations

from itertools import pairwise

from grpo_watch.daemon.schedule import LONGEST_SECONDS, LONGEST_WATCHED_SECONDS, SHARE, Rest

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
