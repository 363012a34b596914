"""The real apprise client against servers that play the services, over TLS, under the services' own addresses."""

from __future__ import annotations

import email
import json
import logging
import re
import sys
from collections.abc import Iterator
from email import policy
from pathlib import Path

import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.errors import ConfigError
from grpo_watch.extras import install
from grpo_watch.notify.message_text import MAX_BODY, body_of, title_of
from grpo_watch.notify.receiver import DeliveryResult, Receiver, ReceiverContext, build
from grpo_watch.notify.receivers import apprise
from grpo_watch.notify.receivers.apprise import AppriseMessage, posted
from tests.support.receiving import Answer, Receiving, a_notification, secret_file
from tests.support.services import Services, internet, mail_server

pytestmark = pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # imported by apprise itself

SECRET = "geheim7f3a"  # noqa: S105  a test's
OK = json.dumps({"errcode": 0, "errmsg": "ok", "code": 0, "StatusCode": 0, "status": "success"}).encode()

DISCORD = f"discord://4174296324/{SECRET}"
SERVICES = {
    DISCORD: ("discord.com", f"/api/webhooks/4174296324/{SECRET}"),
    f"workflows://prod-1.westeurope.logic.azure.com:443/643e69f83c8944438d68119179a10a64/{SECRET}": (
        "prod-1.westeurope.logic.azure.com",
        "/workflows/643e69f83c8944438d68119179a10a64/triggers/manual/paths/invoke",
    ),
}
"""Addresses as docs/notifications.md shows them, and where apprise then asks."""
TAKEN = {
    "discord.com": Answer(204, body=b""),
    "prod-1.westeurope.logic.azure.com": Answer(202, body=b""),
}
"""How services answer that do so with another status than 200."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Everything that is asked of the internet is answered on this machine."""
    with internet(tmp_path) as (proxy, ca_file, hosts):
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca_file))
        yield hosts


class Here:
    """Sends in this process, which starts sooner."""

    def post(self, letter: AppriseMessage) -> str:
        return posted(letter)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise, "AppriseProcess", Here)


def receiver(tmp_path: Path, url: str) -> Receiver:
    file = secret_file(tmp_path / "url", url)
    (routed,) = build(
        converted(Settings, {"sinks": [{"type": "apprise", "url_file": str(file)}]}).sinks,
        ReceiverContext(clock=lambda: 0.0),
    )
    assert routed.route.digest
    return routed.receiver


