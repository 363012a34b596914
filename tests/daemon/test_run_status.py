"""Whether a run may be acted on: unknown until it has been read and shown again."""

from __future__ import annotations

from dataclasses import replace

from grpo_watch.metrics.daemon_snapshot import RunOverview
from tests.metrics.test_exposition import EMPTY


def test_the_last_step_is_no_later_than_the_end() -> None:
    """Rows without a time count from when they were read: of a copied run, days after its end."""
    read = replace(EMPTY, last_step_time=500.0)
    assert RunOverview(read, "run", active=True).last_step_time == 500.0
    assert RunOverview(read, "run", active=False, ended=90.0).last_step_time == 90.0
    assert RunOverview(read, "run", active=False, ended=510.0).last_step_time == 500.0
    assert RunOverview(replace(EMPTY, last_step_time=None), "run", active=False, ended=90.0).last_step_time is None
