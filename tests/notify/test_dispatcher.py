"""What a real frozen run makes the daemon send: once, to whom it concerns, whatever interrupts it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.config.schema import Mute
from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.errors import StateNotReadyError
from grpo_watch.notify.receiver import DeliveryOutcome, Route, RoutedReceiver
from grpo_watch.store.deliveries import DeliveryChanges
from grpo_watch.store.messages import Message, Notification
from grpo_watch.store.state import StoreError
from tests.support.bundles import RECORDED, unpack
from tests.support.frozen_run import FrozenRun
from tests.support.live import Live
from tests.support.postbox import DELIVERED, REFUSED, RETRY, Named, ids
from tests.support.receiving import a_notification

KL = "kl-stuck-at-zero"


class KilledError(Exception):
    """Stands for ``kill -9``."""


@pytest.fixture
def frozen(tmp_path: Path) -> FrozenRun:
    return FrozenRun(tmp_path)


def sent(
    live: Live, dispatcher: NotificationDispatcher, outcome: DeliveryOutcome = DELIVERED
) -> list[list[Notification]]:
    """What each receiver gets now, all answered so; the answers are stored."""
    got = []
    for outbox in dispatcher.outboxes:
        messages: list[Notification] = []
        while True:
            job = outbox.take(live.timer, live.now)
            if job == 0:
                live.daemon.turn()
            elif isinstance(job, Message):
                messages.append(job.notification)
                outbox.settle(job, outcome, live.timer, live.now)
            else:
                break
        got.append(messages)
    live.daemon.turn()
    return got


def flat(messages: Sequence[Notification]) -> list[Notification]:
    """Messages, the parts of digests in their place."""
    return [part for message in messages for part in message.parts or (message,)]


def sent_to(live: Live, dispatcher: NotificationDispatcher, name: str) -> list[Notification]:
    """What one receiver gets now."""
    (outbox,) = [each for each in dispatcher.outboxes if each.name == name]
    messages = []
    while isinstance(job := outbox.take(live.timer, live.now), Message):
        messages.append(job.notification)
        outbox.settle(job, DELIVERED, live.timer, live.now)
    live.daemon.turn()
    return messages


def rules(messages: Sequence[Notification]) -> list[tuple[str, str]]:
    return [(message.status, message.rule) for message in messages]


def test_a_frozen_run_is_reported_once_with_what_is_needed_to_act(frozen: FrozenRun) -> None:
    """At step 11; evidence and numbers are of the recorded rows, and a restart sends nothing again."""
    frozen.write(3)
    live, dispatcher = frozen.start(page="http://127.0.0.1:9853/")
    assert sent(live, dispatcher) == [[]]
    frozen.more(live, 40)
    ((reported,),) = sent(live, dispatcher)
    assert (reported.status, reported.rule, reported.severity, reported.step, reported.max_steps) == (
        "firing",
        KL,
        "critical",
        11,
        60,
    )
    assert reported.id in {transition.id for transition in live.transitions(live.run().run)}
    assert reported.evidence["kl_reference"] == 0.0
    assert reported.series["kl_reference"][:3] == (0.0, 0.0, 0.0)
    assert reported.page == f"http://127.0.0.1:9853/#/run/{live.daemon.snapshot().runs[0].slug}"
    assert reported.hint
    assert "rewards differ" in reported.summary
    live.kill()
    live, dispatcher = frozen.start()
    assert sent(live, dispatcher) == [[]]
    live.close()


def test_killed_before_the_answer_was_stored_it_is_sent_again_under_the_same_id(frozen: FrozenRun) -> None:
    frozen.write(3)
    live, dispatcher = frozen.start()
    frozen.more(live, 40)
    job = dispatcher.outboxes[0].take(0.0, live.now)
    assert isinstance(job, Message)
    live.kill()
    live, dispatcher = frozen.start()
    assert ids(sent(live, dispatcher)[0]) == [job.notification.id]
    live.close()


def test_what_was_sent_is_stored_between_the_turns_of_many_runs(
    frozen: FrozenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that takes long (many runs are read again), killed before its end: what was sent is not sent again."""
    frozen.write(3)
    shutil.copytree(frozen.run, frozen.run.with_name("other"))
    frozen.watched = frozen.run.parent
    live, dispatcher = frozen.start()
    frozen.more(live, 40)
    (outbox,), turn, turns = dispatcher.outboxes, WatchedRun.turn, list[str]()
    job = outbox.take(0.0, live.now)
    assert isinstance(job, Message)
    outbox.settle(job, DELIVERED, 0.0, live.now)

    def slow(watch: WatchedRun, now: float, least: float = 0.0) -> bool:
        turns.append(watch.name)
        if len(turns) > 1:
            raise KilledError
        live.timer += 1.0
        return turn(watch, now, least)

    with monkeypatch.context() as patched:
        patched.setattr(WatchedRun, "turn", slow)
        with pytest.raises(KilledError):
            live.daemon.turn(live.folders())
    live.kill()
    live, dispatcher = frozen.start()
    assert sent(live, dispatcher) == [[]]
    live.close()


