"""Robots of Feishu, DingTalk and WeCom, against servers that check signatures as the services document it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext, build
from grpo_watch.store.messages import RESOLVED
from tests.support.receiving import Answer, a_notification, receiving, secret_file

NOW = 1_764_000_000.25
SECRET = "SEC1a2b3c"  # noqa: S105  of this test
MENTIONS = '<at user_id="all">x</at> @all <@everyone> [here](http://evil.example) `x` **b**'


def robot(kind: str, url: str, folder: Path, *, signed: bool = True) -> Receiver:
    """The receiver of a robot at this address."""
    given = {"type": kind, "webhook_url_file": str(secret_file(folder / "url", f"{url}/hook?access_token=T1\n"))}
    if signed and kind != "wecom":
        given["secret_file"] = str(secret_file(folder / "secret", f"{SECRET}\n"))
    (routed,) = build(converted(Settings, {"sinks": [given]}).sinks, ReceiverContext(lambda: NOW))
    assert routed.route.digest, "many that wait become one"
    return routed.receiver


def sent(kind: str, folder: Path, *, signed: bool = True, **notification: object) -> tuple[str, dict[str, object]]:
    """The path with its query, and the body, that a robot is asked with."""
    with receiving() as service:
        receiver = robot(kind, service.url, folder, signed=signed)
        assert receiver.send(a_notification(**notification)).result is DeliveryResult.DELIVERED
        receiver.close()
    (request,) = service.sent
    return request.path, json.loads(request.body)


def test_feishus_card_is_signed_in_the_body(tmp_path: Path) -> None:
    """The key is ``TIME\\nSECRET``, of nothing: what Feishu's own samples compute."""
    path, body = sent("feishu", tmp_path, severity="critical", page="http://watch.example/")
    assert path == "/hook?access_token=T1"
    assert body["timestamp"] == "1764000000"
    expected = hmac.new(f"1764000000\n{SECRET}".encode(), b"", hashlib.sha256).digest()
    assert base64.b64decode(str(body["sign"])) == expected
    card = body["card"]
    assert card["header"]["template"] == "red"  # type: ignore[index]
    assert card["elements"][-1]["actions"][0]["url"] == "http://watch.example/"  # type: ignore[index]


def test_dingtalks_request_is_signed_in_its_address(tmp_path: Path) -> None:
    path, body = sent("dingtalk", tmp_path)
    query = parse_qs(urlsplit(path).query)
    expected = hmac.new(SECRET.encode(), f"1764000000250\n{SECRET}".encode(), hashlib.sha256).digest()
    assert (query["access_token"], query["timestamp"]) == (["T1"], ["1764000000250"])
    assert base64.b64decode(query["sign"][0]) == expected
    assert body["msgtype"] == "markdown"


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
def test_a_robot_without_a_secret_gets_no_signature(kind: str, tmp_path: Path) -> None:
    path, body = sent(kind, tmp_path, signed=False)
    assert path == "/hook?access_token=T1"
    assert "sign" not in body


def test_what_is_over_is_green(tmp_path: Path) -> None:
    _, body = sent("feishu", tmp_path, severity="critical", status=RESOLVED)
    assert body["card"]["header"]["template"] == "green"  # type: ignore[index]


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
def test_nobody_is_mentioned_and_no_link_hides_where_it_leads(kind: str, tmp_path: Path) -> None:
    _, body = sent(kind, tmp_path, run=MENTIONS, message=MENTIONS, hint=MENTIONS)
    text = json.dumps(body, ensure_ascii=False)
    assert not any(mark in text for mark in ("<at", "@all", "<@", "]("))


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
def test_a_refusal_with_status_200_is_tried_again(kind: str, tmp_path: Path) -> None:
    """Such as a wrong signature; 0 is success, whatever the field is called."""
    wrong = {"feishu": {"code": 19021, "msg": "sign match fail"}}.get(kind, {"errcode": 310000, "errmsg": SECRET})
    right = {"feishu": {"StatusCode": 0, "code": 0}}.get(kind, {"errcode": 0, "errmsg": "ok"})
    with receiving() as service:
        receiver = robot(kind, service.url, tmp_path)
        service.answers = [Answer(body=json.dumps(wrong).encode()), Answer(body=json.dumps(right).encode())]
        refused, taken = receiver.send(a_notification()), receiver.send(a_notification())
        receiver.close()
    assert refused.result is DeliveryResult.RETRY
    assert refused.detail == f"HTTP 200 error {next(iter(wrong.values()))}"
    assert taken.result is DeliveryResult.DELIVERED
