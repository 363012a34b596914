"""The stop action: which alerts count, when, what a run hears, and where the file is made and where not."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_watch.config.schema import Settings
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import EventKind, RunEvent, Severity
from grpo_watch.engine.rule_views import RuleStatus, RuleView
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview, RunStanding
from grpo_watch.notify.notification import DeliveryOutcome, DeliveryResult, Notification, Receiver
from grpo_watch.notify.receiver_context import ReceiverContext
from grpo_watch.notify.receiver_factory import build
from tests.metrics.test_exposition import EMPTY
from tests.support.receiving import a_notification

FIRED = a_notification().started
GRACE = 600.0
NOW = FIRED + GRACE
RULES = (RuleView("stop-asked", Severity.WARNING, RuleStatus.OK),)
WHY = "kl-stuck-at-zero has been critical for 10 minutes"


class Site:
    """A run in its folder, and what it heard."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path | None = folder
        self.attempt, self.active, self.read = 1, True, True
        self.heard = list[tuple[str, RunEvent]]()

    @property
    def file(self) -> Path:
        assert self.folder is not None
        return self.folder / "grpo-watch.stop"

    def stop(self, **settings: object) -> Receiver:
        wanted = {"type": "stop", "rules": ["kl-stuck-at-zero"], **settings}
        around = ReceiverContext(
            lambda: NOW, standing=self.standing, feed_event=lambda run, event: self.heard.append((run, event))
        )
        (routed,) = build(Settings.model_validate({"sinks": [wanted]}).sinks, around)
        return routed.receiver

    def standing(self, _run: str) -> RunStanding | None:
        return RunStanding(self.attempt, self.active, self.folder) if self.read else None

    def kinds(self) -> list[EventKind]:
        return [event.kind for _, event in self.heard]


def finding(*, dry_run: bool = False, resolved_step: int | None = None, key: str = "stop") -> Finding:
    """The alert by which the run is asked."""
    evidence = {"because": "kl-stuck-at-zero", "dry_run": dry_run}
    return Finding("stop-asked", key, Severity.WARNING, 1, 12, 12, resolved_step, evidence, WHY, "")


def asked(**changed: object) -> Notification:
    """The message of that alert."""
    evidence = {"because": "kl-stuck-at-zero", "dry_run": False}
    known = {"id": "beef", "rule": "stop-asked", "key": "stop", "severity": "warning", "step": 12, "message": WHY}
    return a_notification(**{**known, "evidence": evidence, **changed})


def over(**changed: object) -> Notification:
    return asked(id="beef-over", status="resolved", ended=NOW, **changed)


def look(
    receiver: Receiver, *firing: Notification, after: float = GRACE, findings: tuple[Finding, ...] = ()
) -> DeliveryOutcome:
    shown = replace(EMPTY, run="v0-run", rules=RULES, findings=findings)
    return receiver.refresh(firing, DaemonSnapshot(runs=(RunOverview(shown, "v0-run", active=True),)), FIRED + after)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "run").mkdir()
    return Site(tmp_path / "run")


# who is asked


def test_says_so_after_the_grace_period_until_the_alert_is_seen(site: Site) -> None:
    """Nothing is made before the run's alert is stored; what it hears twice is one alert."""
    receiver = site.stop()
    assert not receiver.send(a_notification()).reached
    look(receiver, a_notification(), after=GRACE - 0.1)
    assert site.heard == []
    look(receiver, a_notification())
    look(receiver, a_notification())
    event = RunEvent("stop", EventKind.STOP_ASKED, text=WHY, about="kl-stuck-at-zero")
    assert site.heard == [("v0-run", event)] * 2
    look(receiver, a_notification(), findings=(finding(),))
    assert len(site.heard) == 2
    assert not site.file.exists()


def test_a_clock_that_is_set_forward_stops_nothing_early(site: Site) -> None:
    """Nor does a machine that slept: the grace period is there for people to act."""
    receiver, hour = site.stop(), 3_600.0
    look(receiver, a_notification(), after=10.0)
    look(receiver, a_notification(), after=hour + 15.0)
    for second in range(20, int(GRACE), 5):
        look(receiver, a_notification(), after=hour + second)
    assert site.heard == []
    look(receiver, a_notification(), after=hour + GRACE)
    assert [event.text for _, event in site.heard] == [WHY]


@pytest.mark.parametrize(
    "other",
    [
        a_notification(severity="warning"),
        a_notification(rule="entropy-collapse"),
        a_notification(status="resolved"),
        a_notification(attempt=2),
        a_notification(run="x"),
    ],
    ids=str,
)
def test_nothing_else_stops_a_run(site: Site, other: Notification) -> None:
    look(site.stop(), other, after=10 * GRACE)
    assert site.heard == []