@pytest.mark.parametrize("url", SERVICES, ids=lambda url: url.partition(":")[0])
def test_the_service_gets_the_message(
    url: str, world: Services, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Where it listens, with the run, the rule and the fix; mentions are defused; a refusal is tried again."""
    caplog.set_level(logging.DEBUG)
    host, path = SERVICES[url]
    answers = [Answer(204 if host == "discord.com" else 202 if "logic" in host else 200, body=OK)]
    answers[0].body = b"" if answers[0].status == 204 else OK
    world[host] = Receiving([*answers, Answer(500, body=b"{}")])
    sink = receiver(tmp_path, url)
    outcome = sink.send(a_notification(message="KL is 0, says @everyone <!channel> \x1b[31m"))
    assert outcome.result is DeliveryResult.DELIVERED
    sent = world[host].sent[0]
    assert sent.path.startswith(path)
    text = json.dumps(json.loads(sent.body), ensure_ascii=False).replace("\\", "")  # Teams' Markdown has many
    for word in ("kl-stuck-at-zero", "v0-run", "KL is 0", "Stop the run."):
        assert word in text
    assert "@everyone" not in text
    assert "\x1b" not in text
    assert "u001b" not in text
    assert "x1b[31m" in text
    failed = sink.send(a_notification())
    assert failed.result is DeliveryResult.RETRY
    said = capfd.readouterr()
    assert SECRET not in repr(outcome) + repr(failed) + sink.name + said.out + said.err + caplog.text


@pytest.mark.parametrize("status", [400, 404, 500])
def test_what_is_not_taken_is_tried_again(status: int, world: Services, tmp_path: Path) -> None:
    """apprise does not say whether trying again helps."""
    world["discord.com"] = Receiving([Answer(status), Answer(204, body=b"")])
    sink = receiver(tmp_path, DISCORD)
    outcome = sink.send(a_notification())
    assert (outcome.result, outcome.most_tries) == (DeliveryResult.RETRY, None)
    assert outcome.detail == "the service did not take the message, or was not reached"
    assert sink.send(a_notification()).result is DeliveryResult.DELIVERED


def test_a_redirect_is_not_followed(world: Services, tmp_path: Path) -> None:
    world["discord.com"] = Receiving([Answer(302, {"Location": "https://elsewhere.example/x"})])
    assert receiver(tmp_path, DISCORD).send(a_notification()).result is DeliveryResult.RETRY
    assert list(world) == ["discord.com"]


def test_an_untrusted_certificate(world: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    outcome = receiver(tmp_path, DISCORD).send(a_notification())
    assert (outcome.result, outcome.detail) == (
        DeliveryResult.RETRY,
        "the service did not take the message, or was not reached",
    )
    assert world == {}


def test_mail(tmp_path: Path) -> None:
    with mail_server() as (port, taken):
        url = f"mailto://127.0.0.1:{port}?from=watch@example.org&to=team@example.org&mode=insecure"
        assert receiver(tmp_path, url).send(a_notification()).result is DeliveryResult.DELIVERED
    (message,) = (email.message_from_string(text, policy=policy.default) for text in taken)
    assert message["subject"] == "Not learning since step 2 (8 steps) · v0-run"
    assert "team@example.org" in message["to"]
    body = message.get_body(("plain", "html"))
    assert body is not None
    assert "Stop the run." in body.get_content()
    assert receiver(tmp_path, url).send(a_notification()).result is DeliveryResult.RETRY


def test_mistakes_are_reported_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unsupported or incomplete") as unknown:
        receiver(tmp_path, f"nonsense://{SECRET}")
    assert SECRET not in str(unknown.value)
    with pytest.raises(ConfigError, match="type: pagerduty"):
        receiver(tmp_path, f"pagerduty://{SECRET}@apikey7")
    for robot, own in (("dingtalk", "dingtalk"), ("feishu", "feishu"), ("lark", "feishu"), ("wecombot", "wecom")):
        with pytest.raises(ConfigError, match=f"use `type: {own}`"):
            receiver(tmp_path, f"{robot}://{SECRET}")
    for incidents in (f"opsgenie://{SECRET}", f"victorops://routing@{SECRET}"):
        with pytest.raises(ConfigError, match="can't resolve the incidents") as unresolved:
            receiver(tmp_path, incidents)
        assert SECRET not in str(unresolved.value)
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError, match=re.escape(f"apprise is not installed: {install('apprise')}")):
        receiver(tmp_path, DISCORD)


WECOM = f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={SECRET}0123456789"
LARK = f"https://open.larksuite.com/open-apis/bot/v2/hook/{SECRET}0123456789"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (WECOM, "use `type: wecom`"),
        (LARK, "use `type: feishu`"),
        (f"{DISCORD}, wecombot://{SECRET}0123456789", "use `type: wecom`"),
        (f"https://api.spike.sh/v1/alerts/{SECRET}1234567890abcdef123456", "can't resolve the incidents"),
        (f"https://oapi.dingtalk.com/robot/send?access_token={SECRET}", "unsupported or incomplete"),
        (f"https://open.feishu.cn/open-apis/bot/v2/hook/{SECRET}", "unsupported or incomplete"),
    ],
    ids=["wecom", "lark", "second", "spike", "dingtalk", "feishu"],
)
def test_a_refused_service_is_refused_by_its_own_address_too(
    address: str, problem: str, world: Services, tmp_path: Path
) -> None:
    """As its page shows it, at the start and where the file has it later; nothing is sent."""
    with pytest.raises(ConfigError, match=problem) as refused:
        receiver(tmp_path, address)
    sink = receiver(tmp_path, DISCORD)
    secret_file(tmp_path / "url", address)
    outcome = sink.send(a_notification())
    assert outcome.result is DeliveryResult.RETRY
    assert problem in outcome.detail
    assert SECRET not in str(refused.value) + outcome.detail
    assert world == {}


def test_every_refused_service_is_one_of_apprise() -> None:
    """Or a name that apprise changed would let it in."""
    from apprise import Apprise  # noqa: PLC0415  slow

    known = {name for service in Apprise().details()["schemas"] for name in _schemes(service)}
    assert {*apprise.OWN_TYPES, *apprise.INCIDENTS} <= known


def _schemes(service: dict[str, list[str] | None]) -> list[str]:
    return [*(service["protocols"] or ()), *(service["secure_protocols"] or ())]


def test_the_text_is_bounded_in_bytes() -> None:
    """WeCom counts bytes: three for each of these; a digest lists some alerts and counts the rest."""
    long = "训" * 10_000
    assert len(body_of(a_notification(message=long, hint=long, cause=long, evidence={"a": long})).encode()) <= MAX_BODY
    warnings = tuple(a_notification(id=str(n), run=f"run-{n}", severity="warning") for n in range(30))
    digest = body_of(a_notification(runbook="", parts=warnings))
    assert digest.count("kl-stuck-at-zero") == 10
    assert "… and 20 more: 20 warnings" in digest


@pytest.mark.parametrize("name", ["学" * 80, "@" * 180, "训" * 200, "😀" * 200, "a" * 255])
def test_title_and_text_together_fit_where_the_least_is_taken(name: str, world: Services, tmp_path: Path) -> None:
    """Discord's 2,000 characters, whatever the run is called."""
    world["discord.com"] = Receiving([Answer(204, body=b"")])
    long = "训" * 10_000
    alert = a_notification(run=name, message=long, hint=long, cause=long, evidence={"a": long})
    assert receiver(tmp_path, DISCORD).send(alert).result is DeliveryResult.DELIVERED
    assert b"kl-stuck-at-zero" in world["discord.com"].sent[0].body
    assert len(world["discord.com"].sent) == 1
    assert len(title_of(alert)) + 2 + MAX_BODY <= 2_000


def test_a_digest_names_its_critical_alerts_first() -> None:
    """As many as there is room for: summaries give way to names, and what has no room is counted."""
    warnings = tuple(
        a_notification(id=str(n), run=f"calm-{n}", severity="warning", summary="x" * 300) for n in range(30)
    )
    bad = tuple(a_notification(id=f"c{n}", run=f"bad-{n}", summary="x" * 300) for n in range(300))
    twelve = body_of(a_notification(parts=(*warnings, *bad[:12])))
    assert all(f"bad-{n} " in twelve for n in range(12))
    assert "… and 30 more: 30 warnings" in twelve
    many = body_of(a_notification(parts=(*warnings, *bad)))
    named = many.count("bad-")
    assert named > 20
    assert f"… and {330 - named} more: {300 - named} critical, 30 warnings" in many
    assert "http://127.0.0.1:9853/" in many
