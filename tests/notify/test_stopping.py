"""A real frozen run is asked to stop: one stored alert, one file, whatever interrupts it, and never a later attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import RunEvent, Transition
from grpo_watch.metrics.daemon_snapshot import RunStanding
from grpo_watch.notify.dispatcher import DeliverySettings, NotificationDispatcher
from grpo_watch.notify.notification import Notification
from grpo_watch.notify.outbox import DeliveryJob
from grpo_watch.notify.receiver_context import ReceiverContext
from grpo_watch.notify.receiver_factory import build
from grpo_watch.notify.routing import MutedFindings, RoutedReceiver
from tests.notify.test_dispatcher import KL
from tests.support.frozen_run import FrozenRun
from tests.support.live import Live
from tests.support.postbox import DELIVERED, Named

STOP = "stop-asked"


class Stopping:
    """A daemon with a webhook and the stop action, each of whose steps a test takes by itself."""

    def __init__(self, frozen: FrozenRun, *mutes: MutedFindings, dry_run: bool = False) -> None:
        sink = {"type": "stop", "rules": [KL], "grace_seconds": 60, "dry_run": dry_run}
        events: SimpleQueue[tuple[str, RunEvent]] = SimpleQueue()
        around = ReceiverContext(
            lambda: self.live.now, standing=self.standing, feed_event=lambda *reported: events.put(reported)
        )
        (self.stop,) = build(Settings.model_validate({"sinks": [sink]}).sinks, around)
        hook = RoutedReceiver(Named())  # type: ignore[arg-type]
        self.dispatcher = NotificationDispatcher(
            [hook, self.stop], DeliverySettings(mutes=lambda: mutes), events=events
        )
        self.live = Live(frozen.watched, frozen.folder / "state", now=frozen.now, dispatcher=self.dispatcher)
        self.live.settle()
        self.file = frozen.run / "grpo-watch.stop"

    def standing(self, run: str) -> RunStanding | None:
        return self.live.daemon.standing(run)

    def look(self) -> None:
        """What its thread does every few seconds."""
        outbox = self.dispatcher.outboxes[1]
        outbox.refreshed(
            self.stop.receiver.refresh(outbox.firing(self.live.now), self.live.daemon.snapshot(), self.live.now)
        )

    def take(self) -> DeliveryJob | None:
        """The next message for the stop action that matters."""
        outbox = self.dispatcher.outboxes[1]
        while isinstance(job := outbox.take(self.live.timer + self.live.now, self.live.now), DeliveryJob):
            if job.notification.rule == STOP:
                return job
            self.settle(job)
        return None

    def settle(self, job: DeliveryJob) -> None:
        """The message is acted upon, and the outbox hears of it; it is stored with the next turn."""
        outcome = self.stop.receiver.send(job.notification)
        self.dispatcher.outboxes[1].settle(job, outcome, self.live.timer + self.live.now, self.live.now)

    def work(self) -> None:
        """All of it, as the threads do."""
        for _ in range(3):
            self.look()
            self.live.daemon.turn()
            while (job := self.take()) is not None:
                self.settle(job)
            self.live.daemon.turn()

    def reported(self) -> list[Notification]:
        """What the webhook gets now of the stop."""
        outbox, got = self.dispatcher.outboxes[0], list[Notification]()
        while isinstance(job := outbox.take(self.live.timer + self.live.now, self.live.now), DeliveryJob):
            outbox.settle(job, DELIVERED, self.live.timer + self.live.now, self.live.now)
            got.append(job.notification)
        self.live.daemon.turn()
        return [each for each in got if each.rule == STOP]

    def stored(self) -> list[Transition]:
        """The stop's transitions as the state file has them."""
        name = self.live.run().run
        return [transition for transition in self.live.transitions(name) if transition.rule == STOP]


@pytest.fixture
def frozen(tmp_path: Path) -> FrozenRun:
    """Known since before it was frozen; its alert fires by the end of the file."""
    watched = FrozenRun(tmp_path)
    watched.write(3)
    live, _ = watched.start()
    live.close()
    watched.write(40)
    return watched


def due(stopping: Stopping) -> Stopping:
    """The alert has fired for longer than the grace period."""
    stopping.live.settle(61.0)
    return stopping


def test_it_is_one_stored_alert_with_one_file(frozen: FrozenRun) -> None:
    """Not before the grace period; the transition, the message and the file have one id, and nothing comes twice."""
    stopping = Stopping(frozen)
    stopping.work()
    assert (stopping.stored(), stopping.file.exists()) == ([], False)
    due(stopping).work()
    (asked,) = stopping.stored()
    (reported,) = stopping.reported()
    document = json.loads(stopping.file.read_text())
    assert asked.id == reported.id == document["id"]
    assert (asked.to_state.value, asked.step, reported.status, reported.severity) == ("firing", 40, "firing", "warning")
    assert reported.evidence == {"because": KL, "dry_run": False}
    assert (document["rule"], document["step"], document["attempt"]) == (KL, 40, 1)
    (finding,) = [each for each in stopping.live.run().findings if each.rule == STOP]
    assert (finding.caused_by, finding.resolved_step) == (None, None)
    assert finding.summary == f"The run was asked to stop: {KL} has been critical for 1 minutes"
    due(stopping).work()
    assert (len(stopping.stored()), stopping.reported()) == (1, [])
    stopping.live.close()


