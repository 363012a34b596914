"""Episodes of one rule that follow closely are one finding with gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.engine.diagnosis import Finding, Waste
from grpo_watch.engine.records import Severity
from grpo_watch.report.view import joined, when
from tests.support.reports import a_finding, a_report


def listed(*findings: Finding) -> tuple[Finding, ...]:
    return joined(replace(a_report().snapshot, findings=findings)).findings


def test_an_alert_that_comes_and_goes() -> None:
    """Steps 2 to 20, 25 to 40, and from 50 on: three episodes, of which the newest says how bad it is."""
    parts = (
        a_finding(
            first_step=50, fired_step=52, severity=Severity.WARNING, summary="newest", wasted=Waste(5, 1.0, None)
        ),
        a_finding(first_step=2, fired_step=4, resolved_step=20, wasted=Waste(18, None, None)),
        a_finding(first_step=25, fired_step=27, resolved_step=40, wasted=None),
    )
    (found,) = listed(*parts)

    assert (found.first_step, found.fired_step, found.resolved_step) == (2, 4, None)
    assert (found.severity, found.summary, found.wasted) == (Severity.WARNING, "newest", Waste(23, 1.0, None))
    assert found.episodes == ((2, 4, 20), (25, 27, 40), (50, 52, None))
    assert when(found) == "since step 2, fired at 4, in 3 episodes"


def test_what_is_over_keeps_its_worst_severity() -> None:
    (found,) = listed(
        a_finding(first_step=2, fired_step=4, resolved_step=20),
        a_finding(first_step=25, fired_step=27, resolved_step=40, severity=Severity.WARNING),
    )
    assert (found.severity, found.resolved_step) == (Severity.CRITICAL, 40)


@pytest.mark.parametrize(("begins", "count"), [(30, 1), (31, 2)])
def test_a_gap_of_ten_steps_joins_short_episodes(begins: int, count: int) -> None:
    assert len(listed(a_finding(resolved_step=20, first_step=15), a_finding(first_step=begins, fired_step=90))) == count


@pytest.mark.parametrize(("begins", "count"), [(200, 1), (202, 2)])
def test_a_gap_no_longer_than_the_episode_before_joins(begins: int, count: int) -> None:
    """Steps 2 to 101 are 99 steps."""
    assert len(listed(a_finding(resolved_step=101), a_finding(first_step=begins, fired_step=300))) == count


@pytest.mark.parametrize("other", [{"key": "b"}, {"attempt": 2}, {"rule": "gradient-lost"}, {"caused_by": "x"}])
def test_others_stay_apart(other: dict[str, object]) -> None:
    found = (a_finding(resolved_step=20), a_finding(**{"first_step": 22, "fired_step": 25, **other}))
    assert listed(*found) == found
