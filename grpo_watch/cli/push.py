"""Builds the dispatcher and receivers from settings; ``push clean`` removes a watcher's groups from Pushgateways."""

from __future__ import annotations

import os
import random
import socket
import time
from argparse import Namespace
from collections.abc import Callable, Sequence

from grpo_watch.cli.config import SettingsInForce
from grpo_watch.cli.live_text import show
from grpo_watch.cli.tracker_servers import watched_paths
from grpo_watch.config.schema import PushgatewaySink, Settings, Sink
from grpo_watch.config.settings import default_state_dir, load_settings
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.errors import UsageError
from grpo_watch.notify.delivery_worker import DeliveryWorkers, WorkerContext
from grpo_watch.notify.receiver import ReceiverContext as Given
from grpo_watch.notify.receiver import RoutedReceiver, build, names_of
from grpo_watch.notify.receivers.http import HttpAccess
from grpo_watch.notify.receivers.metrics_text import group_url, remove

CLEANED, NOT_CLEANED = 0, 1


class PushSetup:
    """The dispatcher of a daemon and its receivers.

    Args:
        current: the settings in force; mutes and backlog settings are re-read every time.
        page: address of the status page in messages, or empty.
        instance: name of this watcher if several push to one place.
        daemon: returns the daemon, or None before it exists.

    Raises:
        ConfigError: a receiver can't be made (unreadable secret, missing library).
    """

    def __init__(self, current: SettingsInForce, page: str, instance: str, daemon: Callable[[], Daemon | None]) -> None:
        def late() -> float | None:
            running = daemon()
            return running.late() if running else None

        self._given = Given(time.time, instance, late)
        self._sinks, self._routed = self._made(current.settings.sinks)
        self._prepared: Sequence[RoutedReceiver] | None = None
        current.prepare = self.prepare
        routed = list(self._routed.values())
        self.dispatcher = NotificationDispatcher(routed, lambda: current.settings, page, random.random)

    def delivery_workers(self, daemon: Daemon, ring: Callable[[], None]) -> DeliveryWorkers:
        """The delivery workers of the receivers; ``ring`` wakes the engine."""
        return DeliveryWorkers(
            lambda: self.dispatcher.outboxes,
            WorkerContext(daemon.snapshot, time.time, time.monotonic, random.random, ring),
        )

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

    def prepared(self) -> Sequence[RoutedReceiver] | None:
        """The receivers that were prepared since this was last asked; None where they are as before."""
        prepared, self._prepared = self._prepared, None
        return prepared

    def _made(self, sinks: Sequence[Sink]) -> tuple[dict[str, Sink], dict[str, RoutedReceiver]]:
        names = names_of(sinks)
        routed = build(sinks, self._given)
        return dict(zip(names, sinks, strict=True)), dict(zip(names, routed, strict=True))


def clean_command(given: Namespace) -> int:
    """Remove the groups that an ended watcher left in its Pushgateways; returns 1 if one can't be removed.

    Raises:
        UsageError: a setting can't be used, no Pushgateway is configured, or the watched paths are unknown.
    """
    settings = load_settings({"state_dir": given.state_dir}, config=given.config).settings
    folder = settings.state_dir
    named = zip(names_of(settings.sinks), settings.sinks, strict=True)
    groups = [(name, sink, HttpAccess.of(sink)) for name, sink in named if isinstance(sink, PushgatewaySink)]
    if not groups:
        raise UsageError("no pushgateway sink configured")
    if folder is None and not all(sink.instance for _, sink, _ in groups):
        folder = default_state_dir(watched_paths(given.paths, settings), socket.gethostname(), os.environ)
    code = CLEANED
    for name, sink, access in groups:
        instance = sink.instance or (folder.name if folder else "")
        outcome = remove(group_url(sink.url.reveal(), instance), access, time.time)
        done = outcome.status is not None and outcome.result.value == "delivered"
        show(f"{name}: {f'removed {instance}' if done else f'could not remove {instance}: {outcome.detail}'}")
        code = code if done else NOT_CLEANED
    return code
