"""What Alertmanager is told of the watcher itself."""

from __future__ import annotations

import json

from grpo_watch.config.schema import Settings
from grpo_watch.runtime.receivers import Around, build
from grpo_watch.sinks.base import Picture
from grpo_watch.sinks.notification import Result
from tests.support.receiving import receiving, told


def test_a_watcher_that_is_stuck_does_not_say_that_it_is_alive() -> None:
    """What fires is repeated all the same, so that it does not end by itself."""
    lateness: list[float | None] = [None, 3600.0, None]
    with receiving() as server:
        settings = Settings.model_validate({"sinks": [{"type": "alertmanager", "url": server.url, "heartbeat": True}]})
        (routed,) = build(settings.sinks, Around(clock=lambda: 0.0, late=lambda: lateness.pop(0)))
        for _ in range(3):
            routed.receiver.refresh([told()], Picture(), 0.0)
    names = [[alert["labels"]["alertname"] for alert in json.loads(sent.body)] for sent in server.sent]
    assert names == [["GrpoRunAlert", "GrpoWatchAlive"], ["GrpoRunAlert"], ["GrpoRunAlert", "GrpoWatchAlive"]]


def test_it_is_asked_while_there_is_nothing_to_tell() -> None:
    """Or nobody would know that it is gone before an alert is lost."""
    with receiving() as server:
        settings = Settings.model_validate({"sinks": [{"type": "alertmanager", "url": server.url}]})
        (routed,) = build(settings.sinks, Around(clock=lambda: 0.0))
        assert routed.receiver.refresh([], Picture(), 0.0).reached
    assert [json.loads(sent.body) for sent in server.sent] == [[]]
    assert routed.receiver.refresh([], Picture(), 0.0).result is Result.RETRY
