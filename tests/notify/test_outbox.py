"""One receiver's queue: what is sent, in which order, when again, and what is never sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_watch.engine.records import Severity
from grpo_watch.notify import outbox as module
from grpo_watch.notify.receiver import NOTHING, DeliveryOutcome, DeliveryResult, Route
from grpo_watch.store.messages import Message, MessageState, Notification
from tests.support.postbox import DELIVERED, REFUSED, RETRY, Postbox, ids
from tests.support.receiving import a_notification

EVENING, MORNING = 22 * 3600.0, 31 * 3600.0  # 22:00 and 07:00 of the next day, 1 January 1970 UTC


def fire(number: int = 1, **changed: Any) -> Notification:
    return a_notification(**{"id": f"fire-{number}", "run": f"run{number}", **changed})


def end(number: int = 1, **changed: Any) -> Notification:
    return a_notification(
        **{"id": f"end-{number}", "run": f"run{number}", "status": "resolved", "ended": 9.0, **changed}
    )


def test_nothing_is_sent_before_it_is_stored() -> None:
    box = Postbox()
    box.outbox.put([fire()], 0.0, lambda _: False)
    assert not isinstance(box.take(), Message)
    box.store()
    assert ids(box.send_all()) == ["fire-1"]


def test_a_fire_and_a_resolve_once_each() -> None:
    """What is put again, as after a restart, is not sent again; the resolve says when the episode began."""
    box = Postbox()
    box.put(fire(started=5.0), end(), fire(started=5.0), end())
    first, second = box.send_all()
    assert (first.id, second.id, second.started, second.ended) == ("fire-1", "end-1", 5.0, 9.0)
    again = Postbox(kept=box.kept())
    again.put(fire(), end())
    assert again.send_all() == []


def test_nothing_is_repeated_to_a_receiver_that_keys_alerts_while_news_of_it_wait() -> None:
    """After a restart: the newest episode would be ended by news of an older one, and what ended be opened again."""
    box = Postbox(keyed=True)
    box.put(fire(started=5.0))
    assert box.outbox.firing() == []
    assert ids(box.send_all()) == ["fire-1"]
    box.put(end(), fire(id="again", started=12.0))
    assert box.outbox.firing() == []
    assert ids(box.send_all()) == ["end-1", "again"]
    assert [each.started for each in box.outbox.firing()] == [12.0]


def test_the_end_of_what_nobody_was_notified_of_is_not_reported() -> None:
    box = Postbox(Route(min_severity=Severity.CRITICAL))
    box.put(fire(severity="warning"), end())
    assert box.send_all() == []


def test_what_gets_worse_is_reported_again_and_ends_once() -> None:
    """A receiver for critical alerts hears of it only then."""
    worse = fire(id="worse", severity="critical", started=7.0)
    story = (fire(severity="warning", started=5.0), worse, end(severity="warning"))
    everything, critical = Postbox(), Postbox(Route(min_severity=Severity.CRITICAL))
    everything.put(*story)
    critical.put(*story)
    assert ids(everything.send_all()) == ["fire-1", "worse", "end-1"]
    assert [(m.id, m.severity) for m in critical.send_all()] == [("worse", "critical"), ("end-1", "critical")]


def test_what_got_worse_while_a_receiver_was_away_is_reported_once_it_is_back() -> None:
    """Once; nothing where it is as bad as before, less bad, muted, or of a run that is over.

    Nor where the same news is called worse: a finding that explains it is over.
    """
    worse = fire(id="worse", severity="critical")
    box = Postbox()
    box.put(fire(severity="warning"))
    assert ids(box.send_all()) == ["fire-1"]
    box.find(fire(id="again", severity="warning"))
    box.find(fire(severity="critical"))
    box.find(worse, muted=lambda _: True)
    box.find(worse, send=False)
    box.outbox.gathered()
    assert box.send_all() == []
    for found in (worse, worse, fire(id="less", severity="warning")):
        box.find(found)
    box.outbox.gathered()
    assert [(m.id, m.was) for m in box.send_all()] == [("worse", "warning")]
    box.put(end(severity="critical"))
    assert ids(box.send_all()) == ["end-1"]


def test_a_receiver_gets_no_report_of_its_own_failure() -> None:
    box = Postbox()
    box.put(fire(rule="delivery-failing", key="hook"), fire(2, rule="delivery-failing", key="other"))
    assert ids(box.send_all()) == ["fire-2"]


@pytest.mark.parametrize(
    ("route", "wanted"),
    [
        (Route(runs=("run1",)), ["fire-1"]),
        (Route(runs=("x*", "run[23]")), ["fire-2", "fire-3"]),
        (Route(rules=("kl-*",)), ["fire-1", "fire-3"]),
        (Route(labels={"team": "math"}), ["fire-1", "fire-2"]),
        (Route(labels={"team": "math", "owner": "*"}), ["fire-1", "fire-2"]),
        (Route(runs=("run1",), rules=("entropy-collapse",)), []),
    ],
)
def test_routes(route: Route, wanted: list[str]) -> None:
    box = Postbox(route)
    box.put(fire(), fire(2, rule="entropy-collapse"), fire(3, labels={"team": "code"}))
    assert ids(box.send_all()) == wanted


# trying again


def test_waits_double_up_to_a_minute() -> None:
    """Without jitter: 1, 2, 4 … 60 s; a success resets the wait."""
    box = Postbox()
    box.put(fire())
    waits = []
    for _ in range(8):
        assert box.send(RETRY) is not None
        before = box.now
        while box.take() is not None and not isinstance(box.take(), Message):
            box.now += 0.5
        waits.append(box.now - before)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_what_a_receiver_asks_for_is_kept() -> None:
    box = Postbox()
    box.put(fire())
    box.send(DeliveryOutcome(DeliveryResult.RETRY, "429", retry_after=33.0, status=429))
    box.now = 32.9
    assert box.send() is None
    box.now = 33.0
    assert box.send() is not None


def test_a_message_that_never_arrives_holds_up_its_own_run_only() -> None:
    """The first message of run1 is answered with an error again and again; run2 is served, run1's order is kept."""
    box = Postbox()
    box.put(fire(), end(), fire(2))
    assert box.send(RETRY) is not None
    box.now = 1.0
    assert ids([m for m in [box.send()] if m]) in (["fire-1"], ["fire-2"])
    for _ in range(5):
        job = box.take()
        if isinstance(job, Message):
            assert job.notification.id != "end-1"
            box.outbox.settle(job, RETRY if job.notification.id == "fire-1" else DELIVERED, box.now, box.now)
            box.store()
        box.now += 1.0
    assert box.outbox.counts["delivered"] == 1


