"""What every kind of receiver is held against, besides its own tests, with no list of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import SINKS, BaseSink, Settings
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.notify.receiver import Receiver, ReceiverContext, build
from tests.notify.test_hostile_texts import OBEYED, PARTS, hostile, report, texts
from tests.support.every_receiver import KINDS, pointed, shown
from tests.support.receiving import a_notification, receiving

EACH = pytest.mark.parametrize("sink", shown(), ids=lambda sink: sink.type)
MENTION = re.compile(r"@\w|<[!@#a-zA-Z/]|\]\(")
"""What chats turn into a mention, or into a link that hides its address."""
MENTION_IN_SLACK = re.compile(r"<[!@#a-zA-Z/]")
"""Slack needs ``<``: it gets ``&lt;`` and leaves a plain ``@all`` and ``](`` as they are."""
OWN_LINK = re.compile(r"<https?://127\.0\.0\.1[^|>]*\|[^|<>]*>")
LARGEST = 40_000
"""Bytes of a message: Slack's texts end at 40,000 characters, those of the other chats earlier."""


def strict(body: bytes) -> Any:
    """JSON as every parser reads it; of anything else its text."""
    try:
        return json.loads(body, parse_constant=pytest.fail)
    except ValueError:
        return body.decode()


def receiver_of(sink: BaseSink, url: str, folder: Path) -> Receiver:
    settings = pointed(sink, url, folder, lambda _: "geheim")
    (routed,) = build(converted(Settings, {"sinks": [settings]}).sinks, ReceiverContext(lambda: 1.8e9))
    return routed.receiver


def test_every_kind_is_shown() -> None:
    assert {sink.type for sink in shown()} == KINDS
    assert len(KINDS) == len(SINKS) >= 8


@EACH
@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # apprise's
def test_what_a_run_says_stays_text(sink: BaseSink, tmp_path: Path) -> None:
    """Alone, resolved, in a digest and in the metrics: strict JSON, and where people read it nothing that is obeyed."""
    with receiving() as service:
        receiver = receiver_of(sink, service.url, tmp_path)
        for odd in PARTS.values():
            said = hostile(odd)
            overview = RunOverview(replace(report(odd).snapshot, run=odd), "slug", active=True, labels={"team": odd})
            snapshot = DaemonSnapshot(runs=(overview,))
            for each in (said, replace(said, status="resolved", ended=1.0), replace(said, parts=(said, said))):
                assert receiver.send(each).result.value == "delivered"
            assert receiver.refresh((said,), snapshot, 1.8e9).result.value == "delivered"
        receiver.close()
    bodies = [strict(sent.body) for sent in service.sent if sent.body]
    bodies += [file.read_text() for file in tmp_path.glob("*.prom")]
    if not receiver.for_programs:
        assert [text for body in bodies for text in texts(body) if OBEYED.search(text.replace("\t", " "))] == []
    elif not receiver.metrics_only:
        assert any(odd in text for body in bodies for text in texts(body) for odd in ("@everyone", "<script>"))


@EACH
@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")
def test_a_chat_mentions_nobody_and_is_bounded(sink: BaseSink, tmp_path: Path) -> None:
    """Whatever a run says, alone and in a digest of 300; what is over says so."""
    long = "&" * 20_000
    with receiving() as service:
        receiver = receiver_of(sink, service.url, tmp_path)
        if not receiver.chat:
            return
        for odd in PARTS.values():
            receiver.send(hostile(odd))
            receiver.send(replace(hostile(odd), parts=(hostile(odd), hostile(odd))))
        texts_of = {"message": long, "summary": long, "hint": long, "cause": long, "run": long, "headline": long}
        one = a_notification(**texts_of, evidence={long: long}, labels={"team": long})
        receiver.send(one)
        receiver.send(a_notification(parts=tuple(replace(one, id=str(number)) for number in range(300))))
        before = len(service.sent)
        receiver.send(a_notification(status="resolved", ended=1.0))
        receiver.close()
    shown_texts = [text for sent in service.sent if sent.body for text in texts(strict(sent.body))]
    mention = MENTION_IN_SLACK if sink.type == "slack" else MENTION
    assert [text for text in shown_texts if mention.search(OWN_LINK.sub("", text))] == []
    assert max(len(sent.body) for sent in service.sent) <= LARGEST
    assert any("resolved" in text.lower() for sent in service.sent[before:] for text in texts(strict(sent.body)))
