"""Every kind of receiver against a service that fails in a dozen ways: what became of the message, and the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import BaseSink, Settings
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import DeliveryOutcome, Receiver, ReceiverContext, build
from grpo_watch.notify.receivers import apprise, http_client
from tests.support.every_receiver import fullest, pointed
from tests.support.receiving import Answer, Receiving, a_notification, receiving

WORD = "geheim5e1f"
ECHO = f"you sent {WORD}".encode()
WAYS = {
    "server error": (Answer(500, body=ECHO), "retry"),
    "not implemented": (Answer(501, body=ECHO), "refused"),
    "overload": (Answer(503, {"Retry-After": "7"}), "retry"),
    "too many": (Answer(429, {"Retry-After": "7"}), "retry"),
    "too many, no hint": (Answer(429, body=ECHO), "retry"),
    "moved for good": (Answer(301, {"Location": f"http://{WORD}.example/"}), "retry"),
    "moved": (Answer(302, {"Location": f"http://{WORD}.example/"}), "retry"),
    "password": (Answer(401, body=ECHO), "retry"),
    "address": (Answer(404, body=ECHO), "retry"),
    "message": (Answer(400, body=ECHO), "refused"),
    "no answer": (Answer(raw=b""), "retry"),
    "no HTTP": (Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n" + ECHO), "retry"),
    "TLS": (Answer(raw=b"\x15\x03\x03\x00\x02\x02\x28"), "retry"),
    "half a status": (Answer(raw=b"HTTP/1."), "retry"),
    "silence": (Answer(after=60.0), "retry"),
    "half a body": (Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "delivered"),
}
"""Each answer and its result; the status of the last is there, so that the message has arrived."""
ASKED = [sink for sink in fullest() if sink.type != "textfile"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is given up after half a second."""
    monkeypatch.setattr(http_client, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(apprise, "TOTAL_SECONDS", 5.0)


@pytest.fixture
def service() -> Iterator[Receiving]:
    with receiving() as server:
        yield server


def attempt(receiver: Receiver) -> DeliveryOutcome:
    """Send an alert; what takes none is asked for its turn."""
    sent = receiver.send(a_notification())
    return sent if sent.reached else receiver.refresh((a_notification(),), DaemonSnapshot(), 1.8e9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # apprise's
@pytest.mark.parametrize("sink", ASKED, ids=lambda sink: sink.type)
def test_each_failure_is_an_outcome_and_the_next_attempt_arrives(
    sink: BaseSink, service: Receiving, tmp_path: Path
) -> None:
    """Nothing is raised, no secret is repeated, and a service that is well again gets the message."""
    settings = pointed(sink, service.url, tmp_path, lambda _: WORD)
    (routed,) = build(converted(Settings, {"sinks": [settings]}).sinks, ReceiverContext(lambda: 1.8e9))
    for way, (answer, result) in WAYS.items():
        service.answers = [answer]
        outcome = attempt(routed.receiver)
        known = sink.type != "apprise"  # which does not say what was answered
        assert outcome.result.value == (result if known else "retry"), (way, outcome)
        assert WORD not in outcome.detail
        assert outcome.retry_after == (7.0 if known and answer.headers.get("Retry-After") else None), way
        service.answers, before = [Answer()], len(service.sent)
        assert attempt(routed.receiver).result.value == "delivered", way
        assert len(service.sent) > before
    routed.receiver.close()
