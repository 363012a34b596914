"""Robots of Feishu, DingTalk and WeCom, against servers that check time and signature as the services document it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext, build
from grpo_watch.store.messages import RESOLVED
from tests.support.receiving import Answer, Sent, a_notification, receiving, secret_file

NOW = 1_764_000_000.25
SECRET = "SEC1a2b3c"  # noqa: S105  of this test
MENTIONS = '<at user_id="all">x</at> @all <@everyone> [here](http://evil.example) `x` **b**'
REFUSAL: dict[str, dict[str, object]] = {
    "feishu": {"code": 19021, "msg": "sign match fail or timestamp is not within one hour from current time"},
    "dingtalk": {"errcode": 310000, "errmsg": f"sign not match: {SECRET}"},
    "wecom": {"errcode": 93000, "errmsg": "invalid webhook url"},
}
"""What the services say with status 200."""


def answered(body: dict[str, object]) -> Answer:
    return Answer(body=json.dumps(body).encode())


def group(kind: str, secret: str = SECRET) -> Callable[[Sent], Answer]:
    """A group's robot that takes what is signed with its secret, less than an hour ago (WeCom's asks for neither)."""

    def answer(request: Sent) -> Answer:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        given = json.loads(request.body) if kind == "feishu" else query
        stamp = given.get("timestamp", "0")
        signed = f"{stamp}\n{secret}".encode()
        key, text = (signed, b"") if kind == "feishu" else (secret.encode(), signed)
        right = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        seconds = int(stamp) / (1_000 if kind == "dingtalk" else 1)
        taken = given.get("sign") == right and abs(NOW - seconds) < 3_600
        if kind == "wecom" or not secret or taken:
            return answered({"StatusCode": 0, "code": 0} if kind == "feishu" else {"errcode": 0, "errmsg": "ok"})
        return answered(REFUSAL[kind])

    return answer


def robot(kind: str, url: str, folder: Path, *, secret: str = SECRET, now: float = NOW) -> Receiver:
    """The receiver of a robot at this address, on a machine whose clock says ``now``."""
    given = {"type": kind, "webhook_url_file": str(secret_file(folder / "url", f"{url}/hook?access_token=T1\n"))}
    if secret and kind != "wecom":
        given["secret_file"] = str(secret_file(folder / "secret", f"{secret}\n"))
    (routed,) = build(converted(Settings, {"sinks": [given]}).sinks, ReceiverContext(lambda: now))
    assert routed.route.digest, "many that wait become one"
    return routed.receiver


def sent(kind: str, folder: Path, *, secret: str = SECRET, **notification: object) -> tuple[str, dict[str, object]]:
    """The path with its query, and the body, that a robot is asked with."""
    with receiving(group(kind, secret)) as service:
        receiver = robot(kind, service.url, folder, secret=secret)
        assert receiver.send(a_notification(**notification)).result is DeliveryResult.DELIVERED
        receiver.close()
    (request,) = service.sent
    return request.path, json.loads(request.body)


def test_feishus_card_is_signed_in_the_body(tmp_path: Path) -> None:
    path, body = sent("feishu", tmp_path, severity="critical", page="http://watch.example/")
    assert path == "/hook?access_token=T1"
    assert body["timestamp"] == "1764000000"
    card = body["card"]
    assert card["header"]["template"] == "red"  # type: ignore[index]
    assert card["elements"][-1]["actions"][0]["url"] == "http://watch.example/"  # type: ignore[index]


def test_dingtalks_request_is_signed_in_its_address(tmp_path: Path) -> None:
    path, body = sent("dingtalk", tmp_path)
    query = parse_qs(urlsplit(path).query)
    assert (query["access_token"], query["timestamp"]) == (["T1"], ["1764000000250"])
    assert body["msgtype"] == "markdown"


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
def test_a_robot_without_a_secret_gets_no_signature(kind: str, tmp_path: Path) -> None:
    path, body = sent(kind, tmp_path, secret="")
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


@pytest.mark.parametrize("kind", ["feishu", "dingtalk"])
@pytest.mark.parametrize(
    "wrong",
    [{"secret": "another"}, {"secret": ""}, {"now": NOW - 3_601}, {"now": NOW + 3_601}],
    ids=["wrong secret", "no secret", "slow clock", "fast clock"],
)
def test_a_wrong_signature_or_time_is_refused(kind: str, wrong: dict[str, Any], tmp_path: Path) -> None:
    with receiving(group(kind)) as service:
        receiver = robot(kind, service.url, tmp_path, **wrong)
        refused = receiver.send(a_notification())
        receiver.close()
    code = next(iter(REFUSAL[kind].values()))
    assert (refused.result, refused.detail) == (DeliveryResult.RETRY, f"HTTP 200 error {code}")


@pytest.mark.parametrize("kind", REFUSAL)
def test_a_refusal_with_status_200_is_tried_again(kind: str, tmp_path: Path) -> None:
    """Such as a wrong signature; 0 is success, whatever the field is called."""
    with receiving(answered(REFUSAL[kind]), group(kind)) as service:
        receiver = robot(kind, service.url, tmp_path)
        refused, taken = receiver.send(a_notification()), receiver.send(a_notification())
        receiver.close()
    assert refused.result is DeliveryResult.RETRY
    assert refused.detail == f"HTTP 200 error {next(iter(REFUSAL[kind].values()))}"
    assert taken.result is DeliveryResult.DELIVERED