def steps(stopping: Stopping) -> Iterator[None]:
    """What happens between the look that finds it due and the answer that is stored; killed after any of these."""
    stopping.look()
    yield
    stopping.live.daemon.turn()
    yield
    job = stopping.take()
    assert job is not None
    yield
    stopping.settle(job)
    yield
    stopping.live.daemon.turn()
    yield


@pytest.mark.slow
@pytest.mark.parametrize("point", range(5))
def test_killed_at_any_moment_it_is_asked_once_under_one_id(frozen: FrozenRun, point: int) -> None:
    first = due(Stopping(frozen))
    for number, _ in enumerate(steps(first)):
        if number == point:
            break
    before = first.stored()
    text = first.file.read_text() if first.file.exists() else None
    first.live.kill()
    assert len(before) == (point > 0)
    assert (text is not None) == (point > 2)
    frozen.now = first.live.now
    again = due(Stopping(frozen))
    again.work()
    (asked,) = again.stored()
    assert [asked] == (before or [asked])
    assert [reported.id for reported in again.reported()] == [asked.id]
    assert json.loads(again.file.read_text())["id"] == asked.id
    assert again.file.read_text() == (text or again.file.read_text())
    again.live.close()


def resumed(frozen: FrozenRun) -> None:
    """The job was restarted from the beginning, and goes on well: its first rows follow in the same log."""
    frozen.log.write_bytes(b"".join((*frozen.rows[:40], *frozen.rows[:5])))


def test_a_resumed_job_is_not_stopped_by_what_waited_for_its_last_attempt(frozen: FrozenRun) -> None:
    """Killed before the file was made; when the watcher is back the job goes on in a new attempt."""
    first = due(Stopping(frozen))
    first.look()
    first.live.daemon.turn()
    first.live.kill()
    resumed(frozen)
    frozen.now = first.live.now
    again = Stopping(frozen)
    again.work()
    assert again.live.run().attempt == 2
    assert [each.to_state.value for each in again.stored()] == ["firing", "resolved"]
    assert not again.file.exists()
    again.live.close()


def test_the_file_goes_when_the_run_goes_on_in_a_new_attempt(frozen: FrozenRun) -> None:
    """The job took no notice of it, or ended and did not remove it; people hear of the end."""
    stopping = due(Stopping(frozen))
    stopping.work()
    assert stopping.file.exists()
    resumed(frozen)
    stopping.live.settle()
    stopping.work()
    assert [each.to_state.value for each in stopping.stored()] == ["firing", "resolved"]
    assert [reported.status for reported in stopping.reported()] == ["firing", "resolved"]
    assert not stopping.file.exists()
    due(stopping).work()
    assert not stopping.file.exists()
    stopping.live.close()


def test_what_the_job_removed_is_not_made_again(frozen: FrozenRun) -> None:
    """It stopped, and was resumed exactly there: to the watcher that is the same attempt. Nor after a restart."""
    first = due(Stopping(frozen))
    first.work()
    first.file.unlink()
    first.work()
    first.live.kill()
    frozen.now = first.live.now
    again = due(Stopping(frozen))
    again.work()
    assert len(again.stored()) == 1
    assert not again.file.exists()
    again.live.close()


def test_a_dry_run_is_stored_and_reported_and_makes_nothing(frozen: FrozenRun) -> None:
    stopping = due(Stopping(frozen, dry_run=True))
    stopping.work()
    (asked,) = stopping.stored()
    (reported,) = stopping.reported()
    assert reported.evidence["dry_run"] is True
    assert "would be asked to stop (dry run)" in reported.message
    assert asked.id == reported.id
    assert not stopping.file.exists()
    stopping.live.close()


def test_a_mute_of_the_message_is_none_of_the_action(frozen: FrozenRun) -> None:
    stopping = due(Stopping(frozen, MutedFindings(rule=STOP)))
    stopping.work()
    assert stopping.reported() == []
    assert stopping.file.exists()
    stopping.live.close()


def test_a_mute_of_the_alert_or_of_the_run_keeps_it_from_being_stopped(frozen: FrozenRun) -> None:
    for mute in (MutedFindings(rule=KL), MutedFindings(run="*")):
        stopping = due(Stopping(frozen, mute))
        stopping.work()
        assert stopping.stored() == []
        frozen.now = stopping.live.now
        stopping.live.close()