def test_given_up_after_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_UP_TRIES", 3)
    box = Postbox()
    box.put(fire(), fire(2))
    while len(box.outbox):
        box.now += 60.0
        box.send(RETRY)
    assert box.outbox.counts == {"retried": 6, "expired": 2}


def test_a_receiver_that_was_down_for_minutes_gets_all_within_a_minute() -> None:
    """Ten minutes; then every message arrives, each run's in order."""
    box = Postbox()
    box.put(fire(), end(), fire(2))
    while box.now < 600.0:
        box.send(RETRY)
        box.now += 0.5
    back, got = box.now, list[Notification]()
    while len(box.outbox):
        got += box.send_all()
        box.now += 0.5
    assert box.now - back <= 61.0
    assert sorted(ids(got)) == ["end-1", "fire-1", "fire-2"]
    assert ids(got).index("fire-1") < ids(got).index("end-1")


def test_what_somebody_has_to_fix_is_given_up_sooner() -> None:
    """Twice, as this answer says; the other message gets another answer and is tried on."""
    box, wrong_token = Postbox(), DeliveryOutcome(DeliveryResult.RETRY, "HTTP 404", most_tries=2)
    box.put(fire(), fire(2))
    while len(box.outbox) > 1:
        box.now += 60.0
        message = box.send(wrong_token if box.outbox.counts["retried"] % 2 == 0 else RETRY)
        assert message is not None
    assert box.outbox.counts["expired"] == 1
    assert box.outbox.counts["retried"] >= 3


def test_pace_and_rate() -> None:
    """Slack's second between messages; ten a minute make six."""
    slack, slow = Postbox(pace=1.0), Postbox(pace=6.0)
    for box, pace in ((slack, 1.0), (slow, 6.0)):
        box.put(fire(), fire(2))
        assert box.send() is not None
        box.now = pace - 0.1
        assert box.send() is None
        box.now = pace
        assert box.send() is not None


# digests


def test_many_alerts_at_once_become_one_message() -> None:
    """Seven runs fail together; a chat gets one message with all, in order, a webhook seven."""
    chat, hook = Postbox(Route(digest=True)), Postbox()
    alerts = [fire(number) for number in range(7)]
    chat.put(*alerts)
    hook.put(*alerts)
    (digest,) = chat.send_all()
    assert ids(digest.parts) == ids(alerts)
    assert (digest.summary, digest.severity, digest.status) == ("7 alerts of 7 runs: 7 firing", "critical", "firing")
    assert ids(hook.send_all()) == ids(alerts)