@pytest.mark.parametrize(("backlog", "reported"), [("live", [KL]), ("all", [KL]), ("none", [])])
def test_what_fired_before_the_watch_began(frozen: FrozenRun, backlog: str, reported: list[str]) -> None:
    """The run goes on and the alert still fires; a second start sends nothing more."""
    frozen.write(40)
    live, dispatcher = frozen.start(backlog=lambda: backlog)
    assert [message.rule for message in sent(live, dispatcher)[0]] == reported
    live.kill()
    live, dispatcher = frozen.start(backlog=lambda: backlog)
    assert sent(live, dispatcher) == [[]]
    live.close()


@pytest.mark.parametrize(("backlog", "reported"), [("live", []), ("all", [KL])])
def test_the_backlog_of_a_run_that_is_over(frozen: FrozenRun, backlog: str, reported: list[str]) -> None:
    frozen.write(len(frozen.rows))
    frozen.now += 30 * 86_400.0
    live, dispatcher = frozen.start(backlog=lambda: backlog)
    assert [message.rule for message in sent(live, dispatcher)[0] if message.rule == KL] == reported
    live.close()


def test_the_commands_of_a_message_work_in_any_folder(frozen: FrozenRun) -> None:
    frozen.watched = unpack("trl-1.16.0-21-late-freeze", frozen.folder)
    frozen.now += 30 * 86_400.0
    live, dispatcher = frozen.start(backlog=lambda: "all")
    (hint,) = [message.hint for message in sent(live, dispatcher)[0] if message.rule == "parameters-unchanged"]
    at = f"{frozen.watched}/output/checkpoint-"
    assert f"`grpo-watch digest {at}20 {at}30`" in hint
    live.close()


def test_a_run_that_began_and_ended_between_two_looks_is_reported(frozen: FrozenRun) -> None:
    """It was over when it was first seen, and still happened in our time; so after a restart."""
    away = frozen.run.rename(frozen.folder / "away")
    frozen.watched = frozen.run.parent
    frozen.now -= 60.0
    live, _ = frozen.start()
    live.kill()
    away.rename(frozen.run)
    frozen.write(len(frozen.rows))
    frozen.now = RECORDED + 7_200.0
    live, dispatcher = frozen.start()
    assert live.daemon.snapshot().runs[0].active is False
    assert KL in {message.rule for message in sent(live, dispatcher)[0]}
    live.close()


def test_one_line_says_what_is_not_sent_of_a_run_that_ended_before(
    frozen: FrozenRun, caplog: pytest.LogCaptureFixture
) -> None:
    frozen.write(len(frozen.rows))
    frozen.now += 30 * 86_400.0
    for _ in range(2):
        live, dispatcher = frozen.start()
        assert sent(live, dispatcher) == [[]]
        live.kill()
    lines = [record.message for record in caplog.records if "not sent" in record.message]
    assert len(lines) == 1
    assert "the run ended before grpo-watch started; `notify_backlog: all` sends" in lines[0]


