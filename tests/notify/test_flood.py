"""Ten thousand alerts at once, and a queue that overflows: what receivers are sent, and who hears of what is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.notify.outbox import Outbox
from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext, Route, build
from grpo_watch.store.messages import Message
from tests.notify.test_dispatcher import KL, rules, sent
from tests.support.frozen_run import FrozenRun
from tests.support.receiving import Receiving, a_notification, receiving, secret_file

MANY = 10_000
ALERTS = [a_notification(id=f"fire-{number}", run=f"run-{number}") for number in range(MANY)]
SLACKS_BLOCKS, SLACKS_TEXT = 50, 3_000
"""What Slack takes in one message, and in one section."""


@contextmanager
def flooded(sink: Callable[[Receiving], dict[str, Any]]) -> Iterator[tuple[Receiving, list[float]]]:
    """A server that got all of them, and the seconds at which (on a clock that does not wait)."""
    with receiving() as server:
        (routed,) = build(converted(Settings, {"sinks": [sink(server)]}).sinks, ReceiverContext(clock=lambda: 0.0))
        outbox, now, times = Outbox(routed, lambda: 1.0), 0.0, list[float]()
        outbox.put(ALERTS, now, lambda _: False)
        while len(outbox):
            outbox.changes()
            outbox.committed()
            job = outbox.take(now, now)
            if not isinstance(job, Message):
                now += job
                continue
            outcome = routed.receiver.send(job.notification)
            assert outcome.result is DeliveryResult.DELIVERED
            times.append(now)
            outbox.settle(job, outcome, now, now)
        routed.receiver.close()
        yield server, times


@pytest.mark.slow
def test_slack_gets_twenty_messages_one_a_second(tmp_path: Path) -> None:
    """Each within Slack's limits; all that is critical is listed."""

    def slack(server: Receiving) -> dict[str, Any]:
        return {"type": "slack", "webhook_url_file": str(secret_file(tmp_path / "slack", server.url))}

    with flooded(slack) as (server, times):
        bodies = [json.loads(each.body) for each in server.sent]
    assert [body["text"] for body in bodies] == ["500 critical on 500 runs"] * 20
    assert times == [float(second) for second in range(20)]
    for body in bodies:
        blocks = body["attachments"][0]["blocks"]
        assert len(blocks) <= SLACKS_BLOCKS
        texts = [block["text"]["text"] for block in blocks if block["type"] == "section"]
        assert max(map(len, texts)) <= SLACKS_TEXT
        assert sum(text.count("• CRITICAL") for text in texts) == 500


@pytest.mark.slow
def test_a_webhook_that_takes_digests_gets_each_once_in_order() -> None:
    with flooded(lambda server: {"type": "webhook", "url": server.url, "digest": True}) as (server, _):
        parts = [part["id"] for each in server.sent for part in json.loads(each.body)["parts"]]
    assert parts == [alert.id for alert in ALERTS]


def test_what_overflows_is_reported_through_the_other_receiver(tmp_path: Path) -> None:
    """The oldest of 10,000 messages is dropped and counted; the other receiver hears of it, and of the end of it."""
    frozen = FrozenRun(tmp_path)
    frozen.write(3)
    live, dispatcher = frozen.start(("stuck", Route()), ("hook", Route()))
    stuck = dispatcher.outboxes[0]
    stuck.put(ALERTS, live.now, lambda _: False)
    frozen.more(live, 40)
    live.settle()
    assert (stuck.counts["dropped"], len(stuck)) == (1, MANY)
    assert live.daemon.snapshot().deliveries["stuck", "dropped"] == 1
    assert "stuck" in live.daemon.snapshot().troubled
    waited, heard = sent(live, dispatcher)
    assert [each.id for each in waited[:-1]] == [alert.id for alert in ALERTS[1:]]
    assert (waited[-1].rule, rules(heard)) == (KL, [("firing", KL), ("firing", "delivery-failing")])
    assert (heard[1].key, "the oldest are dropped" in heard[1].message) == ("stuck", True)
    live.settle()
    live.settle()
    assert [rules(messages) for messages in sent(live, dispatcher)] == [[], [("resolved", "delivery-failing")]]
    live.close()
