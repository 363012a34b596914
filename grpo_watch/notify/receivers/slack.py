"""Turns notifications into Slack messages: blocks within Slack's limits, without mentions or foreign links."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from grpo_watch.notify.message_text import (
    evidence_line,
    explained,
    headline,
    listed,
    ranked,
    trends,
)
from grpo_watch.notify.receivers.http import HttpReceiver
from grpo_watch.report.words import say
from grpo_watch.safe_text import clean
from grpo_watch.store.messages import RESOLVED, Notification

PACE_SECONDS = 1.0
"""Slack takes one message per second and webhook, and answers 429 to more."""
MAX_TEXT = 3_000
"""Most characters of one section's text; Slack refuses the whole message above."""
SHOWN_PARTS, ROOM = 20, 30_000
"""Most alerts of a digest that are listed, unless more are critical, and bytes for all of them; the rest is counted.
Slack takes 50 blocks of ``MAX_TEXT``."""
_COLOURS: Mapping[str, str] = {"critical": "#c0392b", "warning": "#d68910", "info": "#5d6d7e"}
_GOOD = "#1e8449"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""Characters that Slack's documentation requires to be escaped: without ``<`` no text can contain ``<!channel>`` or a
link."""


class SlackReceiver(HttpReceiver):
    """One incoming webhook."""

    chat = True
    pace = PACE_SECONDS

    @staticmethod
    def payload(notification: Notification) -> dict[str, Any]:
        """The body for incoming webhooks; phones show ``text``."""
        blocks = _digest(notification) if notification.parts else _single(notification)
        worst = ranked(notification.parts or (notification,))[0].severity
        colour = _GOOD if notification.status == RESOLVED else _COLOURS.get(worst, _COLOURS["info"])
        return {"text": escaped(headline(notification)), "attachments": [{"color": colour, "blocks": blocks}]}


receiver = SlackReceiver


def escaped(text: str, limit: int = MAX_TEXT) -> str:
    """Text that Slack shows verbatim, at most ``limit`` characters after escaping; no escape is cut in two."""
    bounded = clean(text, limit)
    whole = bounded.translate(_ESCAPES)
    if len(whole) < limit:
        return whole
    shown: list[str] = []
    length = 0
    for piece in (char.translate(_ESCAPES) for char in bounded):
        length += len(piece)
        if length >= limit:
            break
        shown.append(piece)
    return "".join(shown) + "…"


def _single(notification: Notification) -> list[dict[str, Any]]:
    found = [f"*{escaped(headline(notification), 200)}*", *(escaped(line, 700) for line in explained(notification))]
    blocks = [_section("\n".join(found))]
    details = [evidence_line(notification, 700), *trends(notification)]
    if any(details):
        blocks.append(_section("\n".join(escaped(line, 700) for line in details if line)))
    say_so = partial(say, notification.language)
    links = [_link(notification.page, say_so("status page")), _link(notification.runbook, say_so("runbook"))]
    context = [*(f"{name}={value}" for name, value in sorted(notification.labels.items()))]
    foot = [*filter(None, links), escaped(" · ".join(context), 500)]
    return [*blocks, *([_context(" · ".join(filter(None, foot)))] if any(foot) else [])]


def _digest(notification: Notification) -> list[dict[str, Any]]:
    """A header, and one line per alert, in as many sections as needed."""
    lines = listed(notification.parts, escaped, most=SHOWN_PARTS, room=ROOM, lengths=(300, 60, 0), mark="• ")
    texts = [""]
    for line in lines:
        joined = f"{texts[-1]}\n{line}" if texts[-1] else line
        texts = [*texts[:-1], joined] if len(joined) < MAX_TEXT else [*texts, line]
    foot = _link(notification.page, say(notification.language, "status page"))
    head = _section(f"*{escaped(headline(notification), 200)}*")
    return [head, *map(_section, texts), *([_context(foot)] if foot else [])]


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:MAX_TEXT], "verbatim": True}}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text[:MAX_TEXT], "verbatim": True}]}


def _link(url: str, name: str) -> str:
    """A link of ours, or its text if it is not HTTP; an address that could break the link syntax is not shown."""
    if not url.startswith(("http://", "https://")):
        return f"{name}: {escaped(url, 300)}" if url else ""
    return "" if set(url) & set("<>|\n ") else f"<{url.replace('&', '&amp;')}|{name}>"
