"""The ledger: restarts are distinguished from duplicates, late rows and two jobs in one log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.pipeline.attempts import AttemptLedger
from tests.support.records import RawRow, raw

quick = settings(derandomize=True, deadline=None, max_examples=200)


def row(step: int | None, life: int = 1, segment: int = 0) -> RawRow:
    """A row whose numbers differ between the lives of a job."""
    return raw(step, values={"reward": step or 0.5, "step_time": float(life)}, segment=segment)


def settled(ledger: AttemptLedger, rows: Iterable[RawRow]) -> list[tuple[int, int]]:
    """Attempt and step of every row that the ledger lets through."""
    return [(entry.attempt, entry.step) for each in rows for entry in ledger.take(each)]


def steps(*numbers: int, life: int = 1) -> list[RawRow]:
    """Rows of these steps."""
    return [row(number, life) for number in numbers]


def test_rising_steps_are_one_attempt() -> None:
    ledger = AttemptLedger()
    assert settled(ledger, steps(1, 2, 5, 10)) == [(1, 1), (1, 2), (1, 5), (1, 10)]
    assert (ledger.attempt, ledger.last_step, ledger.interleaved) == (1, 10, False)


def test_a_run_may_begin_anywhere() -> None:
    """A console that was attached late, or a resumed run in a new folder."""
    assert settled(AttemptLedger(), steps(41, 42)) == [(1, 41), (1, 42)]


def test_the_repeated_final_row_is_a_duplicate() -> None:
    ledger = AttemptLedger()
    assert settled(ledger, steps(1, 2, 3, 3)) == [(1, 1), (1, 2), (1, 3)]
    assert ledger.attempt == 1


@pytest.mark.parametrize(
    "printed",
    [
        (1, 1, 2, 2, 3, 3, 4, 4),
        (1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4),
        (1, 2, 1, 2, 3, 4, 3, 4),
        (1, 2, 1, 3, 2, 4, 3, 4),
        (1, 2, 3, 4, 1, 2, 3, 4),
    ],
)
def test_several_ranks_on_one_console_are_one_job(printed: tuple[int, ...]) -> None:
    """The same rows once per rank, in step, one row behind, or in bursts: each row counts once."""
    ledger = AttemptLedger()
    assert settled(ledger, steps(*printed)) == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert (ledger.attempt, ledger.interleaved) == (1, False)


@pytest.mark.parametrize("printed", [(1, 2, 4, 3, 5, 6), (1, 2, 4, 3, 4, 5, 6), (1, 4, 3, 5, 4, 6)])
def test_a_late_row_is_dropped(printed: tuple[int, ...]) -> None:
    """A row flushed late, also beside a repeated one, opens no attempt."""
    ledger = AttemptLedger()
    rising = sorted({step for at, step in enumerate(printed) if step >= max(printed[: at + 1])})
    assert settled(ledger, steps(*printed)) == [(1, step) for step in rising]


def test_two_rows_going_on_from_a_lower_step_are_a_new_attempt() -> None:
    """The first row back is held until the second decides; both belong to the new attempt."""
    ledger = AttemptLedger()
    assert settled(ledger, steps(1, 2, 3, 4, 5, 6)) == [(1, step) for step in range(1, 7)]
    assert settled(ledger, [row(4, 2)]) == []
    assert settled(ledger, [row(5, 2)]) == [(2, 4), (2, 5)]
    assert settled(ledger, steps(6, 7, life=2)) == [(2, 6), (2, 7)]


def test_a_resume_just_below_the_last_step_is_a_new_attempt() -> None:
    """Died after 60, resumed from 58: rows 59 and 60 come again with other numbers."""
    ledger = AttemptLedger()
    settled(ledger, steps(58, 59, 60))
    assert settled(ledger, steps(59, 60, 61, life=2)) == [(2, 59), (2, 60), (2, 61)]


def test_a_logging_interval_of_ten_changes_nothing() -> None:
    ledger = AttemptLedger()
    assert settled(ledger, steps(10, 20, 30, 40)) == [(1, 10), (1, 20), (1, 30), (1, 40)]
    assert settled(ledger, steps(30, 40, 50, life=2)) == [(2, 30), (2, 40), (2, 50)]


def test_a_restart_that_dies_after_one_row_gives_way_to_the_next() -> None:
    """60, then 41 (one row, died), then 21, 22: the attempt that shows begins at 21."""
    ledger = AttemptLedger()
    settled(ledger, steps(59, 60))
    rows = [row(41, 2), row(21, 3), row(22, 3), row(23, 3)]
    assert settled(ledger, rows) == [(2, 21), (2, 22), (2, 23)]


def test_a_second_restart_of_the_same_length_is_seen() -> None:
    ledger = AttemptLedger()
    settled(ledger, steps(41, 42, 43))
    assert settled(ledger, steps(41, 42, life=2)) == [(2, 41), (2, 42)]
    assert settled(ledger, steps(41, 42, life=3)) == [(3, 41), (3, 42)]


def test_a_higher_segment_is_a_new_attempt_at_once_wherever_it_begins() -> None:
    ledger = AttemptLedger()
    assert settled(ledger, [row(1), row(2), row(3, 2, segment=1), row(4, 2, segment=1)]) == [
        (1, 1),
        (1, 2),
        (2, 3),
        (2, 4),
    ]


def test_a_row_of_a_lower_segment_comes_too_late() -> None:
    ledger = AttemptLedger()
    assert settled(ledger, [row(1, segment=1), row(9, segment=0), row(2, segment=1)]) == [(1, 1), (1, 2)]


def test_the_first_segment_may_have_any_number() -> None:
    assert settled(AttemptLedger(), [row(1, segment=3), row(2, segment=3)]) == [(1, 1), (1, 2)]


def test_a_held_row_before_a_new_segment_opens_no_attempt() -> None:
    ledger = AttemptLedger()
    settled(ledger, [row(5), row(3, 2), row(1, 3, segment=1)])
    assert ledger.attempt == 2


def test_a_progress_bar_that_starts_over_opens_an_attempt_at_once() -> None:
    ledger = AttemptLedger()
    settled(ledger, steps(1, 2, 3))
    ledger.restart()
    assert settled(ledger, steps(2, 3, 4, life=2)) == [(2, 2), (2, 3), (2, 4)]


def test_a_resume_at_the_last_step_shows_by_its_bar() -> None:
    """Saved at 40, resumed at 40: the rows go on rising, only the bar tells."""
    ledger = AttemptLedger()
    settled(ledger, steps(39, 40))
    ledger.restart()
    ledger.restart()
    assert settled(ledger, steps(41, 42, life=2)) == [(2, 41), (2, 42)]


@pytest.mark.parametrize(
    ("again", "rows"),
    [(steps(39, 40, life=2), steps(41, 42, life=2)), ([row(41, 2, segment=1)], [row(42, 2, segment=1)])],
    ids=["steps", "segment"],
)
def test_a_bar_behind_the_first_rows_of_an_attempt_is_of_that_attempt(again: list[RawRow], rows: list[RawRow]) -> None:
    """A tracker's server says that the run continues after it gave the first rows of that."""
    ledger = AttemptLedger()
    settled(ledger, steps(39, 40, 41))
    settled(ledger, again)
    ledger.restart()
    assert {attempt for attempt, _ in settled(ledger, rows)} == {2}
    ledger.restart()  # the next one is the attempt after that
    assert settled(ledger, [row(60, 3, segment=rows[0].segment)]) == [(3, 60)]