def test_a_run_that_is_over_or_not_read_yet_is_not_asked(site: Site) -> None:
    receiver = site.stop()
    site.active = False
    assert look(receiver, a_notification()).result is DeliveryResult.DELIVERED
    site.active, site.read = True, False
    look(receiver, a_notification(), findings=(finding(),))
    assert site.heard == []


def test_a_resumed_job_is_not_stopped_for_what_its_last_attempt_did(site: Site) -> None:
    """The old alert is not resolved yet; one of the new attempt counts again, once what was asked is over."""
    receiver = site.stop()
    site.attempt = 2
    look(receiver, a_notification(), findings=(finding(),))
    assert site.kinds() == [EventKind.STOP_WITHDRAWN]
    look(receiver, a_notification(), a_notification(attempt=2), findings=(finding(resolved_step=13),))
    assert site.kinds()[1:] == [EventKind.STOP_ASKED]


def test_what_recovers_is_asked_no_more(site: Site) -> None:
    receiver = site.stop()
    look(receiver, a_notification(rule="entropy-collapse"), findings=(finding(),))
    assert site.heard == [("v0-run", RunEvent("stop", EventKind.STOP_WITHDRAWN))]


def test_a_dry_run_only_says_it_and_is_followed_by_a_real_one(site: Site) -> None:
    rehearsal = site.stop(dry_run=True)
    look(rehearsal, a_notification())
    assert site.kinds() == [EventKind.STOP_REHEARSED]
    assert not rehearsal.send(asked(evidence={"because": "kl-stuck-at-zero", "dry_run": True})).reached
    look(rehearsal, a_notification(), findings=(finding(dry_run=True),))
    assert len(site.heard) == 1
    real = site.stop()
    look(real, a_notification(), findings=(finding(dry_run=True),))
    look(real, a_notification(), findings=(finding(dry_run=True, resolved_step=13),))
    assert site.kinds()[1:] == [EventKind.STOP_WITHDRAWN, EventKind.STOP_ASKED]
    assert not site.file.exists()


def test_each_receiver_minds_its_own_alert(site: Site) -> None:
    look(site.stop(name="other"), a_notification(), findings=(finding(),))
    assert [(event.channel, event.kind) for _, event in site.heard] == [("other", EventKind.STOP_ASKED)]
    assert not site.stop(name="other").send(asked()).reached
    assert not site.file.exists()


def test_what_keeps_a_run_from_being_asked_is_reported(site: Site) -> None:
    receiver = site.stop()
    snapshot = DaemonSnapshot(runs=(RunOverview(replace(EMPTY, run="v0-run"), "v0-run", active=True),))
    off = receiver.refresh([a_notification()], snapshot, NOW)
    site.file.parent.rmdir()
    gone = look(receiver, a_notification())
    site.folder = None
    away = look(receiver, a_notification())
    assert {off.result, gone.result, away.result} == {DeliveryResult.RETRY}
    assert "the rule stop-asked is switched off" in off.detail
    assert "No such file" in gone.detail
    assert "give `folder`" in away.detail
    assert site.heard == []


# the file


def test_the_alert_makes_the_file_and_its_end_removes_it(site: Site) -> None:
    receiver = site.stop()
    assert receiver.send(asked()).result is DeliveryResult.DELIVERED
    (line,) = site.file.read_text().splitlines()
    assert json.loads(line) == {
        "rule": "kl-stuck-at-zero",
        "run": "v0-run",
        "attempt": 1,
        "step": 12,
        "at": "2026-11-18T11:16:40.000Z",
        "reason": WHY,
        "sink": "stop",
        "id": "beef",
    }
    assert receiver.send(over()).result is DeliveryResult.DELIVERED
    assert list(site.file.parent.iterdir()) == []


def test_sent_again_it_is_the_same(site: Site) -> None:
    """Killed before the answer was stored, the message comes again: of the file's making, and of its removal."""
    site.stop().send(asked())
    before = site.file.read_text()
    assert site.stop().send(asked(step=99)).result is DeliveryResult.DELIVERED
    assert site.file.read_text() == before
    for _ in range(2):
        assert site.stop().send(over()).result is DeliveryResult.DELIVERED
    assert not site.file.exists()


def test_many_in_one_message(site: Site) -> None:
    """What was found at a start comes as one digest."""
    site.stop().send(replace(a_notification(), parts=(a_notification(), asked())))
    assert site.file.exists()


@pytest.mark.parametrize(("attempt", "active"), [(2, True), (1, False)], ids=["a new attempt", "over"])
def test_what_goes_on_is_not_stopped_by_an_old_message(site: Site, attempt: int, *, active: bool) -> None:
    """It waited in the queue while the watcher was down, and the job was restarted."""
    site.attempt, site.active = attempt, active
    assert site.stop().send(asked()).result is DeliveryResult.DELIVERED
    assert not site.file.exists()


