"""Posts to the robots of Feishu, DingTalk and WeCom groups: signed where the robot asks for it, nobody mentioned.

Facts are of the services' own documentation of custom robots (read in November 2026): bodies, signatures, limits of
20 messages a minute (DingTalk, WeCom) and 100 (Feishu), and refusals as a 2xx answer with a code of their own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from grpo_watch.config.fields import SecretFile
from grpo_watch.config.sinks import RobotSink
from grpo_watch.errors import ConfigError
from grpo_watch.notify.message_text import ranked
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.apprise import body_of, title_of
from grpo_watch.notify.receivers.http import HttpAccess, HttpReceiver, address, authorities
from grpo_watch.report.words import say
from grpo_watch.store.messages import RESOLVED, Notification

TEMPLATES: Mapping[str, str] = {"critical": "red", "warning": "orange", "info": "grey"}
"""Colours of a card's head; green is for what is over."""


class GroupRobot(HttpReceiver, ABC):
    """One robot.

    Args:
        name, url, access, clock: as of every ``HttpReceiver``.
        secret: what requests are signed with; None: the robot asks for no signature.
    """

    chat = True
    coded = True
    pace: float = 3.0

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        secret: SecretFile | None,
        access: HttpAccess,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, url, access, clock)
        self._secret = secret

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Post one message."""
        try:
            secret = self._secret.read() if self._secret is not None else ""
        except ConfigError as problem:
            return DeliveryOutcome(DeliveryResult.RETRY, str(problem))
        body, query = self.request(notification, secret, self._clock())
        return self._post(body, query)

    @abstractmethod
    def request(self, notification: Notification, secret: str, now: float) -> tuple[dict[str, Any], str]:
        """The body, and what is added to the address; ``now`` is Unix seconds."""


class Feishu(GroupRobot):
    """A card with the severity's colour and a button to the page. Lark's robots take the same."""

    pace = 1.0

    def request(self, notification: Notification, secret: str, now: float) -> tuple[dict[str, Any], str]:
        """Signed in the body: the key is the time (seconds), a line feed and the secret; the text is empty."""
        severity = ranked(notification.parts or (notification,))[0].severity
        colour = "green" if notification.status == RESOLVED else TEMPLATES.get(severity, "grey")
        elements: list[dict[str, Any]] = [{"tag": "div", "text": _text(body_of(notification))}]
        if notification.page.startswith(("http://", "https://")):
            words = _text(say(notification.language, "status page"))
            button = {"tag": "button", "text": words, "url": notification.page, "type": "default"}
            elements.append({"tag": "action", "actions": [button]})
        card = {
            "config": {"wide_screen_mode": True},
            "header": {"title": _text(title_of(notification)), "template": colour},
            "elements": elements,
        }
        body = {"msg_type": "interactive", "card": card}
        if secret:
            stamp = str(int(now))
            body |= {"timestamp": stamp, "sign": _signature(f"{stamp}\n{secret}", "")}
        return body, ""


class DingTalk(GroupRobot):
    """A Markdown message."""

    def request(self, notification: Notification, secret: str, now: float) -> tuple[dict[str, Any], str]:
        """Signed in the address: the key is the secret; the text is the time (ms), a line feed and the secret."""
        title = title_of(notification)
        text = "\n\n".join([f"#### {title}", *body_of(notification).splitlines()])
        body = {"msgtype": "markdown", "markdown": {"title": title, "text": text}}
        if not secret:
            return body, ""
        stamp = str(int(now * 1_000))
        return body, urlencode({"timestamp": stamp, "sign": _signature(secret, f"{stamp}\n{secret}")})


class WeCom(GroupRobot):
    """A Markdown message; the key in the address is all that this robot asks for."""

    def request(self, notification: Notification, secret: str, now: float) -> tuple[dict[str, Any], str]:  # noqa: ARG002
        """Unsigned."""
        content = f"{title_of(notification)}\n{body_of(notification)}"
        return {"msgtype": "markdown", "markdown": {"content": content}}, ""


_KINDS: Mapping[str, type[GroupRobot]] = {"feishu": Feishu, "dingtalk": DingTalk, "wecom": WeCom}


def receiver(sink: RobotSink, name: str, context: ReceiverContext) -> GroupRobot:
    """The receiver of a sink, whose secret is read once now: a mistake shows at the start."""
    secret: SecretFile | None = getattr(sink, "secret_file", None)
    if secret is not None:
        secret.read()
    access = HttpAccess(ca_file=authorities(sink.ca_file))
    return _KINDS[sink.type](name, address(None, sink.webhook_url_file), secret, access, context.clock)


def _text(content: str) -> dict[str, str]:
    return {"tag": "plain_text", "content": content}


def _signature(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()