def test_a_digest_keeps_its_parts_and_its_id_across_a_restart() -> None:
    """Its answer was lost; two more alerts don't change what is sent again."""
    box = Postbox(Route(digest=True))
    box.put(*(fire(number) for number in range(6)))
    lost = box.send(RETRY)
    assert lost is not None
    box.put(fire(8), fire(9))
    again = Postbox(Route(digest=True), box.kept())
    sent = again.send_all()
    assert (sent[0].id, ids(sent[0].parts)) == (lost.id, ids(lost.parts))
    assert ids(sent[1:]) == ["fire-8", "fire-9"]


def test_a_refused_digest_is_sent_part_by_part() -> None:
    box = Postbox(Route(digest=True))
    box.put(*(fire(number) for number in range(6)))
    assert box.send(REFUSED) is not None
    assert ids(box.send_all()) == [f"fire-{number}" for number in range(6)]


def test_a_digest_that_never_arrives_holds_up_no_other_run() -> None:
    """One of its parts is why; a critical alert of another run passes, and the good parts arrive in the end."""
    box = Postbox(Route(digest=True))
    box.put(*(fire(number) for number in range(40)))
    arrived: dict[str, float] = {}

    def minute() -> None:
        until = box.now + 60.0
        while box.now < until:
            job = box.take()
            if isinstance(job, Message):
                bad = any(row.notification.id == "fire-7" for row in job.rows)
                if not bad:
                    arrived.update((row.notification.id, box.now) for row in job.rows)
                box.outbox.settle(job, RETRY if bad else DELIVERED, box.now, box.now)
            box.store()
            box.now += 0.0 if job == 0 else 1.0

    minute()
    assert arrived == {}
    box.put(fire(99), end(99), end(7))
    came = box.now
    minute()
    minute()
    assert list(arrived) == ["fire-99", "end-99"]
    assert arrived["fire-99"] - came <= 61
    for _ in range(60):
        minute()
    assert set(arrived) == {"fire-99", "end-99", *(f"fire-{number}" for number in range(40) if number != 7)}
    assert box.outbox.counts["refused"] == box.outbox.counts["expired"] == 0


@pytest.mark.parametrize(("route", "alerts"), [(Route(), 1), (Route(digest=True), 6)])
def test_what_was_refused_is_stored_before_the_next_message_goes(route: Route, alerts: int) -> None:
    """A daemon that is killed then would send it again, after later news of its run; a refused digest likewise."""
    box = Postbox(route)
    box.put(*(fire(number, run="run1") for number in range(alerts)), fire(8, run="run1", rule="other"))
    box.take()
    box.store()  # a digest is stored before it goes
    job = box.take()
    assert isinstance(job, Message)
    box.outbox.settle(job, REFUSED, box.now, box.now)
    assert box.take() == 0.0
    box.store()
    assert isinstance(box.take(), Message)


