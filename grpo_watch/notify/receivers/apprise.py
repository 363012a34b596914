"""Hands notifications to apprise, which supports over a hundred services: Discord, Teams, email.

It runs in its own process, the only way to end a request whose answer drips in. It only reports whether a service took
a message.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

from grpo_watch.children.child import Child, ChildLostError, bound_memory, follow_parent
from grpo_watch.config.schema import AppriseSink
from grpo_watch.errors import ConfigError
from grpo_watch.extras import install
from grpo_watch.notify.message_text import body_of, title_of
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, ReceiverContext
from grpo_watch.store.messages import RESOLVED, Notification

PACE_SECONDS = 1.0
START_SECONDS, TOTAL_SECONDS = 120.0, 9.0
"""Seconds for the process to load apprise and all its services, and for each message from then on."""
IDLE_SECONDS = 60.0
"""Seconds without a message after which the process ends; the next message starts one."""
OWN_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "pagerduty": "apprise pages again when an alert resolves; use `type: pagerduty` with `routing_key_file`",
        "dingtalk": "apprise takes its refusals for success; use `type: dingtalk` with `webhook_url_file`",
        "feishu": "apprise takes its refusals for success; use `type: feishu` with `webhook_url_file`",
        "lark": "apprise takes its refusals for success; use `type: feishu` with `webhook_url_file`",
        "wecombot": "apprise takes its refusals for success; use `type: wecom` with `webhook_url_file`",
    }
)
"""Services, by apprise's scheme, that have their own receiver type, with the reason to use that. The robots answer with
status 200 and an error code in the body."""
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
"""Services, by apprise's scheme, whose incidents apprise opens and can't resolve: it identifies an incident by its
title, in its process's memory, or by one name for all."""
UNRESOLVED = "apprise can't resolve the incidents that it opens there; use `type: alertmanager` or `type: webhook`"


@dataclass(frozen=True, slots=True)
class AppriseMessage:
    """A message and its destination; ``kind`` is apprise's name of a kind of message."""

    url: str
    title: str
    body: str
    kind: str


class AppriseReceiver(Receiver):
    """One service.

    Args:
        sink: the settings of the service.
        name: its name in metrics.
        context: access to the daemon.

    Raises:
        ConfigError: apprise is not installed, or the URL is unsupported, has its own receiver type, or is of a service
            whose incidents apprise can't resolve.
    """

    chat = True
    pace = PACE_SECONDS

    def __init__(self, sink: AppriseSink, name: str, context: ReceiverContext) -> None:  # noqa: ARG002
        super().__init__(name)
        self._url = sink.url_file.read
        self._process = AppriseProcess()
        keep_quiet()
        service_of(self._url())

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Send one message; every failure is retried, as apprise does not say why."""
        try:
            url = self._url()
        except ConfigError as problem:
            return DeliveryOutcome(DeliveryResult.RETRY, str(problem))
        message = AppriseMessage(url, title_of(notification), body_of(notification), _kind(notification))
        refusal = self._process.post(message)
        return DeliveryOutcome(DeliveryResult.RETRY if refusal else DeliveryResult.DELIVERED, refusal or "taken")

    def close(self) -> None:
        """End the sending process."""
        self._process.close()


receiver = AppriseReceiver


def _kind(notification: Notification) -> str:
    """Apprise's kind: success, failure or warning, which services show as colours."""
    if notification.status == RESOLVED:
        return "success"
    return {"critical": "failure", "warning": "warning"}.get(notification.severity, "info")


class AppriseProcess:
    """One process, started with the first message and killed when a message takes too long."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def post(self, message: AppriseMessage) -> str:
        """Send one message; returns why it was not taken, or an empty text. Bounded in time, never raises."""
        try:
            child = self._started()
            child.send(message)
            problem: str = child.receive(TOTAL_SECONDS)
        except TimeoutError:
            problem = "no answer in time"
        except ChildLostError as lost:
            problem = f"apprise's process was ended by {lost}"
        else:
            return problem
        self.close()
        return problem

    def close(self) -> None:
        """End the process at once."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.close()

    def _started(self) -> Child:
        """A process that is ready.

        Raises:
            ChildLostError: the process ended while starting.
            TimeoutError: it took too long.
        """
        if self._child is None or not self._child.alive:
            self.close()
            self._child = Child(serve, name="apprise")
            self._child.receive(START_SECONDS)
        return self._child


def serve(pipe: Connection) -> None:
    """Post incoming messages until none came for a while; ignores Ctrl-C, and ends with the daemon."""
    follow_parent()
    os.environ["NETRC"] = os.devnull  # the client would send a password of ~/.netrc to the service
    bound_memory()  # against an endless answer
    keep_quiet()
    with suppress(ConfigError):
        service_of("json://localhost")  # the first address loads every service, slowly: later calls are bounded in time
    pipe.send("ready")
    with suppress(EOFError, OSError):
        while pipe.poll(IDLE_SECONDS):
            pipe.send(posted(pipe.recv()))


def posted(message: AppriseMessage) -> str:
    """Send one message from this process; returns why it was not taken, without secrets, or an empty text."""
    from apprise import NotifyFormat, NotifyType  # noqa: PLC0415  an extra

    try:
        kind = NotifyType(message.kind)
        service = service_of(message.url)
        taken = service.notify(message.body, message.title, kind, body_format=NotifyFormat.TEXT)
    except ConfigError as problem:
        return str(problem)
    except Exception as problem:  # noqa: BLE001  a plugin's mistake must not end the process, nor its text leak
        return f"apprise failed ({type(problem).__name__})"
    return "" if taken else "the service did not take the message, or was not reached"


def service_of(url: str) -> Any:
    """An apprise object with one service.

    Raises:
        ConfigError: apprise is not installed, or the URL is unsupported, incomplete or of a refused service.
    """
    try:
        import apprise  # noqa: PLC0415  an extra, and slow to import
    except ImportError:
        raise ConfigError(f"apprise is not installed: {install('apprise')}") from None
    asset = apprise.AppriseAsset(app_id="grpo-watch", secure_logging=True, async_mode=False, http_redirects=False)
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise ConfigError("unsupported or incomplete apprise URL")
    for plugin in service:  # the address may be the service's own (https://…), and a file may hold several
        schemes = {*_names(plugin.protocol), *_names(plugin.secure_protocol)}
        for refused in schemes & (OWN_TYPES.keys() | INCIDENTS):
            raise ConfigError(OWN_TYPES.get(refused, UNRESOLVED))
    return service


def _names(schemes: str | Iterable[str] | None) -> Iterable[str]:
    return (schemes,) if isinstance(schemes, str) else schemes or ()


def keep_quiet() -> None:
    """Silence the loggers of apprise and its HTTP client: their lines hold addresses, which are secrets."""
    for name in ("apprise", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
