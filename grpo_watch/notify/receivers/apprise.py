"""Hands notifications to apprise, which supports over a hundred services: DingTalk, Feishu, WeCom, Discord, email.

DingTalk, WeCom, Feishu and Lark refuse with status 200 and an error code in the body, which apprise takes for success.
"""

from __future__ import annotations

from grpo_watch.config.sinks import AppriseSink
from grpo_watch.errors import ConfigError
from grpo_watch.notify.message_text import body_of, title_of
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, ReceiverContext
from grpo_watch.notify.receivers.apprise_process import (
    AppriseMessage,
    AppriseProcess,
    AppriseResult,
    keep_quiet,
    service_of,
)
from grpo_watch.notify.receivers.http import ACCEPTED, FIXABLE_TRIES, code_of, outcome_of, seconds_of
from grpo_watch.store.messages import RESOLVED, Notification

CODED = frozenset({"dingtalk", "feishu", "lark", "wecombot"})
"""Services, by the scheme of their address, that answer with an error code of their own; 0 is success. Codes say that
the robot is unknown, the keyword or signature is wrong, the sender too fast: what passes, or what somebody fixes."""
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
        sink: its settings.
        name: what metrics call it.
        context: what it needs of the daemon.

    Raises:
        ConfigError: apprise is not installed, the URL is unsupported, or has no way to resolve what it opens.
    """

    chat = True
    pace = PACE_SECONDS

    def __init__(self, sink: AppriseSink, name: str, context: ReceiverContext) -> None:
        super().__init__(name)
        self._url, self._clock = sink.url_file.read, context.clock
        self._process = AppriseProcess()
        keep_quiet()
        scheme = self._url().partition(":")[0].lower()
        if scheme == "pagerduty" or scheme in INCIDENTS:
            raise ConfigError(UNRESOLVED if scheme in INCIDENTS else PAGERDUTY)
        service_of(self._url())

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


receiver = AppriseReceiver


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
    code = 0 if answer is None or scheme not in CODED else code_of(answer.body)
    if code:
        return DeliveryOutcome(DeliveryResult.RETRY, f"the service answers error {code}", most_tries=FIXABLE_TRIES)
    if result.taken:
        return DeliveryOutcome(DeliveryResult.DELIVERED, "taken")
    if result.recorded and answer is None:
        return DeliveryOutcome(DeliveryResult.RETRY, "the service was not reached")
    return DeliveryOutcome(DeliveryResult.RETRY, "the service did not take the message", most_tries=FIXABLE_TRIES)


def _kind(notification: Notification) -> str:
    """Success, failure or warning, which services show as colours."""
    if notification.status == RESOLVED:
        return "success"
    return {"critical": "failure", "warning": "warning"}.get(notification.severity, "info")