def test_what_was_given_up_is_stored_before_the_next_message_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a message that was tried too often."""
    monkeypatch.setattr(module, "GIVE_UP_TRIES", 1)
    box = Postbox()
    box.put(fire(), end())
    job = box.take()
    assert isinstance(job, Message)
    box.outbox.settle(job, RETRY, box.now, box.now)
    box.now += 60.0
    assert box.take() == 0.0
    box.store()
    assert isinstance(box.take(), Message)


def test_an_outage_of_minutes_does_not_scatter_a_digest() -> None:
    box = Postbox(Route(digest=True), pace=1.0)
    box.put(*(fire(number) for number in range(40)))
    while box.now < 600.0:
        box.send(RETRY)
        box.now += 1.0
    sent = []
    for _ in range(120):
        sent += box.send_all()
        box.now += 1.0
    assert sum(len(message.parts or (message,)) for message in sent) == 40
    assert len(sent) < 35


def test_what_fires_at_the_start_goes_as_one_digest_when_all_was_read() -> None:
    box = Postbox()
    box.find(fire(), fire(2), fire(3))
    assert box.send() is None
    box.outbox.gathered()
    (digest,) = box.send_all()
    assert ids(digest.parts) == ["fire-1", "fire-2", "fire-3"]


def test_news_of_a_run_does_not_overtake_its_backlog() -> None:
    box = Postbox()
    box.find(fire())
    box.put(end())
    (digest,) = box.send_all()
    assert ids(digest.parts) == ["fire-1", "end-1"]


def test_news_of_a_run_does_not_overtake_its_backlog_after_a_restart_either() -> None:
    """Nothing was sent before it, and the runs are not read yet."""
    box = Postbox()
    box.find(fire())
    box.put(end())
    again = Postbox(kept=box.kept())
    (digest,) = again.send_all()
    assert ids(digest.parts) == ["fire-1", "end-1"]


def test_a_backlog_that_is_not_reported_stays_unreported() -> None:
    """Neither at the next start nor when it ends; but when it gets worse."""
    box = Postbox()
    box.find(fire(severity="warning"), send=False)
    again = Postbox(kept=box.kept())
    again.find(fire(severity="warning"))
    again.outbox.gathered()
    assert again.send_all() == []
    again.put(fire(id="worse"), end())
    assert ids(again.send_all()) == ["worse", "end-1"]


# mutes


def test_muted_until_it_is_not() -> None:
    """What still fires when the mute ends is sent then, with its own id; what ended meanwhile is never sent."""
    box = Postbox()
    box.put(fire(), fire(2), muted=lambda _: True)
    box.put(end(2), muted=lambda _: True)
    assert box.send_all() == []
    again = Postbox(kept=box.kept())
    again.outbox.unmute(0.0, lambda _: False)
    again.put(end())
    assert ids(again.send_all()) == ["fire-1", "end-1"]


def test_a_mute_does_not_hide_the_end_of_what_was_reported() -> None:
    box = Postbox()
    box.put(fire())
    box.put(end(), muted=lambda _: True)
    assert ids(box.send_all()) == ["fire-1", "end-1"]


# bounds and trouble


def test_a_full_queue_drops_the_oldest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    box = Postbox()
    box.put(*(fire(number) for number in range(5)))
    assert {"the oldest are dropped" in why for why in box.outbox.reports().values()} == {True}
    assert ids(box.send_all()) == ["fire-2", "fire-3", "fire-4"]
    assert box.outbox.counts == {"dropped": 2, "delivered": 3}


def test_a_full_gathering_drops_the_oldest_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that is new, much that fires already, and then something fresh: it is not that which is dropped."""
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    box = Postbox()
    box.find(*(fire(number) for number in range(4)))
    assert (len(box.outbox), [*box.outbox.reports()]) == (3, ["run0"])
    box.put(fire(9))
    assert ids(box.send_all()) == ["fire-9"]
    box.outbox.gathered()
    (digest,) = box.send_all()
    assert ids(digest.parts) == ["fire-2", "fire-3"]


def test_what_came_back_into_the_queue_is_as_old_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered while something new came before it: the next one that is too many drops what was gathered."""
    monkeypatch.setattr(module, "MOST_WAITING", 4)
    box = Postbox()
    box.find(fire(1), fire(2))
    box.put(fire(3), fire(4))
    box.outbox.gathered()
    box.put(fire(5))
    (digest,) = box.send_all()
    assert ids(digest.parts) == ["fire-2", "fire-3", "fire-4", "fire-5"]


@pytest.mark.slow
def test_ten_thousand_alerts_at_once_arrive() -> None:
    """Each once, in order, through digests of 500."""
    chat, hook = Postbox(Route(digest=True)), Postbox()
    alerts = [fire(number) for number in range(10_000)]
    for box in (chat, hook):
        box.put(*alerts)
    digests = chat.send_all()
    assert [part.id for digest in digests for part in digest.parts] == ids(alerts)
    assert len(digests) == 20
    assert ids(hook.send_all()) == ids(alerts)


def test_trouble_is_reported_once_and_its_end_too() -> None:
    """The fifth attempt in vain, and the first that arrives."""
    box = Postbox()
    box.put(fire())
    for number in range(7):
        assert box.outbox.reports() == ({"run1": "answered so"} if number == 5 else {})
        box.now += 60.0
        box.send(RETRY)
    box.now += 60.0
    assert box.send() is not None
    assert box.outbox.trouble.well
    box.put(end())
    assert box.send(REFUSED) is not None
    assert not box.outbox.trouble.well
    assert [*box.outbox.reports().values()] == ["answered so"]
    assert box.outbox.counts == {"retried": 7, "delivered": 1, "refused": 1}


def in_trouble() -> Postbox:
    """One that was asked five times in vain, for what fires."""
    box = Postbox()
    box.put(fire())
    assert box.send() is not None
    box.outbox.reports()
    for _ in range(5):
        box.outbox.refreshed(RETRY)
    assert [*box.outbox.reports().values()] == ["answered so"]
    return box


def test_what_needs_no_sending_is_no_end_of_trouble() -> None:
    """A heartbeat that can't be asked gets the news of alerts, and has nothing to send of them."""
    box = in_trouble()
    box.put(fire(2))
    assert box.send(NOTHING) is not None
    box.outbox.refreshed(NOTHING)
    assert (box.outbox.trouble.now, box.outbox.trouble.well) == ("answered so", False)
    assert (box.outbox.counts["delivered"], box.outbox.counts["passed"]) == (1, 1)
    box.outbox.refreshed(DELIVERED)
    assert (box.outbox.trouble.now, box.outbox.trouble.well) == ("", True)