def test_a_run_that_is_not_read_yet_waits(site: Site) -> None:
    site.read = False
    outcomes = [site.stop().send(asked()), site.stop().send(over())]
    assert [(each.result, each.retry_after) for each in outcomes] == [(DeliveryResult.RETRY, 5.0)] * 2


@pytest.mark.parametrize(
    "text", ["", "by hand", "{}", "[" * 100_000, '{"run": "v0-run", "attempt": 2, "sink": "stop"}']
)
def test_a_file_of_somebody_else_is_left_alone(site: Site, text: str) -> None:
    """Of a person, another receiver, another attempt."""
    site.file.write_text(text)
    for message in (asked(), over()):
        assert site.stop().send(message).result is DeliveryResult.DELIVERED
    assert site.file.read_text() == text


def test_a_folder_of_its_own(site: Site, tmp_path: Path) -> None:
    """The run's name is no path."""
    (tmp_path / "stops").mkdir()
    receiver = site.stop(folder=str(tmp_path / "stops"), file="STOP")
    receiver.send(asked(run="../../etc/x y"))
    receiver.send(asked(run="..", id="2"))
    assert sorted(path.name for path in (tmp_path / "stops").iterdir()) == ["etc-x-y.STOP", "run.STOP"]


def test_links_are_not_followed(site: Site, tmp_path: Path) -> None:
    """Someone who can write to the run's folder can't make the watcher write, read or remove elsewhere."""
    target = tmp_path / "precious"
    site.file.symlink_to(target)
    site.stop().send(asked())
    assert not target.exists()
    site.file.unlink()
    site.stop().send(asked())
    site.file.rename(target)
    site.file.symlink_to(target)
    assert site.stop().send(over()).result is DeliveryResult.DELIVERED
    assert target.exists()
    link = tmp_path / "link"
    link.symlink_to(site.file.parent)
    linked = Site(link)
    assert linked.stop(file="other").send(asked()).result is DeliveryResult.RETRY
    refused = look(linked.stop(file="other"), a_notification())
    assert (refused.result, refused.detail) == (
        DeliveryResult.RETRY,
        f"{link}/other can't be made: its folder is a link, which is not followed",
    )
    assert linked.heard == []
    assert not (link / "other").exists()


def test_a_pipe_in_its_place_hangs_nothing(site: Site) -> None:
    os.mkfifo(site.file)
    for message in (asked(), over()):
        assert site.stop().send(message).result is DeliveryResult.DELIVERED
    assert site.file.is_fifo()


def test_a_full_disk_leaves_no_empty_file(site: Site) -> None:
    """A limit on the size of files stands for it: the job would stop for an empty one, at whatever step."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        full = site.stop().send(asked())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (full.result, "File too large" in full.detail) == (DeliveryResult.RETRY, True)
    assert list(site.file.parent.iterdir()) == []
    assert site.stop().send(asked()).result is DeliveryResult.DELIVERED
    assert json.loads(site.file.read_text())["id"] == "beef"


def test_killed_while_it_is_made_it_is_not_there_and_made_later(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of it beside the file goes, be it a link by now."""
    seen = list[bool]()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: seen.append(site.file.exists()))
        site.stop().send(asked())
    assert (seen, site.file.exists()) == ([False], True)
    site.file.unlink()
    (site.file.parent / ".grpo-watch-beef").symlink_to(tmp_path / "precious")
    assert site.stop().send(asked()).result is DeliveryResult.DELIVERED
    assert list(site.file.parent.iterdir()) == [site.file]
    assert not site.file.is_symlink()
    assert not (tmp_path / "precious").exists()


def test_without_hard_links_it_is_made_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on many file systems of the network."""

    def none(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    assert site.stop().send(asked()).result is DeliveryResult.DELIVERED
    assert list(site.file.parent.iterdir()) == [site.file]
    assert json.loads(site.file.read_text())["id"] == "beef"


def test_a_file_that_comes_meanwhile_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: site.file.write_text("by hand"))
    assert site.stop().send(asked()).result is DeliveryResult.DELIVERED
    assert site.file.read_text() == "by hand"
    assert list(site.file.parent.iterdir()) == [site.file]


def test_what_can_not_be_made_is_tried_again(site: Site) -> None:
    site.file.parent.rmdir()
    gone = site.stop().send(asked())
    assert (gone.result, "No such file" in gone.detail) == (DeliveryResult.RETRY, True)
    site.file.parent.mkdir()
    assert site.stop().send(asked()).result is DeliveryResult.DELIVERED
    assert site.file.exists()
