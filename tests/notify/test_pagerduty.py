"""PagerDuty: one incident per alert, opened, updated and resolved under one key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext, build
from grpo_watch.notify.receivers.pagerduty import MAX_SUMMARY, event
from grpo_watch.store.messages import Notification
from tests.support.postbox import Postbox
from tests.support.receiving import Answer, Receiving, a_notification, receiving, secret_file

KEY = "geheim7f3a"
TAKEN = Answer(202, body=b'{"status": "success"}')


def receiver(folder: Path, url: str) -> Receiver:
    file = secret_file(folder / "key", KEY)
    sink = {"type": "pagerduty", "routing_key_file": str(file), "url": url}
    (routed,) = build(converted(Settings, {"sinks": [sink]}).sinks, ReceiverContext(clock=lambda: 0.0))
    assert not routed.route.digest
    return routed.receiver


def events(server: Receiving) -> list[dict[str, Any]]:
    return [json.loads(sent.body) for sent in server.sent]


def story(*news: Notification) -> list[Notification]:
    """What an outbox makes of it."""
    box = Postbox()
    box.put(*news)
    return box.send_all()


def test_an_incident_is_opened_updated_and_resolved_under_one_key(tmp_path: Path) -> None:
    """Also where it got worse in between; another alert, and one about something else, have other keys."""
    messages = story(
        a_notification(id="1", severity="warning", started=5.0),
        a_notification(id="2", started=9.0),
        a_notification(id="3", key="other"),
        a_notification(id="4", run="other"),
        a_notification(id="5", status="resolved", ended=20.0),
    )
    with receiving(TAKEN) as server:
        sink = receiver(tmp_path, server.url)
        assert {sink.send(message).result for message in messages} == {DeliveryResult.DELIVERED}
        sent = {event["payload"]["severity"] if "payload" in event else "-": event for event in events(server)}
    keys = [event["dedup_key"] for event in events(server)]
    mine = [event for event in events(server) if event["dedup_key"] == keys[0]]
    assert [event["event_action"] for event in mine] == ["trigger", "trigger", "resolve"]
    assert [event["payload"]["severity"] for event in mine[:2]] == ["warning", "critical"]
    assert len(set(keys)) == 3
    assert sent["-"] == {"routing_key": KEY, "dedup_key": keys[0], "event_action": "resolve"}


def test_an_event_holds_what_is_needed_to_act() -> None:
    said = event(a_notification(runbook="https://wiki.example.org/kl"), KEY)
    payload = said["payload"]
    assert payload["summary"].startswith(
        "Not learning since step 2 (8 steps) · v0-run: KL has been exactly 0 for 9 steps"
    )
    assert (payload["source"], payload["severity"], payload["class"]) == ("v0-run", "critical", "kl-stuck-at-zero")
    assert payload["timestamp"] == "2026-11-18T11:06:40.000Z"
    assert payload["custom_details"]["fix"] == "Stop the run."
    assert payload["custom_details"]["label team"] == "math"
    assert [link["href"] for link in said["links"]] == ["http://127.0.0.1:9853/", "https://wiki.example.org/kl"]
    assert len(event(a_notification(message="x" * 5_000), KEY)["payload"]["summary"]) == MAX_SUMMARY


def test_a_digest_that_breaks_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """As what fired before the start: an incident for each, none twice."""
    digest = a_notification(id="d", parts=tuple(a_notification(id=str(n), run=f"run-{n}") for n in range(3)))
    with receiving(TAKEN, Answer(429, {"Retry-After": "7"}), TAKEN) as server:
        sink = receiver(tmp_path, server.url)
        first, second = sink.send(digest), sink.send(digest)
        assert (first.result, first.retry_after, second.result) == (DeliveryResult.RETRY, 7.0, DeliveryResult.DELIVERED)
        assert [event["payload"]["source"] for event in events(server)] == ["run-0", "run-1", "run-1", "run-2"]


def test_the_key_is_in_nothing_that_is_reported(tmp_path: Path) -> None:
    with receiving(Answer(400, body=KEY.encode())) as server:
        sink = receiver(tmp_path, server.url)
        outcome = sink.send(a_notification())
        assert (outcome.result, outcome.detail) == (DeliveryResult.REFUSED, "HTTP 400")
    assert KEY not in sink.name
