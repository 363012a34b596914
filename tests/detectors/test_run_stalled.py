"""How long a silence is too long."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import Activity, EndState, EventKind, MetricRow, Progress, RunEvent, Tick
from grpo_watch.engine.snapshot import RuleStatus, take_snapshot
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "run-stalled"


def rows(count: int, seconds: float, *, every: int = 1, attempt: int = 1, start: float = 0.0) -> list[MetricRow]:
    """Rows ``every`` steps apart, ``seconds`` per step; the first at ``start``."""
    return [row(1 + i * every, attempt)._replace(time=start + i * every * seconds) for i in range(count)]


def first_stall(run: Watched, last: float, limit: float) -> bool:
    """Whether the silence counts just beyond ``limit`` seconds after ``last``, and not before."""
    assert run.feed(Tick(last + limit)).changes == []
    return bool(run.feed(Tick(last + limit + 1)).changes)


@pytest.mark.parametrize(("seconds", "limit"), [(1.0, 300.0), (30.0, 300.0), (60.0, 600.0), (600.0, 6000.0)])
def test_ten_median_steps_but_five_minutes_at_least(seconds: float, limit: float) -> None:
    """20 rows; the last one at 19 steps."""
    run = Watched(RULE, max_steps=100).feed_all(rows(20, seconds))
    assert first_stall(run, 19 * seconds, limit)
    assert run.changes == [("firing", 20, "critical")]


def test_half_an_hour_for_the_first_step() -> None:
    """One row so far: the second may still compile."""
    assert first_stall(Watched(RULE).feed_all(rows(1, 1.0, start=1000.0)), 1000.0, 1800.0)


def test_before_the_first_row_a_file_that_grew_starts_the_clock() -> None:
    """The model loads."""
    assert first_stall(Watched(RULE).feed(Activity("log", 1000.0)), 1000.0, 1800.0)


@pytest.mark.parametrize("setting", ["eval_steps", "save_steps"])
def test_three_times_that_where_an_evaluation_or_a_save_may_run(setting: str) -> None:
    """The newest step is 20; every 20 or every 7."""
    assert first_stall(Watched(RULE, **{setting: 20}).feed_all(rows(20, 60.0)), 19 * 60.0, 1800.0)
    assert first_stall(Watched(RULE, **{setting: 7}).feed_all(rows(20, 60.0)), 19 * 60.0, 600.0)


def test_a_wide_logging_interval_is_no_stall() -> None:
    """Every 50 steps of 60 seconds: 3000 seconds between rows, so 6000 are tolerated instead of 600."""
    run = Watched(RULE, max_steps=5000).feed_all(rows(5, 60.0, every=50))
    assert first_stall(run, 4 * 3000.0, 6000.0)


def test_a_long_generation_among_short_reuses_is_no_stall() -> None:
    """600 seconds once in eight rows, 20 otherwise: the median alone would allow 300."""
    run = Watched(RULE)
    for step in range(1, 17):
        run.feed(row(step, step_seconds=600.0 if step % 8 == 1 else 20.0))
    run.feed(Activity("log", 1000.0))
    assert first_stall(run, 1000.0, 1200.0)


def test_the_night_between_two_attempts_is_no_pace() -> None:
    """Resumed ten hours later: still 300 seconds at one second per step."""
    run = Watched(RULE).feed_all(rows(20, 1.0))
    run.feed_all(r._replace(step=r.step + 20) for r in rows(20, 1.0, attempt=2, start=36000.0))
    assert first_stall(run, 36019.0, 300.0)


@pytest.mark.parametrize(
    "sign",
    [Progress("bar", 21, 100, seen=5000.0), Activity("log", 5000.0), RunEvent("log", EventKind.STARTED, seen=5000.0)],
)
def test_every_sign_of_life_counts(sign: Progress | Activity | RunEvent) -> None:
    """At 5000 something moved."""
    run = Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(sign)
    assert first_stall(run, 5000.0, 300.0)


@pytest.mark.parametrize("kind", [EventKind.FINISHED, EventKind.TRACEBACK, EventKind.KILLED, EventKind.CRASH_SUMMARY])
def test_what_has_ended_does_not_stall(kind: EventKind) -> None:
    """A crash is another finding."""
    run = Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(RunEvent("log", kind), Tick(9e5))
    assert run.changes == []


def test_a_complete_run_does_not_stall() -> None:
    """20 of 20."""
    assert Watched(RULE, max_steps=20).feed_all(rows(20, 1.0)).feed(Tick(9e5)).changes == []


@pytest.mark.parametrize(("bar", "changes"), [(100, []), (99, [("firing", 20, "warning")])])
def test_a_full_bar_is_an_end(bar: int, changes: list[object]) -> None:
    """A row for every fifth step, say: the last steps have none."""
    run = Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(Progress("bar", bar, 100), Tick(9e5, live=False))
    assert run.changes == changes


def test_it_ends_with_the_next_row() -> None:
    """It had only been slow."""
    run = Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(Tick(400.0), row(21)._replace(time=410.0))
    assert run.changes == [("firing", 20, "critical"), ("resolved", 21, "critical")]


@pytest.mark.parametrize(("in_folder", "severity"), [(True, "warning"), (False, "info")])
def test_offline_it_is_milder(in_folder: bool, severity: str) -> None:  # noqa: FBT001
    """Whether the job still runs can't be known; a lone file may have lost its times."""
    run = Watched(RULE, in_folder=in_folder, max_steps=100).feed_all(rows(20, 1.0)).feed(Tick(9e5, live=False))
    assert run.changes == [("firing", 20, severity)]


