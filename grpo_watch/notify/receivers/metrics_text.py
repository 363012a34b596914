"""Receivers of metrics, for places that can't be scraped: each gets all runs as text at a fixed interval."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from grpo_watch.config.schema import PushgatewaySink, TextfileSink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.metrics.exposition import Exporter
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, ReceiverContext
from grpo_watch.notify.receivers.http import HttpAccess, HttpEndpoint
from grpo_watch.store.messages import Notification

JOB = "grpo-watch"
TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
MODE = 0o644
"""node_exporter runs as another user."""


class MetricsReceiver(Receiver):
    """Sends snapshots, with their alerts, as Prometheus text (0.0.4).

    The metrics of the process are left out: they would clash with those of its reader. The last text, in which no run
    is active, stays.
    """

    metrics_only = True

    def __init__(self, sink: PushgatewaySink | TextfileSink, name: str, context: ReceiverContext) -> None:
        super().__init__(name)
        self.refresh_every = sink.every
        self._snapshot = DaemonSnapshot()
        self._exporter = Exporter(lambda: self._snapshot, context.clock, process=False)

    def put(self, body: bytes) -> DeliveryOutcome:
        """Replace the text at the destination."""
        raise NotImplementedError

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Replace the text by the current one."""
        self._snapshot = snapshot
        return self.put(self._exporter.render("", "")[0])

    def close(self) -> None:
        """Leave a last sample in which no run is active, if any sample was sent."""
        if self._snapshot != DaemonSnapshot():
            runs = tuple(replace(run, active=False) for run in self._snapshot.runs)
            self.refresh((), replace(self._snapshot, runs=runs), 0.0)


class PushgatewayReceiver(MetricsReceiver):
    """One group of a Pushgateway, named after this watcher unless the sink names it, and replaced each time."""

    def __init__(self, sink: PushgatewaySink, name: str, context: ReceiverContext) -> None:
        super().__init__(sink, name, context)
        self._url = group_url(sink.url.reveal(), sink.instance or context.instance)
        self._http = HttpEndpoint(HttpAccess.of(sink), context.clock)

    def put(self, body: bytes) -> DeliveryOutcome:
        """Push the text."""
        return self._http.send("PUT", self._url, body, TEXT)


def group_url(url: str, instance: str) -> str:
    """The address of this watcher's group; an instance with a slash is encoded as Pushgateway requires."""
    if "/" in instance:
        encoded = base64.urlsafe_b64encode(instance.encode()).decode()
        return f"{url.rstrip('/')}/metrics/job/{JOB}/instance@base64/{encoded}"
    return f"{url.rstrip('/')}/metrics/job/{JOB}/instance/{quote(instance, safe='')}"


def remove(url: str, access: HttpAccess, clock: Callable[[], float]) -> DeliveryOutcome:
    """Delete a group."""
    return HttpEndpoint(access, clock).send("DELETE", url)


class TextfileReceiver(MetricsReceiver):
    """A file for node_exporter's textfile collector; readers see the old text or the new one, never a part."""

    def __init__(self, sink: TextfileSink, name: str, context: ReceiverContext) -> None:
        super().__init__(sink, name, context)
        self._path: Path = sink.path

    def put(self, body: bytes) -> DeliveryOutcome:
        """Replace the file atomically; node_exporter reads only names that end in ``.prom``."""
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE), "wb") as stream:
                os.fchmod(stream.fileno(), MODE)
                stream.write(body)
            beside.replace(self._path)
        except OSError as problem:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            reason = f"{self._path} can't be written: {problem.strerror or problem}"
            return DeliveryOutcome(DeliveryResult.RETRY, reason)
        return DeliveryOutcome(DeliveryResult.DELIVERED, "written")


def receiver(sink: PushgatewaySink | TextfileSink, name: str, context: ReceiverContext) -> MetricsReceiver:
    """The receiver of a sink."""
    if isinstance(sink, PushgatewaySink):
        return PushgatewayReceiver(sink, name, context)
    return TextfileReceiver(sink, name, context)