def test_what_is_given_up_or_dropped_is_no_end_of_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which a queue becomes empty without a message that arrives."""
    monkeypatch.setattr(module, "GIVE_UP_TRIES", 2)
    box = in_trouble()
    box.put(fire(2))
    for _ in range(2):
        assert box.send(RETRY) is not None
        box.now += 60.0
    monkeypatch.setattr(module, "MOST_WAITING", 0)
    box.put(fire(3))
    box.put(end(3))
    assert len(box.outbox) == 0
    assert {name: box.outbox.counts[name] for name in ("expired", "dropped")} == {"expired": 1, "dropped": 2}
    assert (box.outbox.trouble.now != "", box.outbox.trouble.well, box.outbox.reports()) == (True, False, {})


def test_a_full_queue_is_reported_once_until_half_of_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that is slower than the news must not be said to be well after every message."""
    monkeypatch.setattr(module, "MOST_WAITING", 4)
    box = Postbox()
    box.put(*(fire(number) for number in range(5)))
    reports = [box.outbox.reports()]
    for number in range(5, 8):
        assert box.send() is not None
        box.put(fire(number), fire(number + 10))
        reports.append(box.outbox.reports())
    assert [bool(each) for each in reports] == [True, False, False, False]
    assert box.send() is not None
    assert (len(box.outbox), box.outbox.trouble.well) == (3, False)
    assert box.send() is not None
    assert (len(box.outbox), box.outbox.trouble.well) == (2, True)


def test_a_clock_that_steps_changes_nothing() -> None:
    """Waits are measured on a clock that never steps."""
    box = Postbox()
    box.put(fire())
    assert box.send(RETRY) is not None
    assert not isinstance(box.outbox.take(0.5, 4e9), Message)
    assert isinstance(box.outbox.take(1.0, -1e9), Message)


def test_a_damaged_message_is_passed_over() -> None:
    box = Postbox()
    box.put(fire(), fire(2))
    kept = box.kept()
    damaged = kept.queued[0]
    again = Postbox(kept=replace(kept, queued=kept.queued[1:], damaged=((damaged.sink, damaged.id),)))
    assert again.stored.finished == {}
    again.put(fire())
    assert ids(again.send_all()) == ["fire-2"]
    assert again.stored.finished[damaged.sink, damaged.id] == (MessageState.DAMAGED, 0.0)


def test_a_receiver_with_keys_gets_no_news_of_an_alert_before_the_last_is_stored() -> None:
    """A kill after both would send both again: what the receiver knows as resolved would fire a second time."""
    box = Postbox(keyed=True)
    box.put(fire(), end(), fire(2))
    job = box.take()
    assert isinstance(job, Message)
    box.outbox.settle(job, DELIVERED, 0.0, 0.0)
    assert box.take() == 0
    changes = box.outbox.changes()
    assert box.take() == 0  # handed out, and not stored yet
    box.stored.add(changes)
    box.outbox.committed()
    assert ids(box.send_all()) == ["end-1", "fire-2"]
    again = Postbox(kept=box.kept(), keyed=True)
    assert again.send_all() == []


def test_a_kill_repeats_the_last_news_of_an_alert_only() -> None:
    """Wherever it comes: between sending and storing, of each message, of digests too."""
    story = [fire(), end(), fire(id="fire-1b"), end(id="end-1b"), fire(2), fire(3)]
    for killed_at in range(len(story)):
        sent: list[str] = []
        box = Postbox(keyed=True)
        box.now = EVENING
        box.put(*story)
        box.take()
        box.now = MORNING
        for number in range(4 * len(story)):
            if (job := box.take()) == 0:
                box.store()
                job = box.take()
            if not isinstance(job, Message):
                break
            sent += ids(job.notification.parts or [job.notification])
            if number == killed_at:
                box = Postbox(kept=box.kept(), keyed=True)
                box.now = MORNING
            else:
                box.outbox.settle(job, DELIVERED, box.now, box.now)
        mine = [name for name in sent if name.endswith(("-1", "-1b"))]
        once = [name for at, name in enumerate(mine) if at == 0 or mine[at - 1] != name]
        assert once == ["fire-1", "end-1", "fire-1b", "end-1b"]
        assert set(sent) == {each.id for each in story}
