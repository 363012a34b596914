"""Hands notifications to apprise, which knows over a hundred services: DingTalk, Feishu, WeCom, Discord, email."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from grpo_watch.errors import ConfigError
from grpo_watch.sinks.apprise_answers import Answer, ear_of, judged
from grpo_watch.sinks.base import Picture
from grpo_watch.sinks.digests import listed
from grpo_watch.sinks.notification import RESOLVED, Notification, Outcome, Result
from grpo_watch.sinks.text import clean, evidence_line, headline, trends

MAX_BODY = 1_700
"""Bytes: Discord takes 2,000 characters, WeCom's robots 2,048 bytes of text with the title."""
SHOWN_PARTS, ROOM = 10, 1_350
"""Alerts of a digest that are listed, and all critical ones within so many bytes; an address follows."""
PACE_SECONDS = 1.0
INSTALL = "apprise is not installed: pip install 'grpo-watch[apprise]'"


class AppriseReceiver:
    """One service.

    Args:
        name: what metrics call it.
        url: gives apprise's address of the service; raises ``ConfigError``.
        clock: Unix seconds.

    Raises:
        ConfigError: apprise is not installed, or knows no service of this address.
    """

    pace = PACE_SECONDS
    refresh_every: float | None = None

    def __init__(self, name: str, url: Callable[[], str], clock: Callable[[], float]) -> None:
        self.name, self._url, self._clock = name, url, clock
        _keep_quiet()
        _service(url())

    def send(self, notification: Notification) -> Outcome:
        """Send one message; apprise says whether it thinks that the service took it, the answer says why it did not."""
        try:
            url = self._url()
            service = _service(url)
            ear = ear_of(service[0])
            with nullcontext(list[Answer]()) if ear is None else ear.listening() as heard:
                taken = service.notify(title=headline(notification), body=body_of(notification), **_kind(notification))
        except ConfigError as problem:
            return Outcome(Result.RETRY, str(problem))
        except Exception as problem:  # noqa: BLE001  a plugin's mistake must not end the thread, nor its text be told
            return Outcome(Result.RETRY, f"apprise failed ({type(problem).__name__})")
        scheme, answer = url.partition(":")[0].lower(), heard[-1] if heard else None
        return judged(scheme, answer, self._clock(), taken=bool(taken), audible=ear is not None)

    def refresh(self, firing: Sequence[Notification], picture: Picture, now: float) -> Outcome:  # noqa: ARG002
        """Nothing: each message is sent once."""
        return Outcome(Result.DELIVERED, "nothing to refresh")

    def close(self) -> None:
        """Nothing is held."""


def body_of(told: Notification) -> str:
    """The text of a message, at most ``MAX_BODY`` bytes; nobody is mentioned by what a completion says."""
    if told.parts:
        lines = listed(told.parts, _line, most=SHOWN_PARTS, room=ROOM, lengths=(200, 60, 0))
    else:
        lines = [clean(told.message or told.summary, 500)]
        if told.status != RESOLVED:
            lines += [f"Likely: {clean(told.cause, 300)}"] if told.cause else []
            lines += [f"What to do: {clean(told.hint, 400)}"] if told.hint else []
        lines += [evidence_line(told.evidence, 400), *trends(told)]
    lines += [clean(told.page, 300), clean(f"Runbook: {told.runbook}", 300) if told.runbook else ""]
    text = "\n".join(line for line in lines if line).replace("@", "@\u2060")
    written = text.encode("utf-8", "replace")
    return text if len(written) <= MAX_BODY else written[: MAX_BODY - 3].decode("utf-8", "ignore") + "…"


def _line(part: Notification, length: int) -> str:
    return f"{headline(part)}: {clean(part.summary, length)}" if length else headline(part)


def _kind(told: Notification) -> dict[str, Any]:
    """Success, failure or warning, which services show as colours; the text is text, and no markup."""
    import apprise  # noqa: PLC0415  an extra

    kinds = apprise.NotifyType
    if told.status == RESOLVED:
        kind = kinds.SUCCESS
    else:
        kind = {"critical": kinds.FAILURE, "warning": kinds.WARNING}.get(told.severity, kinds.INFO)
    return {"notify_type": kind, "body_format": apprise.NotifyFormat.TEXT}


def _service(url: str) -> Any:
    """An apprise object with one service.

    Raises:
        ConfigError: apprise is not installed, or knows no service of this address.
    """
    try:
        import apprise  # noqa: PLC0415  an extra, and slow to import
    except ImportError:
        raise ConfigError(INSTALL) from None
    asset = apprise.AppriseAsset(app_id="grpo-watch", secure_logging=True, async_mode=False, http_redirects=False)
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise ConfigError("apprise knows no service of this address, or something in it is missing")
    return service


def _keep_quiet() -> None:
    """Its log lines, and those of the HTTP client under it, hold addresses, which are secrets."""
    for name in ("apprise", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
