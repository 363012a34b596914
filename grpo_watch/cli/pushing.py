"""Turns settings into what is pushed: the desk that takes messages, and the receivers that get them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from queue import SimpleQueue

from grpo_watch.cli.current import Current
from grpo_watch.config.schema import Mute, Settings
from grpo_watch.config.sinks import Sink
from grpo_watch.core.records import RunEvent
from grpo_watch.runtime.daemon import Daemon
from grpo_watch.runtime.delivery.courier import Around
from grpo_watch.runtime.delivery.couriers import Couriers
from grpo_watch.runtime.delivery.desk import Desk, Wishes
from grpo_watch.runtime.receivers import Around as Given
from grpo_watch.runtime.receivers import build, names_of
from grpo_watch.sinks.base import Standing
from grpo_watch.sinks.route import Muted, Routed


class Pushing:
    """The desk of a daemon and its receivers.

    Args:
        current: the settings in force; mutes and the backlog's are asked again each time.
        page: address of the status page.
        instance: names this watcher where several push to one place.
        daemon: the daemon, once there is one.

    Raises:
        ConfigError: a receiver can't be made (a secret that can't be read, a missing library).
    """

    def __init__(self, current: Current, page: str, instance: str, daemon: Callable[[], Daemon | None]) -> None:
        said: SimpleQueue[tuple[str, RunEvent]] = SimpleQueue()

        def late() -> float | None:
            running = daemon()
            return running.late() if running else None

        def standing(run: str) -> Standing | None:
            running = daemon()
            return running.standing(run) if running else None

        self._given = Given(time.time, instance, late, standing, lambda run, event: said.put((run, event)))
        self._sinks, self._routed = self._made(current.settings.sinks)
        self._prepared: Sequence[Routed] | None = None
        current.prepare = self.prepare
        wishes = Wishes(
            mutes=lambda: muted(current.settings.mute),
            backlog=lambda: current.settings.notify_backlog,
            page=page,
            runbook=lambda: current.settings.runbook_url,
        )
        self.desk = Desk(list(self._routed.values()), wishes, random.random, said)

    def couriers(self, daemon: Daemon, ring: Callable[[], None]) -> Couriers:
        """The couriers of the receivers; ``ring`` wakes the engine."""
        return Couriers(self.desk, Around(daemon.picture, time.time, time.monotonic, random.random, ring))

    def prepare(self, fresh: Settings) -> None:
        """Make the receivers of other settings, all of them, so that a mistake in one leaves the old ones in force.

        One whose settings did not change stays as it is: its secrets are read for each request anyway.

        Raises:
            ConfigError: a receiver can't be made.
        """
        sinks, routed = self._made(fresh.sinks)
        same = {name for name, sink in sinks.items() if self._sinks.get(name) == sink}
        for name in same:
            routed[name].receiver.close()
            routed[name] = self._routed[name]
        if list(sinks.items()) != list(self._sinks.items()):
            self._prepared = list(routed.values())
        self._sinks, self._routed = sinks, routed

    def prepared(self) -> Sequence[Routed] | None:
        """The receivers that were prepared since this was last asked; None where they are as before."""
        prepared, self._prepared = self._prepared, None
        return prepared

    def _made(self, sinks: Sequence[Sink]) -> tuple[dict[str, Sink], dict[str, Routed]]:
        names = names_of(sinks)
        routed = build(sinks, self._given)
        return dict(zip(names, sinks, strict=True)), dict(zip(names, routed, strict=True))


def muted(mutes: Sequence[Mute]) -> list[Muted]:
    """The mutes of the settings; a day lasts until its end, a time without a zone is the machine's own."""
    return [Muted(mute.run, mute.rule, _end(mute.until)) for mute in mutes]


def _end(until: datetime | date | None) -> float | None:
    if until is None:
        return None
    if isinstance(until, datetime):
        return until.timestamp()
    return (datetime(until.year, until.month, until.day).astimezone() + timedelta(days=1)).timestamp()
