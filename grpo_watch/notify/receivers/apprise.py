"""Hands notifications to apprise, which supports over a hundred services: DingTalk, Feishu, WeCom, Discord, email.

DingTalk, WeCom, Feishu and Lark refuse with status 200 and an error code in the body, which apprise takes for success.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from grpo_watch.config.sinks import AppriseSink
from grpo_watch.errors import ConfigError
from grpo_watch.notify.message_text import details, evidence_line, explained, headline, listed, sentence, trends
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, ReceiverContext
from grpo_watch.notify.receivers.apprise_process import (
    AppriseMessage,
    AppriseProcess,
    AppriseResult,
    keep_quiet,
    service_of,
)
from grpo_watch.notify.receivers.http import ACCEPTED, FIXABLE_TRIES, code_of, outcome_of, seconds_of
from grpo_watch.report.words import say
from grpo_watch.safe_text import clean
from grpo_watch.store.messages import RESOLVED, Notification

MAX_TITLE, MAX_BODY = 320, 1_700
"""Bytes: Discord takes 2,000 characters, WeCom's robots 2,048 bytes of text with the title."""
SHOWN_PARTS, ROOM = 10, 1_350
"""Alerts of a digest that are listed, and all critical ones within so many bytes; an address follows."""
CODES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dingtalk": ("errcode",),
        "wecombot": ("errcode",),
        "feishu": ("code", "StatusCode"),
        "lark": ("code", "StatusCode"),
    }
)
"""Where a service (by the scheme of its address) gives its own error code; 0 is success. Codes say that the robot is
unknown, the keyword or signature is wrong, the sender too fast: what passes, or what somebody fixes."""
PACE_SECONDS = 1.0
PAGERDUTY = "apprise pages again when an alert resolves; use `type: pagerduty` with `routing_key_file`"
INCIDENTS = frozenset(
    {
        "betterstack",
        "goalert",
        "goalerts",
        "incidentio",
        "jira",
        "opsgenie",
        "pagertree",
        "signl4",
        "spike",
        "splunk",
        "squadcast",
        "victorops",
    }
)
"""Services, by the scheme of their address, whose incidents apprise opens and can't resolve: it knows an incident by
its title, in its process's memory, or by one name for all."""
UNRESOLVED = "apprise can't resolve the incidents that it opens there; use `type: alertmanager` or `type: webhook`"


class AppriseReceiver(Receiver):
    """One service.

    Args:
        name: what metrics call it.
        url: gives apprise's address of the service; raises ``ConfigError``.
        clock: Unix seconds.

    Raises:
        ConfigError: apprise is not installed, the URL is unsupported, or has no way to resolve what it opens.
    """

    chat = True
    pace = PACE_SECONDS

    def __init__(self, name: str, url: Callable[[], str], clock: Callable[[], float]) -> None:
        super().__init__(name)
        self._url, self._clock = url, clock
        self._process = AppriseProcess()
        keep_quiet()
        scheme = url().partition(":")[0].lower()
        if scheme == "pagerduty" or scheme in INCIDENTS:
            raise ConfigError(UNRESOLVED if scheme in INCIDENTS else PAGERDUTY)
        service_of(url())

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Send one message; apprise says whether it thinks that the service took it, the answer says why it did not."""
        try:
            url = self._url()
        except ConfigError as problem:
            return DeliveryOutcome(DeliveryResult.RETRY, str(problem))
        message = AppriseMessage(url, title_of(notification), body_of(notification), _kind(notification))
        result = self._process.post(message)
        if result.problem:
            return DeliveryOutcome(DeliveryResult.RETRY, result.problem)
        scheme = url.partition(":")[0].lower()
        return judged(scheme, result, self._clock())

    def close(self) -> None:
        """End the process that sends."""
        self._process.close()


def receiver(sink: AppriseSink, name: str, context: ReceiverContext) -> AppriseReceiver:
    """The receiver of a sink."""
    return AppriseReceiver(name, sink.url_file.read, context.clock)


def judged(scheme: str, result: AppriseResult, now: float) -> DeliveryOutcome:
    """What became of a message.

    Args:
        scheme: of the service's address.
        result: what apprise thinks, and what the service answered.
        now: Unix seconds, for a ``Retry-After`` that is a date.
    """
    answer = result.answer
    if answer is not None and answer.status not in ACCEPTED:
        return outcome_of(answer.status, seconds_of(answer.retry_after, now))
    code = 0 if answer is None or scheme not in CODES else code_of(answer.body, CODES[scheme])
    if code:
        return DeliveryOutcome(DeliveryResult.RETRY, f"the service answers error {code}", most_tries=FIXABLE_TRIES)
    if result.taken:
        return DeliveryOutcome(DeliveryResult.DELIVERED, "taken")
    if result.recorded and answer is None:
        return DeliveryOutcome(DeliveryResult.RETRY, "the service was not reached")
    return DeliveryOutcome(DeliveryResult.RETRY, "the service did not take the message", most_tries=FIXABLE_TRIES)


def title_of(notification: Notification) -> str:
    """The headline, at most ``MAX_TITLE`` bytes: a run's name may be long, and each ``@`` in it takes four."""
    return _bounded(_harmless(headline(notification)), MAX_TITLE)


def body_of(notification: Notification) -> str:
    """The text of a message, at most ``MAX_BODY`` bytes; nobody is mentioned by what a completion says."""
    if notification.parts:
        lines = listed(notification.parts, _line, most=SHOWN_PARTS, room=ROOM, lengths=(200, 60, 0))
    else:
        lines = [clean(line, 500) for line in explained(notification)]
        lines += [evidence_line(notification, 400), *trends(notification)]
    lines += [
        clean(notification.page, 300),
        clean(f"{say(notification.language, 'Runbook')}: {notification.runbook}", 300) if notification.runbook else "",
    ]
    return _bounded(_harmless("\n".join(line for line in lines if line)), MAX_BODY)


def _line(part: Notification, length: int) -> str:
    return f"{details(part)}: {clean(part.headline or sentence(part), length)}" if length else details(part)


def _harmless(text: str) -> str:
    """Nobody is mentioned (``@all``, Feishu's ``<at …>``) and no link hides where it leads: what begins one is cut."""
    return text.replace("@", "@\u2060").replace("<", "<\u2060").replace("](", "]\u2060(")


def _bounded(text: str, size: int) -> str:
    """The text in at most this many bytes, no character cut in two."""
    written = text.encode("utf-8", "replace")
    return text if len(written) <= size else written[: size - 3].decode("utf-8", "ignore") + "…"


def _kind(notification: Notification) -> str:
    """Success, failure or warning, which services show as colours."""
    if notification.status == RESOLVED:
        return "success"
    return {"critical": "failure", "warning": "warning"}.get(notification.severity, "info")