def test_the_first_bar_opens_nothing() -> None:
    ledger = AttemptLedger()
    ledger.restart()
    assert settled(ledger, steps(1, 2)) == [(1, 1), (1, 2)]


def test_rows_without_a_step_are_counted_up() -> None:
    assert settled(AttemptLedger(), [row(None), row(None), row(7), row(None)]) == [(1, 1), (1, 2), (1, 7), (1, 8)]


def test_two_interleaved_jobs_are_reported_and_make_no_attempts() -> None:
    ledger = AttemptLedger()
    mixed = [each for number in range(1, 8) for each in (row(100 + number), row(number, 2))]
    assert settled(ledger, mixed) == [(1, 100 + number) for number in range(1, 8)]
    assert ledger.interleaved


def test_two_late_rows_far_apart_are_not_two_jobs() -> None:
    ledger = AttemptLedger()
    settled(ledger, steps(1, 2, 4, 3, 5, 6, 8, 7, 9, 10))
    assert not ledger.interleaved


LIVES = st.lists(st.tuples(st.integers(0, 8), st.integers(2, 8)), min_size=1, max_size=6)
"""Per life of the job: how many rows it goes back by (0: to the very beginning), and how many rows it writes."""


@quick
@given(LIVES, st.integers(1, 10))
def test_any_history_of_restarts_is_recovered_exactly(lives: list[tuple[int, int]], interval: int) -> None:
    """Each life begins at least one logged interval below the last row and writes two rows or more."""
    printed, expected, last, attempt = [], [], 0, 0
    for life, (back, count) in enumerate(lives):
        start = 1 if not life or not back else max(1, last + 1 - back)
        if life and start >= last:
            continue
        attempt += 1
        numbers = [(start + row_number) * interval for row_number in range(count)]
        printed += [row(number, life) for number in numbers]
        expected += [(attempt, number) for number in numbers]
        last = start + count - 1
    ledger = AttemptLedger()
    assert settled(ledger, printed) == expected
    assert ledger.attempt == attempt


