"""What Alertmanager gets about the watcher itself."""

from __future__ import annotations

import json
import time

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext, build
from tests.support.receiving import Answer, a_notification, receiving


def test_a_watcher_that_is_stuck_does_not_say_that_it_is_alive() -> None:
    """What fires is repeated all the same, so that it does not end by itself."""
    lateness: list[float | None] = [None, 3600.0, None]
    with receiving() as server:
        settings = converted(Settings, {"sinks": [{"type": "alertmanager", "url": server.url, "heartbeat": True}]})
        (routed,) = build(settings.sinks, ReceiverContext(clock=time.time, late=lambda: lateness.pop(0)))
        for _ in range(3):
            routed.receiver.refresh([a_notification()], DaemonSnapshot(), 0.0)
    shown = [json.loads(sent.body) for sent in server.sent]
    names = [[alert["labels"]["alertname"] for alert in alerts] for alerts in shown if alerts]
    assert names == [["GrpoRunAlert", "GrpoWatchAlive"], ["GrpoRunAlert"], ["GrpoRunAlert", "GrpoWatchAlive"]]


def test_it_is_asked_while_there_is_nothing_to_report() -> None:
    """Or nobody would know that it is gone before an alert is lost."""
    with receiving() as server:
        settings = converted(Settings, {"sinks": [{"type": "alertmanager", "url": server.url}]})
        (routed,) = build(settings.sinks, ReceiverContext(clock=time.time))
        assert routed.receiver.refresh([], DaemonSnapshot(), 0.0).reached
    assert [json.loads(sent.body) for sent in server.sent] == [[]]
    assert routed.receiver.refresh([], DaemonSnapshot(), 0.0).result is DeliveryResult.RETRY


def test_it_is_asked_for_the_time_before_the_first_alert_and_each_repeat() -> None:
    """An alert whose end is in Alertmanager's past would be over as it comes."""
    with receiving() as server:
        settings = converted(Settings, {"sinks": [{"type": "alertmanager", "url": server.url}]})
        (routed,) = build(settings.sinks, ReceiverContext(clock=time.time))
        for _ in range(2):
            routed.receiver.send(a_notification())
        routed.receiver.refresh([a_notification()], DaemonSnapshot(), 0.0)
    assert [len(json.loads(sent.body)) for sent in server.sent] == [0, 1, 1, 0, 1]


def test_a_link_that_it_could_not_read_is_left_out() -> None:
    """It would refuse the whole request."""
    pages = [
        "http://127.0.0.1:9853/#/run/a",
        "https://x.example/%20a/",
        "https://x.example/%zz/",
        "http://x y:9853/",
        "",
    ]
    with receiving() as server:
        settings = converted(Settings, {"sinks": [{"type": "alertmanager", "url": server.url}]})
        (routed,) = build(settings.sinks, ReceiverContext(clock=time.time))
        for page in pages:
            routed.receiver.send(a_notification(page=page))
    alerts = [alert for sent in server.sent for alert in json.loads(sent.body)]
    assert [alert.get("generatorURL") for alert in alerts] == [*pages[:2], None, None, None]


def test_a_refresh_does_not_end_an_alert_whose_answer_was_lost() -> None:
    """It may have arrived, and will be sent again: ended in between, it would be two."""
    with receiving(Answer(), Answer(status=500), Answer()) as server:
        settings = converted(Settings, {"sinks": [{"type": "alertmanager", "url": server.url}]})
        (routed,) = build(settings.sinks, ReceiverContext(clock=time.time))
        assert routed.receiver.send(a_notification()).result is DeliveryResult.RETRY
        routed.receiver.refresh([], DaemonSnapshot(), 0.0)
        assert [len(json.loads(sent.body)) for sent in server.sent] == [0, 1, 0]
        routed.receiver.send(a_notification())
        assert [len(json.loads(sent.body)) for sent in server.sent] == [0, 1, 0, 1]


def test_what_fires_no_more_is_ended_at_the_second_refresh() -> None:
    """Killed after the first one, before it was stored that the alert was sent, it would be sent, and open, again."""
    with receiving() as server:
        settings = converted(Settings, {"sinks": [{"type": "alertmanager", "url": server.url}]})
        (routed,) = build(settings.sinks, ReceiverContext(clock=time.time))
        routed.receiver.send(a_notification())
        for _ in range(3):
            routed.receiver.refresh([], DaemonSnapshot(), 0.0)
    assert [len(json.loads(sent.body)) for sent in server.sent] == [0, 1, 0, 0, 1, 0]
