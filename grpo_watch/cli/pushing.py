"""Turns settings into what is pushed: the desk that takes messages, and the receivers that get them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from queue import SimpleQueue

from grpo_watch.config.schema import Mute, Settings
from grpo_watch.core.records import RunEvent
from grpo_watch.runtime.daemon import Daemon
from grpo_watch.runtime.delivery.courier import Around, Courier
from grpo_watch.runtime.delivery.desk import Desk, Wishes
from grpo_watch.runtime.receivers import Around as Given
from grpo_watch.runtime.receivers import build
from grpo_watch.sinks.base import Standing
from grpo_watch.sinks.route import Muted, Routed


@dataclass(frozen=True, slots=True)
class Pushing:
    """The desk of a daemon and its receivers, in the order of the settings."""

    desk: Desk
    routed: Sequence[Routed]

    def couriers(self, daemon: Daemon, ring: Callable[[], None]) -> list[Courier]:
        """A courier for each receiver; ``ring`` wakes the engine."""
        around = Around(daemon.picture, time.time, time.monotonic, random.random, ring)
        pairs = zip(self.desk.outboxes, self.routed, strict=True)
        return [Courier(outbox, routed.receiver, around) for outbox, routed in pairs]


def pushing(settings: Callable[[], Settings], page: str, instance: str, daemon: Callable[[], Daemon | None]) -> Pushing:
    """What is pushed under these settings.

    Args:
        settings: those in force; mutes and the backlog's are asked again each time.
        page: address of the status page.
        instance: names this watcher where several push to one place.
        daemon: the daemon, once there is one.

    Raises:
        ConfigError: a receiver can't be made (a secret that can't be read, a missing library).
    """
    said: SimpleQueue[tuple[str, RunEvent]] = SimpleQueue()

    def late() -> float | None:
        running = daemon()
        return running.late() if running else None

    def standing(run: str) -> Standing | None:
        running = daemon()
        return running.standing(run) if running else None

    given = Given(time.time, instance, late, standing, lambda run, event: said.put((run, event)))
    routed = build(settings().sinks, given)
    wishes = Wishes(
        mutes=lambda: muted(settings().mute),
        backlog=lambda: settings().notify_backlog,
        page=page,
        runbook=lambda: settings().runbook_url,
    )
    return Pushing(Desk(routed, wishes, random.random, said), routed)


def muted(mutes: Sequence[Mute]) -> list[Muted]:
    """The mutes of the settings; a day lasts until its end, a time without a zone is the machine's own."""
    return [Muted(mute.run, mute.rule, _end(mute.until)) for mute in mutes]


def _end(until: datetime | date | None) -> float | None:
    if until is None:
        return None
    if isinstance(until, datetime):
        return until.timestamp()
    return (datetime(until.year, until.month, until.day).astimezone() + timedelta(days=1)).timestamp()