def test_what_happened_while_the_watch_was_down_is_reported(frozen: FrozenRun) -> None:
    """It is no backlog: the run was known."""
    frozen.write(3)
    live, _ = frozen.start()
    live.kill()
    frozen.write(40)
    live, dispatcher = frozen.start(backlog=lambda: "none")
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.close()


def test_a_receiver_that_is_new_gets_what_fires(frozen: FrozenRun) -> None:
    frozen.write(3)
    live, dispatcher = frozen.start()
    frozen.more(live, 40)
    first = sent(live, dispatcher)[0]
    live.kill()
    live, dispatcher = frozen.start(("hook", Route()), ("new", Route()))
    assert [ids(messages) for messages in sent(live, dispatcher)] == [[], ids(first)]
    live.close()


def test_messages_for_a_receiver_that_is_not_configured_any_more_are_reported(
    frozen: FrozenRun, caplog: pytest.LogCaptureFixture
) -> None:
    """Under another name it is a new one. What waits for the old name is kept, and sent once it is there again."""
    frozen.write(3)
    live, _ = frozen.start(("old", Route()))
    frozen.more(live, 40)
    live.kill()
    live, dispatcher = frozen.start(("new", Route()))
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.kill()
    (warned,) = [record for record in caplog.records if "not configured" in record.message]
    assert (warned.fields["sink"], warned.fields["waiting"]) == ("old", 1)  # type: ignore[attr-defined]
    live, dispatcher = frozen.start(("new", Route()), ("old", Route()))
    assert [rules(messages) for messages in sent(live, dispatcher)] == [[], [("firing", KL)]]
    live.close()


def named(*routed: tuple[str, Route]) -> list[RoutedReceiver]:
    return [RoutedReceiver(Named(name), route) for name, route in routed]  # type: ignore[arg-type]


def test_receivers_change_while_the_watch_runs(frozen: FrozenRun, caplog: pytest.LogCaptureFixture) -> None:
    """A new one gets what fires; what waits for a removed one is reported, kept, and sent once it is back."""
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()), ("old", Route()))
    frozen.more(live, 40)
    (fired,) = sent_to(live, dispatcher, "stays")
    live.follow(*named(("new", Route()), ("stays", Route())))
    (warned,) = [record for record in caplog.records if "not configured" in record.message]
    assert (warned.fields["sink"], warned.fields["waiting"]) == ("old", 1)  # type: ignore[attr-defined]
    assert set(dispatcher.lengths()) == {"new", "stays"}
    assert [ids(messages) for messages in sent(live, dispatcher)] == [[fired.id], []]
    live.follow(*named(("stays", Route()), ("old", Route())))
    assert [ids(messages) for messages in sent(live, dispatcher)] == [[], [fired.id]]
    live.kill()
    live, dispatcher = frozen.start(("stays", Route()), ("old", Route()), ("new", Route()))
    assert sent(live, dispatcher) == [[], [], []]
    live.close()


def test_a_receiver_that_changes_keeps_what_waits_and_gets_what_it_wants_now(frozen: FrozenRun) -> None:
    """At first it wants nothing of this rule; then it does, and later nothing again."""
    frozen.write(3)
    live, dispatcher = frozen.start(("hook", Route(rules=("run-*",))))
    frozen.more(live, 40)
    assert sent(live, dispatcher) == [[]]
    live.follow(*named(("hook", Route())))
    assert rules(sent(live, dispatcher, RETRY)[0]) == [("firing", KL)]
    live.follow(*named(("hook", Route(rules=("run-*",)))))
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.close()


