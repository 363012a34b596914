"""Posts to the robots of Feishu, DingTalk and WeCom groups: signed if the robot has a secret, without mentions.

Sources: the services' documentation of custom robots (read in November 2026): bodies, signatures, limits of
20 messages a minute (DingTalk, WeCom) and 100 (Feishu), and refusals as a 2xx answer with an error code in the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from grpo_watch.config.schema import RobotSink
from grpo_watch.notify.message_text import body_of, ranked, title_of
from grpo_watch.notify.receiver import ReceiverContext
from grpo_watch.notify.receivers.http import HttpReceiver, HttpRequest
from grpo_watch.report.words import say
from grpo_watch.store.messages import RESOLVED, Notification

TEMPLATES: Mapping[str, str] = {"critical": "red", "warning": "orange", "info": "grey"}
"""Colours of a card's header; green for resolved alerts."""


class GroupRobot(HttpReceiver):
    """One robot; unsigned unless a subclass signs."""

    chat = True
    coded = True
    pace: float = 3.0

    def request(self, notification: Notification) -> HttpRequest:
        """The request of one message, signed if there is a secret."""
        body = self.payload(notification)
        if self._secret is None:
            return HttpRequest.of(body)
        return HttpRequest.of(*self.signed(body, self._secret.read(), self._clock()))

    @staticmethod
    def payload(notification: Notification) -> dict[str, Any]:
        """The unsigned message."""
        raise NotImplementedError

    @staticmethod
    def signed(body: dict[str, Any], secret: str, now: float) -> tuple[dict[str, Any], str]:
        """The signed body, and a query for the address; ``now`` is Unix seconds."""
        raise NotImplementedError


class Feishu(GroupRobot):
    """A card with the severity's colour and a button to the page. Lark's robots take the same."""

    pace = 1.0

    @staticmethod
    def payload(notification: Notification) -> dict[str, Any]:
        """A card."""
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
        return {"msg_type": "interactive", "card": card}

    @staticmethod
    def signed(body: dict[str, Any], secret: str, now: float) -> tuple[dict[str, Any], str]:
        """Sign in the body: the key is the time (seconds), a line feed and the secret; the text is empty."""
        stamp = str(int(now))
        return {**body, "timestamp": stamp, "sign": _signature(f"{stamp}\n{secret}", "")}, ""


class DingTalk(GroupRobot):
    """A Markdown message."""

    @staticmethod
    def payload(notification: Notification) -> dict[str, Any]:
        """Lines that DingTalk's Markdown keeps apart."""
        title = title_of(notification)
        text = "\n\n".join([f"#### {title}", *body_of(notification).splitlines()])
        return {"msgtype": "markdown", "markdown": {"title": title, "text": text}}

    @staticmethod
    def signed(body: dict[str, Any], secret: str, now: float) -> tuple[dict[str, Any], str]:
        """Sign in the address: the key is the secret; the text is the time (ms), a line feed and the secret."""
        stamp = str(int(now * 1_000))
        return body, urlencode({"timestamp": stamp, "sign": _signature(secret, f"{stamp}\n{secret}")})


class WeCom(GroupRobot):
    """A Markdown message; the key in the address is the robot's only authentication."""

    @staticmethod
    def payload(notification: Notification) -> dict[str, Any]:
        """Title and text."""
        content = f"{title_of(notification)}\n{body_of(notification)}"
        return {"msgtype": "markdown", "markdown": {"content": content}}


_KINDS: Mapping[str, type[GroupRobot]] = {"feishu": Feishu, "dingtalk": DingTalk, "wecom": WeCom}


def receiver(sink: RobotSink, name: str, context: ReceiverContext) -> GroupRobot:
    """The robot of a sink."""
    return _KINDS[sink.type](sink, name, context)


def _text(content: str) -> dict[str, str]:
    return {"tag": "plain_text", "content": content}


def _signature(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()
