"""The end of a run: end markers, slower channels, silence, copies; and runs that are missing, lost, found, resumed."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_watch.daemon.run_end import LOST_LOOKS, LOST_SECONDS, QUIET_ENDED, QUIET_STALLED, RunEnd, RunLife
from grpo_watch.engine.engine import RunState
from grpo_watch.engine.records import ChannelKind, EventKind, RawRow, RunEvent, Stream
from tests.support.bundles import RECORDED
from tests.support.feeding import RUN


def row(channel: str, kind: ChannelKind, step: int) -> RawRow:
    return RawRow(channel, kind, step, {"loss": 1.0})


def over(end: RunEnd, now: float, *, short: bool = True, shows_end: bool = True) -> bool:
    state = RunState("run", ())
    state.step, state.max_steps, state.shows_end = 10, 20 if short else 10, shows_end
    return end.over(now, state)


def test_an_end_marker_ends_a_run_and_a_row_after_it_does_not() -> None:
    end = RunEnd()
    end.touch(0.0)
    end.take(row("c", ChannelKind.CONSOLE, 10))
    assert not over(end, 1.0)
    end.take(RunEvent("c", EventKind.FINISHED))
    end.take(RawRow("c", ChannelKind.CONSOLE, 10, {"eval_loss": 1.0}, Stream.EVAL))
    assert over(end, 1.0)
    end.take(row("c", ChannelKind.CONSOLE, 11))
    assert not over(end, 1.0)


MARK = RunEvent("c", EventKind.FINISHED, seen=100.0)


@pytest.mark.parametrize(
    ("items", "ended"),
    [
        ([MARK], True),
        ([MARK, ("t", 8)], True),
        ([MARK, ("t", 10)], True),
        ([MARK, ("t", None)], True),
        ([MARK, ("t", 9), ("t", 10)], True),
        ([("t", 9), MARK, ("t", 10)], True),
        ([MARK, ("c", 10)], False),
        ([MARK, ("t", 11)], True),
        ([MARK, ("t", 11), ("t", 11)], True),
        ([MARK, ("t", 11), ("t", 12)], False),
        ([MARK, ("t", 11), ("t", 12), MARK], True),
        ([MARK, ("t", 11, 90.0), ("t", 12, 99.0)], True),
        ([MARK, ("t", 11, 101.0)], False),
        ([MARK, RunEvent("c", EventKind.STARTED)], False),
        ([MARK, RunEvent("c", EventKind.STARTED), ("t", 3)], False),
        ([MARK, RunEvent("c", EventKind.STARTED), ("c", 3), MARK, ("t", 3)], True),
    ],
    ids=str,
)
def test_rows_of_a_slower_channel_continue_no_finished_run(
    items: list[RunEvent | tuple[Any, ...]],
    ended: bool,  # noqa: FBT001
) -> None:
    """``c`` is the console with the end marker at step 10, ``t`` a tracker that is flushed later (step, time)."""
    end = RunEnd()
    end.touch(0.0)
    end.take(row("c", ChannelKind.CONSOLE, 10))
    for item in items:
        if isinstance(item, RunEvent):
            end.take(item)
        else:
            channel, step, *time = item
            end.take(RawRow(channel, ChannelKind.TFEVENTS, step, {"loss": 1.0}, time=time[0] if time else None))
    assert over(end, 1.0) is ended


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ({"short": True, "shows_end": True}, QUIET_STALLED),
        ({"short": False, "shows_end": True}, QUIET_ENDED),
        ({"short": True, "shows_end": False}, QUIET_ENDED),
    ],
)
def test_silence_ends_a_run(said: dict[str, bool], limit: float) -> None:
    """A run that stopped short is stalled for a day before it is over: a person is to see that alert."""
    end = RunEnd()
    end.touch(100.0)
    assert not over(end, 100.0 + limit, **said)
    assert over(end, 101.0 + limit, **said)


def test_a_copy_ended_with_its_last_step() -> None:
    """The files are a copy of today; the newest step was logged two days before, and an evaluation after it."""
    end, today = RunEnd(), RECORDED + 2 * 86_400.0
    end.touch(today)
    for stream, moment in ((Stream.TRAIN, RECORDED), (Stream.TRAIN, RECORDED - 60), (Stream.EVAL, RECORDED + 60)):
        end.take(RawRow("tb", "tfevents", 1, {"reward": 0.5}, stream, time=moment))
    state = RunState(RUN, ())
    state.max_steps, state.shows_end = 9, True
    assert not end.over(today, state)
    end.date_by_steps()
    assert end.written == RECORDED
    assert end.over(today, state)
    end.touch(today + 1)  # seen to grow
    assert not end.over(today + 1, state)


def test_without_times_of_steps_those_of_files_count() -> None:
    end = RunEnd()
    end.touch(RECORDED)
    end.take(RawRow("log", "console", 1, {"reward": 0.5}))
    end.date_by_steps()
    assert end.written == RECORDED


LOOK = LOST_SECONDS / (LOST_LOOKS - 1)
"""Seconds between two looks of the table below."""
GONE, HELD, MOVED, READ, FOUND, OVER = "gone", "held", "moved", "read", "found", "over"


@pytest.mark.parametrize(
    ("looks", "becomes"),
    [
        ((), "running"),
        ((GONE,), "missing"),
        ((GONE, FOUND), "running"),
        ((GONE,) * (LOST_LOOKS - 1), "missing"),
        ((GONE,) * LOST_LOOKS, "lost"),
        ((GONE, FOUND, *(GONE,) * (LOST_LOOKS - 1)), "missing"),
        ((GONE, READ, *(GONE,) * (LOST_LOOKS - 2)), "missing"),
        ((GONE, READ, *(GONE,) * (LOST_LOOKS - 1)), "lost"),
        ((HELD,) * 9, "missing"),
        ((*(HELD,) * 9, GONE), "lost"),
        ((MOVED,), "lost"),
        ((GONE, MOVED), "lost"),
        ((GONE, OVER), "ended"),
        ((OVER,), "ended"),
        ((*(GONE,) * LOST_LOOKS, FOUND), "running"),
        ((OVER, FOUND), "running"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_what_becomes_of_a_run(looks: tuple[str, ...], becomes: str) -> None:
    """One look after the other: not found (with an open file, or moved into another run), read on, found, over."""
    life, now, read = RunLife(), 1_000.0, 50
    for what in looks:
        if what == OVER:
            life.end(now - 5.0, now)
        elif what == FOUND:
            life.find()
            life.go_on()
        else:
            read += what == READ
            life.miss(now, read, held=what == HELD, moved=what == MOVED)
        now += LOOK
    if life.ended is not None:
        assert life.noted is not None
        assert becomes == ("lost" if life.lost else "ended")
    else:
        assert becomes == ("running" if not life.missed else "missing")
        assert not life.lost
