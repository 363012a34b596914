"""Whether a run may be acted on: unknown until it has been read and shown again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from grpo_watch.daemon.run_status import TrackedRun
from grpo_watch.metrics.daemon_snapshot import RunOverview, RunStanding
from grpo_watch.sources.discovery.discover import FoundRun
from tests.metrics.test_exposition import EMPTY


def test_a_run_stands_for_nothing_before_its_snapshot_is_of_now() -> None:
    """After a start the stored one is shown at once, and may be of an earlier attempt."""
    watch = cast("Any", SimpleNamespace(ready=False))
    tracked = TrackedRun("run", snapshot=EMPTY)
    assert tracked.standing() is None
    tracked.watch = watch
    assert tracked.standing() is None
    watch.ready = True
    assert tracked.standing() is None
    tracked.reported = True
    assert tracked.standing() == RunStanding(1, active=True, folder=None)


def test_the_last_step_is_no_later_than_the_end() -> None:
    """Rows without a time count from when they were read: of a copied run, days after its end."""
    read = replace(EMPTY, last_step_time=500.0)
    assert RunOverview(read, "run", active=True).last_step_time == 500.0
    assert RunOverview(read, "run", active=False, ended=90.0).last_step_time == 90.0
    assert RunOverview(read, "run", active=False, ended=510.0).last_step_time == 500.0
    assert RunOverview(replace(EMPTY, last_step_time=None), "run", active=False, ended=90.0).last_step_time is None


def test_a_run_that_is_over_stands_still_and_one_on_a_server_has_no_folder(tmp_path: Path) -> None:
    found = FoundRun(tmp_path, "run", None, ())
    over = TrackedRun("run", snapshot=EMPTY, found=found, ended=9.0)
    assert over.standing() == RunStanding(1, active=False, folder=tmp_path)
    over.found = FoundRun(tmp_path / "latest", "run", None, (), home=tmp_path)
    assert over.standing() == RunStanding(1, active=False, folder=tmp_path)
    over.found = FoundRun(tmp_path, "run", None, (), remote="wandb://a/b/c")
    assert over.standing() == RunStanding(1, active=False, folder=None)