def test_the_answer_to_what_is_under_way_to_a_removed_receiver_is_stored(frozen: FrozenRun) -> None:
    """Its delivery worker ends by itself; its answers still count: nothing is sent again once the receiver is back."""
    frozen.write(3)
    live, dispatcher = frozen.start(("hook", Route()))
    frozen.more(live, 40)
    (outbox,) = dispatcher.outboxes
    with outbox.carried:
        job = outbox.take(live.timer, live.now)
        assert isinstance(job, Message)
        live.follow()
        live.daemon.turn()
        outbox.settle(job, DELIVERED, live.timer, live.now)
    live.daemon.turn()
    assert dispatcher.counts() == {("hook", "delivered"): 1}
    live.follow(*named(("hook", Route())))
    assert dispatcher.outboxes[0] is not outbox
    assert sent(live, dispatcher) == [[]]
    live.close()


def test_what_ended_while_a_receiver_was_not_configured_is_reported_once_it_is(frozen: FrozenRun) -> None:
    """Under the id that others got it with; who knows that it fires would take it for firing for ever."""
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()), ("away", Route()))
    frozen.more(live, 40)
    assert [rules(messages) for messages in sent(live, dispatcher)] == [[("firing", KL)]] * 2
    live.follow(*named(("stays", Route())))
    frozen.recover(live)
    (ended,) = [message for message in sent(live, dispatcher)[0] if message.rule == KL]
    assert ended.status == "resolved"
    live.follow(*named(("stays", Route()), ("away", Route())))
    nothing, (digest,) = sent(live, dispatcher)
    assert nothing == []
    assert [(part.id, part.status) for part in digest.parts if part.rule == KL] == [(ended.id, "resolved")]
    live.kill()
    live, dispatcher = frozen.start(("stays", Route()), ("away", Route()))
    assert sent(live, dispatcher) == [[], []]
    live.close()


def test_what_fires_when_a_receiver_is_back_goes_before_what_is_read_then(frozen: FrozenRun) -> None:
    """The rows that end it are read in the same turn."""
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()))
    frozen.more(live, 40)
    frozen.write_recovery(live)
    live.now += 1.1
    live.follow(*named(("stays", Route()), ("new", Route())))
    live.settle()
    _, (digest,) = sent(live, dispatcher)
    assert [part.status for part in digest.parts if part.rule == KL] == ["firing", "resolved"]
    live.close()


def test_what_a_receiver_missed_goes_before_what_was_written_while_the_watch_was_down(frozen: FrozenRun) -> None:
    """It is configured at a restart; the alert that it missed ended while nothing ran."""
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()))
    frozen.more(live, 40)
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    frozen.write_recovery(live)
    live.kill()
    live, dispatcher = frozen.start(("stays", Route()), ("new", Route()))
    stays, new = sent(live, dispatcher)
    assert [status for status, rule in rules(flat(stays)) if rule == KL] == ["resolved"]
    assert [status for status, rule in rules(flat(new)) if rule == KL] == ["firing", "resolved"]
    live.close()


def test_a_receiver_that_is_new_at_a_restart_gets_no_alert_of_a_run_that_went_silent(frozen: FrozenRun) -> None:
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()))
    frozen.more(live, 40)
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.kill()
    frozen.now += 30 * 86_400.0
    live, dispatcher = frozen.start(("stays", Route()), ("new", Route()))
    _, new = sent(live, dispatcher)
    assert [each for each in rules(flat(new)) if each[1] == KL] == []
    live.close()


def test_a_receiver_that_is_back_at_a_restart_gets_the_end_it_missed_before_a_new_episode(frozen: FrozenRun) -> None:
    """It fired, and ended while the receiver was not configured; it fires again while nothing runs."""
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()), ("away", Route()))
    frozen.more(live, 40)
    assert [rules(messages) for messages in sent(live, dispatcher)] == [[("firing", KL)]] * 2
    live.follow(*named(("stays", Route())))
    frozen.recover(live)
    (ended,) = [message for message in flat(sent(live, dispatcher)[0]) if message.rule == KL]
    frozen.write_relapse(live)
    live.kill()
    live, dispatcher = frozen.start(("stays", Route()), ("away", Route()))
    stays, away = ([one for one in flat(messages) if one.rule == KL] for messages in sent(live, dispatcher))
    assert [one.status for one in stays] == ["firing"]
    assert [one.id for one in away] == [ended.id, stays[0].id]
    live.close()


