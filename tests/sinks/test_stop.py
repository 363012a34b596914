"""The stop action: which alerts count, when, and that the file is made nowhere but where it should be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_watch.config.schema import Settings
from grpo_watch.runtime.receivers import Around, build
from grpo_watch.sinks.base import Picture, RunPicture
from grpo_watch.sinks.notification import Notification, Outcome, Receiver, Result
from tests.sinks.test_prometheus import EMPTY
from tests.support.receiving import told

FIRED = told().started
GRACE = 600.0


class Site:
    """A run's folder, and what was announced."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.announced = folder, list[Notification]()

    def stop(self, **settings: object) -> Receiver:
        wanted = {"type": "stop", "rules": ["kl-stuck-at-zero"], **settings}
        around = Around(
            clock=lambda: 0.0,
            folder_of=lambda run: None if run == "remote" else self.folder,
            announce=self.announced.append,
        )
        (routed,) = build(Settings.model_validate({"sinks": [wanted]}).sinks, around)
        return routed.receiver


def look(receiver: Receiver, *firing: Notification, after: float = GRACE, attempt: int = 1) -> Outcome:
    names = {told.run for told in firing}
    runs = tuple(RunPicture(replace(EMPTY, run=name, attempt=attempt), name, active=name != "ended") for name in names)
    return receiver.refresh(firing, Picture(runs=runs), FIRED + after)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "run").mkdir()
    return Site(tmp_path / "run")


def test_asks_once_after_the_grace_period_and_says_so(site: Site) -> None:
    receiver, file = site.stop(), site.folder / "grpo-watch.stop"
    assert receiver.send(told()).result is Result.DELIVERED
    assert look(receiver, told(), after=GRACE - 0.1).result is Result.DELIVERED
    assert not file.exists()
    for _ in range(3):
        assert look(receiver, told()).detail == "1 runs asked to stop"
    (line,) = file.read_text().splitlines()
    assert json.loads(line) == {
        "rule": "kl-stuck-at-zero",
        "severity": "critical",
        "run": "v0-run",
        "step": 10,
        "episode": "f00d",
        "at": "2026-11-18T11:16:40.000Z",
        "reason": "kl-stuck-at-zero has been critical for 10 minutes",
    }
    (said,) = site.announced
    assert (said.status, said.run, said.at) == ("stopped", "v0-run", FIRED + GRACE)
    assert said.message == f"v0-run was asked to stop by {file}: kl-stuck-at-zero has been critical for 10 minutes"
    assert said.id != told().id


@pytest.mark.parametrize(
    "other",
    [told(severity="warning"), told(rule="entropy-collapse"), told(status="resolved"), told(run="ended")],
    ids=str,
)
def test_nothing_else_stops_a_run(site: Site, other: Notification) -> None:
    look(site.stop(), other, after=10 * GRACE)
    assert list(site.folder.iterdir()) == []
    assert site.announced == []


def test_a_resumed_job_is_not_stopped_for_what_its_last_attempt_did(site: Site) -> None:
    """The job took the file and was started anew, and so was the watcher; the old alert is not resolved yet."""
    receiver, file = site.stop(), site.folder / "grpo-watch.stop"
    look(receiver, told())
    file.unlink()
    for watcher in (receiver, site.stop()):
        assert look(watcher, told(), attempt=2).detail == "no run is to be stopped"
    assert not file.exists()
    assert len(site.announced) == 1
    look(receiver, told(attempt=2, id="beef"), attempt=2)
    assert json.loads(file.read_text())["episode"] == "beef"


def test_a_dry_run_only_says_it(site: Site) -> None:
    look(site.stop(dry_run=True), told())
    assert list(site.folder.iterdir()) == []
    assert "would be asked to stop" in site.announced[0].message


def test_after_a_restart_the_same_is_announced_under_the_same_id(site: Site) -> None:
    """So that receivers which know the id keep quiet; the file stays as it was."""
    look(site.stop(), told())
    before = (site.folder / "grpo-watch.stop").read_text()
    look(site.stop(), replace(told(), step=99))
    assert (site.folder / "grpo-watch.stop").read_text() == before
    assert site.announced[0].id == site.announced[1].id


def test_a_folder_of_its_own(site: Site, tmp_path: Path) -> None:
    """The run's name is no path."""
    (tmp_path / "stops").mkdir()
    receiver = site.stop(folder=str(tmp_path / "stops"), file="STOP")
    look(receiver, told(run="../../etc/x y"), told(run="..", id="2"))
    assert sorted(path.name for path in (tmp_path / "stops").iterdir()) == ["etc-x-y.STOP", "run.STOP"]


def test_links_are_not_followed(site: Site, tmp_path: Path) -> None:
    """Whoever can write to the run's folder can't make the watcher write elsewhere."""
    target = tmp_path / "precious"
    (site.folder / "grpo-watch.stop").symlink_to(target)
    look(site.stop(), told())
    assert not target.exists()
    link = tmp_path / "link"
    link.symlink_to(site.folder)
    linked = Site(link)
    outcome = look(linked.stop(file="other"), told())
    assert outcome.result is Result.RETRY
    assert not (site.folder / "other").exists()
    assert linked.announced == []


def test_what_can_not_be_made_is_said_and_tried_again(site: Site) -> None:
    receiver = site.stop()
    away = look(receiver, told(run="remote"))
    assert (away.result, "give `folder`" in away.detail) == (Result.RETRY, True)
    site.folder.rmdir()
    gone = look(receiver, told())
    assert "No such file" in gone.detail
    site.folder.mkdir()
    assert look(receiver, told()).result is Result.DELIVERED
    assert (site.folder / "grpo-watch.stop").exists()
