"""Lines that reach the ceiling, and lines that do not."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.detecting import Watched
from tests.support.records import row

RULE = "memory-creep"


def fed(memory: Callable[[int], float], rows: int = 400, **settings: int) -> Watched:
    return Watched(RULE, **settings).feed_all(row(s, memory_gib=memory(s)) for s in range(1, rows + 1))


def test_a_steady_rise_is_projected() -> None:
    """36 GiB and 0.01 per step: 97 % of 40 GiB are 38.8, at step 280."""
    run = fed(lambda s: 36.0 + 0.01 * s, rows=160, max_steps=1000)
    assert run.changes == [("firing", 140, "warning")]
    evidence = run.said[-1].reading.evidence
    assert evidence["capacity_gib"] == 40.0
    assert evidence["full_at_step"] == 280


def test_a_run_that_ends_before_is_fine() -> None:
    assert fed(lambda s: 36.0 + 0.01 * s, rows=250, max_steps=270).changes == []


def test_flat_stepped_and_levelling_memory_is_fine() -> None:
    assert fed(lambda s: 67.9 if s < 170 else 68.3, max_steps=9999).changes == []
    assert fed(lambda s: 36.0 + min(2.0, 0.05 * s), max_steps=9999).changes == []
    assert fed(lambda s: 36.0 + s % 7, max_steps=9999).changes == []


def test_it_goes_on_until_the_memory_is_full() -> None:
    """At step 280 memory passes 97 % of 40 GiB: that is the last of it, not a reason to look at 48 GiB."""
    assert fed(lambda s: 36.0 + 0.01 * s, rows=390, max_steps=1000).changes == [("firing", 140, "warning")]


def test_noise_does_not_end_it() -> None:
    """From row 200 on every third row lies 3 GiB lower: a line explains less than 80 % of what goes on rising."""
    run = fed(lambda s: 60.0 + 0.01 * s - (3.0 if s > 200 and s % 3 == 0 else 0.0), rows=600, max_steps=2500)
    assert [state for state, _, _ in run.changes] == ["firing"]


def test_memory_that_levels_off_ends_it() -> None:
    run = fed(lambda s: 36.0 + 0.01 * min(s, 200), rows=900, max_steps=1000)
    assert [state for state, _, _ in run.changes] == ["firing", "resolved"]


def test_nothing_is_reported_before_a_hundred_rows() -> None:
    assert not fed(lambda s: 36.0 + s, rows=99, max_steps=9999).monitor.evaluated


def test_memory_of_a_long_run_is_bounded() -> None:
    run = fed(lambda s: 36.0 + 0 * s, rows=3000)
    assert len(run.monitor.detector.points) < 33  # type: ignore[attr-defined]