def test_what_waits_for_a_removed_receiver_is_given_up_after_a_week(
    frozen: FrozenRun, caplog: pytest.LogCaptureFixture
) -> None:
    """With a word and a counter; what waits for a receiver that is there is not."""
    frozen.write(3)
    live, _ = frozen.start(("stays", Route()), ("old", Route()))
    frozen.more(live, 40)
    live.follow(*named(("stays", Route())))
    for day, waiting in ((6.9, {"old", "stays"}), (7.1, {"stays"})):
        live.now = RECORDED + day * 86_400.0
        live.daemon.turn()
        assert {kept.sink for kept in live.store.messages().queued} == waiting
    assert live.daemon.snapshot().deliveries["old", "abandoned"] == 1
    words = "dropped messages for a receiver that is not configured"
    (reported,) = [record for record in caplog.records if words in record.message]
    assert (reported.fields["sink"], reported.fields["messages"]) == ("old", 1)  # type: ignore[attr-defined]
    live.close()


def test_what_was_given_up_and_still_fires_is_reported_once_its_receiver_is_back(frozen: FrozenRun) -> None:
    """Under its id: nobody has it. What was sent before the receiver was removed is not sent again."""
    frozen.write(3)
    every = {"backlog": lambda: "all"}  # the run is silent for a week
    live, dispatcher = frozen.start(("stays", Route()), ("told", Route()), ("old", Route()), **every)
    frozen.more(live, 40)
    (fired,) = sent_to(live, dispatcher, "stays")
    assert ids(sent_to(live, dispatcher, "told")) == [fired.id]
    live.follow(*named(("stays", Route(rules=(KL,)))))
    live.now = RECORDED + 7.1 * 86_400.0
    live.daemon.turn()
    assert live.store.messages().queued == ()
    live.follow(*named(*((name, Route(rules=(KL,))) for name in ("stays", "told", "old"))))
    assert [ids(messages) for messages in sent(live, dispatcher)] == [[], [], [fired.id]]
    live.kill()
    live, dispatcher = frozen.start(("stays", Route()), ("told", Route()), ("old", Route()), **every)
    assert [[m for m in messages if m.rule == KL] for messages in sent(live, dispatcher)] == [[], [], []]
    live.close()


