"""The webhook: the document of the public interface, its signature, and Alertmanager's shape."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.errors import ConfigError
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext, build
from tests.support.receiving import Answer, a_notification, receiving, secret_file

NOW = 1_795_000_002.7


def webhook(**settings: Any) -> Receiver:
    sinks = converted(Settings, {"sinks": [{"type": "webhook", **settings}]}).sinks
    (routed,) = build(sinks, ReceiverContext(clock=lambda: NOW))
    return routed.receiver


def test_the_document_of_the_interface() -> None:
    """These keys, and the runbook; numbers that JSON can't hold are words."""
    with receiving() as server:
        notification = a_notification(
            evidence={"kl_reference": 0.0, "loss": math.nan, "note": "half \ud83d"},
            headline="Not learning since step 3",
        )
        assert webhook(url=server.url).send(notification).result is DeliveryResult.DELIVERED
    (sent,) = server.sent
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["idempotency-key"] == "f00d"
    assert "x-grpo-watch-signature" not in sent.headers
    assert json.loads(sent.body) == {
        "id": "f00d",
        "status": "firing",
        "run": "v0-run",
        "rule": "kl-stuck-at-zero",
        "key": "",
        "severity": "critical",
        "step": 10,
        "headline": "Not learning since step 3",
        "summary": "KL has been exactly 0 for 9 steps although rewards differ.",
        "evidence": {"kl_reference": 0.0, "loss": "NaN", "note": "half ?"},
        "hint": "Stop the run.",
        "cause": "The optimizer does not hold the model's parameters.",
        "runbook": "grpo-watch explain kl-stuck-at-zero",
        "page": "http://127.0.0.1:9853/",
    }


def test_alerts_of_one_rule_are_distinguished() -> None:
    """A reward function each: by the key, in a digest's parts too."""
    one, two = a_notification(key="accuracy"), a_notification(key="format")
    with receiving() as server:
        for notification in (one, two, replace(a_notification(), parts=(one, two))):
            webhook(url=server.url).send(notification)
    first, second, digest = (json.loads(sent.body) for sent in server.sent)
    assert (first["key"], second["key"]) == ("accuracy", "format")
    assert [part["key"] for part in digest["parts"]] == ["accuracy", "format"]


def test_the_signature_covers_time_and_body(tmp_path: Path) -> None:
    secret = secret_file(tmp_path / "hmac", "geheim\n")
    with receiving() as server:
        webhook(url=server.url, secret_file=str(secret)).send(a_notification())
    (sent,) = server.sent
    assert sent.headers["x-grpo-watch-timestamp"] == "1795000002"
    expected = hmac.new(b"geheim", b"1795000002." + sent.body, hashlib.sha256).hexdigest()
    assert sent.headers["x-grpo-watch-signature"] == f"sha256={expected}"


def test_an_address_that_is_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    with receiving() as server:
        file = secret_file(tmp_path / "url", f"{server.url}/hooks/geheim")
        receiver = webhook(url_file=str(file), header_files={"X-Token": str(secret_file(tmp_path / "t", "abc"))})
        assert receiver.send(a_notification()).result is DeliveryResult.DELIVERED
        assert "geheim" not in receiver.name
        assert (server.sent[0].path, server.sent[0].headers["x-token"]) == ("/hooks/geheim", "abc")
        file.chmod(0o644)
        outcome = receiver.send(a_notification())
        assert outcome.result is DeliveryResult.RETRY
        assert "every user" in outcome.detail


def test_a_secret_that_can_not_be_read_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the secret can't be read: No such file"):
        webhook(url="http://127.0.0.1:1/", secret_file=str(tmp_path / "nope"))
    with pytest.raises(ConfigError, match="holds no certificate"):
        webhook(url="https://127.0.0.1:1/", ca_file=str(secret_file(tmp_path / "ca", "x")))


def test_a_digest_holds_its_parts() -> None:
    parts = (a_notification(), a_notification(id="beef", run="other"))
    with receiving() as server:
        webhook(url=server.url).send(a_notification(id="d1", parts=parts))
    document = json.loads(server.sent[0].body)
    assert document["id"] == "d1"
    assert [part["id"] for part in document["parts"]] == ["f00d", "beef"]


def test_names_are_unique_and_hold_no_secret() -> None:
    listed = [
        {"type": "webhook", "url": "http://me:geheim@h:1/a"},
        {"type": "webhook", "url": "http://h:1/b?geheim"},
        {"type": "webhook", "name": "mine", "url": "http://h:1"},
    ]
    sinks = converted(Settings, {"sinks": listed}).sinks
    names = [routed.receiver.name for routed in build(sinks, ReceiverContext(clock=lambda: NOW))]
    assert names == ["webhook:h:1", "webhook:h:1#2", "mine"]


def test_a_failing_receiver_is_an_outcome() -> None:
    with receiving(Answer(500)) as server:
        assert webhook(url=server.url).send(a_notification()).result is DeliveryResult.RETRY