@pytest.mark.slow
@quick
@given(st.lists(st.integers(1, 5), min_size=3, max_size=30), st.data())
def test_single_rows_out_of_order_never_make_an_attempt(gaps: list[int], data: st.DataObject) -> None:
    """Between two rows of a rising log at most one older step is put in, seen before or not."""
    printed, at, alien = [], 0, 0
    for gap in gaps:
        at += gap
        printed.append(row(at))
        if at > 1 and data.draw(st.booleans()):
            printed.append(row(data.draw(st.integers(1, at)), 2))
            alien += 1
    ledger = AttemptLedger()
    got = settled(ledger, printed)
    assert got == [(1, step) for step in sorted({step for _, step in got})]
    assert (len(got), ledger.attempt) == (len(gaps), 1)


@pytest.mark.slow
@quick
@given(LIVES, st.lists(st.integers(0, 3), min_size=60, max_size=60))
def test_repeating_rows_at_once_changes_nothing(lives: list[tuple[int, int]], copies: list[int]) -> None:
    """Ranks that print the same row after each other."""
    printed = [row(start + number, life) for life, (start, count) in enumerate(lives) for number in range(count)]
    repeated = [each for each, times in zip(printed, copies, strict=False) for _ in range(times + 1)]
    assert settled(AttemptLedger(), repeated) == settled(AttemptLedger(), printed)


@pytest.mark.parametrize(
    ("printed", "attempts"),
    [
        ((1, 2623, 3, 4), 1),
        ((10, 20, 30, 26230, 50, 60), 1),
        ((1, 2, 900, 3, 4), 1),
        ((1, 2623, 3, 4, 4005, 6, 7, 5333, 9, 10), 1),
        ((1, 2, 900, 901), 1),
        ((1, 2, 900, 901, 3, 4), 2),
        ((1, 200, 400, 600, 201, 401), 2),
        ((1, 2, 3, 4, 5, 6, 900, 1, 2), 2),
    ],
    ids=["second", "tens", "too many", "several", "goes on there", "resumed", "every 200", "from the start"],
)
def test_one_step_far_out_between_its_neighbours_begins_no_attempt(printed: tuple[int, ...], attempts: int) -> None:
    """The row counts as it was printed; where the steps go on behind the far one, it was no misprint."""
    ledger = AttemptLedger()
    assert [step for _, step in settled(ledger, steps(*printed))] == list(printed)
    assert (ledger.attempt, ledger.last_step) == (attempts, printed[-1])
    assert not ledger.interleaved


@pytest.mark.parametrize("printed", [(1, 500, 1000, 1500, 2000), (1, 200), (1, 2, 3, 500), (5, 100_000)])
def test_no_row_waits_for_another_because_its_step_is_far_ahead(printed: tuple[int, ...]) -> None:
    ledger = AttemptLedger()
    for step in printed:
        assert settled(ledger, steps(step)) == [(1, step)]
        assert ledger.last_step == step


def test_ranks_repeat_a_misprint_too() -> None:
    ledger = AttemptLedger()
    assert settled(ledger, steps(1, 1, 2623, 2623, 3, 3, 4, 4)) == [(1, 1), (1, 2623), (1, 3), (1, 4)]


def test_two_jobs_far_apart_are_no_misprints() -> None:
    ledger = AttemptLedger()
    settled(ledger, steps(*(step for n in range(1, 8) for step in (n, 5000 + n))))
    assert (ledger.interleaved, ledger.attempt) == (True, 1)