def test_what_was_sent_while_the_disk_is_full_counts_when_a_receiver_is_back(
    frozen: FrozenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what waits by then is known, though none of it could be stored."""
    frozen.write(3)
    live, dispatcher = frozen.start(("stays", Route()), ("heard", Route()), ("deaf", Route()))

    def full(*_: Any) -> None:
        raise StoreError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(live.store, "commit", full)
        frozen.more(live, 40)
        (fired,) = sent_to(live, dispatcher, "stays")
        assert ids(sent_to(live, dispatcher, "heard")) == [fired.id]
        live.follow(*named(("stays", Route())))
        live.daemon.turn()
        live.follow(*named(("stays", Route()), ("heard", Route()), ("deaf", Route())))
        assert dispatcher.lengths() == {"stays": 0, "heard": 0, "deaf": 1}
        assert [ids(messages) for messages in sent(live, dispatcher)] == [[], [], [fired.id]]
    live.settle(60.0)
    live.kill()
    live, dispatcher = frozen.start(("stays", Route()), ("heard", Route()), ("deaf", Route()))
    assert sent(live, dispatcher) == [[], [], []]
    live.close()


def test_a_mute_of_the_settings(frozen: FrozenRun) -> None:
    """Sent when the mute ends, because it still fires then."""
    mutes = [Mute(rule="kl-*", until=datetime.fromtimestamp(RECORDED + 100.0, timezone.utc))]
    frozen.write(3)
    live, dispatcher = frozen.start(mutes=lambda: mutes)
    frozen.more(live, 40)
    assert sent(live, dispatcher) == [[]]
    live.now = RECORDED + 100.0
    live.daemon.turn()
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.close()


def test_a_receiver_that_refuses_is_reported_through_the_other(frozen: FrozenRun) -> None:
    """And its recovery as well; the one that refuses gets nothing about itself."""
    frozen.write(3)
    live, dispatcher = frozen.start(("broken", Route(rules=(KL, "delivery-failing"))), ("well", Route()))
    frozen.more(live, 40)
    broken = dispatcher.outboxes[0]
    job = broken.take(0.0, live.now)
    assert isinstance(job, Message)
    broken.settle(job, REFUSED, 0.0, live.now)
    live.settle()
    live.settle()
    messages = sent(live, dispatcher)
    assert messages[0] == []
    assert rules(messages[1]) == [("firing", KL), ("firing", "delivery-failing")]
    assert messages[1][1].key == "broken"
    assert "answered so" in messages[1][1].message
    frozen.more(live, 41)
    broken.put([_other(job.notification)], live.now, lambda _: False)
    live.daemon.turn()
    sent(live, dispatcher)
    live.settle()
    live.settle()
    assert rules(sent(live, dispatcher)[1]) == [("resolved", "delivery-failing")]
    live.close()


TWO = (("broken", Route(rules=(KL,))), ("well", Route(rules=("delivery-failing",))))


def refuse(live: Live, dispatcher: NotificationDispatcher) -> Notification:
    """The first receiver refuses what waits for it."""
    job = dispatcher.outboxes[0].take(0.0, live.now)
    assert isinstance(job, Message)
    dispatcher.outboxes[0].settle(job, REFUSED, 0.0, live.now)
    return job.notification


def test_a_receiver_that_was_repaired_while_the_watch_was_down(frozen: FrozenRun) -> None:
    """It gets its messages before the run is read again; the run hears of that once it is, and only once."""
    frozen.write(3)
    live, dispatcher = frozen.start(*TWO)
    frozen.more(live, 40)
    refused = refuse(live, dispatcher)
    live.settle()
    assert [rules(messages) for messages in sent(live, dispatcher)] == [[], [("firing", "delivery-failing")]]
    dispatcher.outboxes[0].put([_other(refused)], live.now, lambda _: False)
    live.daemon.turn()
    live.kill()
    live, dispatcher = frozen.begin(*TWO)
    assert ids(sent(live, dispatcher)[0]) == ["another"]
    live.settle()
    assert [rules(messages) for messages in sent(live, dispatcher)] == [[], [("resolved", "delivery-failing")]]
    live.settle()
    assert sent(live, dispatcher) == [[], []]
    live.close()


@pytest.mark.parametrize("repaired", [False, True])
def test_what_is_refused_while_runs_are_read_again_is_reported_afterwards(
    frozen: FrozenRun, monkeypatch: pytest.MonkeyPatch, *, repaired: bool
) -> None:
    """That takes many turns after a start, as after a change of rules; also where the next message arrived by then."""
    frozen.write(3)
    live, dispatcher = frozen.start(*TWO)
    frozen.more(live, 40)
    live.kill()
    live, dispatcher = frozen.begin(*TWO)
    live.look()
    with monkeypatch.context() as patched:
        patched.setattr(WatchedRun, "turn", lambda *_: True)
        refused = refuse(live, dispatcher)
        live.daemon.turn()
        if repaired:
            dispatcher.outboxes[0].put([_other(refused)], live.now, lambda _: False)
            live.daemon.turn()
            assert ids(sent(live, dispatcher)[0]) == ["another"]
        assert not live.daemon.ready()
    live.settle()
    live.settle()
    wanted = ["firing", "resolved"] if repaired else ["firing"]
    assert [message.status for message in sent(live, dispatcher)[1]] == wanted
    live.close()


def test_while_nothing_can_be_stored_alerts_still_go(frozen: FrozenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full; after it is not, a restart sends nothing twice."""
    frozen.write(3)
    live, dispatcher = frozen.start()

    def full(*_: Any) -> None:
        raise StoreError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(live.store, "commit", full)
        frozen.more(live, 40)
        assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.settle(60.0)
    live.kill()
    live, dispatcher = frozen.start()
    assert sent(live, dispatcher) == [[]]
    live.close()


def test_a_damaged_state_does_not_repeat_what_can_be_read_of_it(frozen: FrozenRun) -> None:
    """The page of the runs' table is overwritten: it is kept aside, and what was sent is taken from it."""
    frozen.write(3)
    live, dispatcher = frozen.start()
    frozen.more(live, 40)
    assert rules(sent(live, dispatcher)[0]) == [("firing", KL)]
    live.close()
    path = frozen.folder / "state" / "state.db"
    with sqlite3.connect(path) as database:
        page, size = _root(database, "items"), database.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(data)
    live, dispatcher = frozen.start()
    assert list(path.parent.glob("state.db.damaged-*"))
    assert sent(live, dispatcher) == [[]]
    live.close()


@pytest.mark.parametrize("kept", [False, True])
def test_nothing_is_lost_when_the_state_is_taken_up_later(
    *, kept: bool, frozen: FrozenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for a receiver goes before the end of the alert, which came while the daemon began again."""
    routed = ("hook", Route()), ("down", Route())
    frozen.write(3)
    if kept:
        frozen.start(*routed)[0].close()

    def full(*_: Any) -> None:
        raise StateNotReadyError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("grpo_watch.store.state.open_database", full)
        live, dispatcher = frozen.start(*routed)
    frozen.more(live, 40)
    (fired,) = sent_to(live, dispatcher, "hook")
    frozen.write_recovery(live)
    live.close()
    frozen.now = live.now + 60
    again, dispatcher = frozen.begin(*routed, before=live)
    assert again.store.started == live.store.started
    again.settle()
    got, waited = ([one for one in flat(messages) if one.rule == KL] for messages in sent(again, dispatcher))
    assert rules(got) == [("resolved", KL)]
    assert rules(waited) == [("firing", KL), ("resolved", KL)]
    assert ids(waited) == [fired.id, got[0].id]
    again.kill()
    last, dispatcher = frozen.start(*routed)
    assert last.store.started == live.store.started
    assert sent(last, dispatcher) == [[], []]
    last.close()


def test_what_a_state_in_memory_left_goes_behind_what_waits() -> None:
    left = DeliveryChanges(queued=[Message("hook", a_notification(), number=1)], changed={("hook", "b"): (1, 1)})
    after = left.behind([Message("hook", a_notification(), number=4)])
    assert ([one.number for one in after.queued], after.changed) == ([5], {("hook", "b"): (1, 5)})


def test_a_state_of_the_version_before_is_taken_over(frozen: FrozenRun) -> None:
    """Its runs count as looked at, and what fires is sent once now that there are receivers."""
    frozen.write(40)
    live, _ = frozen.start(backlog=lambda: "none")
    live.close()
    path = frozen.folder / "state" / "state.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            "DROP TABLE deliveries; DROP TABLE told; ALTER TABLE runs DROP COLUMN looked;"
            "PRAGMA user_version = 1; PRAGMA application_id = 0;"
            "CREATE TABLE deliveries (sink TEXT NOT NULL, transition TEXT NOT NULL, outcome TEXT NOT NULL,"
            " tries INTEGER NOT NULL, due REAL, PRIMARY KEY (sink, transition));"
        )
    database.close()
    live, dispatcher = frozen.start()
    assert [message.rule for message in sent(live, dispatcher)[0]] == [KL]
    live.close()


def _other(reported: Notification) -> Notification:
    return replace(reported, id="another", run="another")


def _root(database: sqlite3.Connection, table: str) -> int:
    found = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return int(found[0])