def test_copied_files_are_younger_than_the_run() -> None:
    """Read a minute after it was copied, a day after its last row; not so where the log grew for a new start."""
    copied, now = Activity("log", 100_000.0), Tick(100_060.0, live=False)
    assert Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(copied, now).changes == [("firing", 20, "warning")]
    assert Watched(RULE, max_steps=100).feed_all(rows(20, 1.0, start=50_000.0)).feed(copied, now).changes == []
    again = RunEvent("log", EventKind.STARTED)
    assert Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(again, copied, now).changes == []


def test_a_single_row_in_a_folder_is_an_excerpt() -> None:
    """Somebody's paste of one line or two: nothing shows how fast the run was, nor where it ended."""
    for count in (1, 2):
        run = Watched(RULE, max_steps=100).feed_all(rows(count, 1.0, start=1000.0)).feed(Tick(9e5, live=False))
        assert run.changes == []
        assert "excerpt of a longer log" in run.blind_reason


def test_rows_that_begin_in_the_middle_are_an_excerpt() -> None:
    """Steps 9 to 12 of 547 in an issue: the rest was left out, unless settings say whose run it is."""
    cut = [row(step)._replace(time=float(step)) for step in (9, 10, 11, 12)]
    said = Watched(RULE, max_steps=547).feed_all(cut).feed(Tick(1e6, live=False))
    assert said.changes == []
    resumed = Watched(RULE, max_steps=547, num_generations=8).feed_all(cut).feed(Tick(1e6, live=False))
    assert [severity for _, _, severity in resumed.changes] == ["warning"]
    every_ten = [row(step)._replace(time=float(step)) for step in (10, 20, 30)]
    whole = Watched(RULE, max_steps=547).feed_all(every_ten).feed(Tick(1e6, live=False))
    assert [severity for _, _, severity in whole.changes] == ["warning"]


@pytest.mark.parametrize("state", [EndState.RUNNING, EndState.ENDED])
def test_the_user_knows_better_than_the_clock(state: EndState) -> None:
    """--running and --ended."""
    run = Watched(RULE, max_steps=100).feed_all(rows(20, 1.0)).feed(Tick(9e5, live=False, state=state))
    assert run.changes == []


def test_blind_where_the_end_does_not_show() -> None:
    """TensorBoard alone."""
    run = Watched(RULE, shows_end=False).feed_all(rows(20, 1.0)).feed(Tick(9e5))
    assert run.changes == []
    assert "no channel" in run.blind_reason


def test_rows_without_an_end_are_blindness_not_health() -> None:
    """Event files alone: each row was quiet, and yet nothing is known of the end."""
    run = Watched(RULE, shows_end=False, max_steps=100).feed(row(1), row(2), Tick(9e4, live=False))
    (view,) = take_snapshot(run.state).rules
    assert view.status is RuleStatus.BLIND
    assert "no channel that is read shows" in view.reason
