"""Metrics that go, metrics that come by turns."""

from __future__ import annotations

from tests.support.detecting import Watched
from tests.support.records import row

RULE = "metric-vanished"


def fed(present: str, every: int = 1) -> Watched:
    """One row per letter: ``x`` carries the KL, ``n`` logs it as null, ``.`` lacks it."""
    run = Watched(RULE)
    for index, letter in enumerate(present, 1):
        values = {"x": {"kl_reference": 0.1}, "n": {"kl_reference": None}, ".": {}}[letter]
        run.feed(row(index * every, loss=0.0, **values))
    return run


def test_twenty_rows_without_it_after_thirty_with_it() -> None:
    """Rows 31 to 50 lack it; every tenth row is judged."""
    run = fed("x" * 30 + "." * 20)
    assert run.changes == [("firing", 50, "warning")]
    assert run.said[-1].first_step == 31
    assert "kl_reference" in run.said[-1].reading.message


def test_null_is_gone_too_and_it_may_come_back() -> None:
    assert fed("x" * 30 + "n" * 25 + "x" * 10).changes == [("firing", 50, "warning"), ("resolved", 60, "warning")]


def test_it_must_have_been_usual() -> None:
    """Nineteen rows are too few; every fourth row is missed only after twenty and five distances."""
    assert fed("x" * 19 + "." * 60).changes == []
    assert fed("x..." * 40).changes == []
    assert fed("x........." * 25 + "." * 30).changes == []
    assert fed("x........." * 25 + "." * 60).changes[0][0] == "firing"


def test_the_end_of_a_run_is_no_vanishing() -> None:
    """The closing row carries no training metric, and nothing follows."""
    run = fed("x" * 60).feed(row(61, epoch=1.0), row(61, tokens_seen=9.0))
    assert run.changes == []


def test_another_channel_that_still_has_it() -> None:
    """The primary changed to one without KL; the old one goes on."""
    run = fed("x" * 30)
    for step in range(31, 80):
        run.feed(row(step, loss=0.0), row(step, supplement=True, kl_reference=0.1))
    assert run.changes == []


def test_a_new_attempt_starts_from_nothing() -> None:
    run = fed("x" * 60).feed_all(row(s, 2, loss=0.0) for s in range(61, 121))
    assert run.changes == []
