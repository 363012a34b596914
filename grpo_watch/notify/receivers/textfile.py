"""Writes the metrics into a file for node_exporter's textfile collector; a reader sees the old or the new, whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from grpo_watch.config.sinks import TextfileSink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, ReceiverContext
from grpo_watch.notify.receivers.metrics_text import Exposition
from grpo_watch.store.messages import Notification

MODE = 0o644
"""node_exporter runs as another user."""


class TextfileReceiver(Receiver):
    """One file; alerts are among the metrics.

    Args:
        name: what metrics call it.
        path: the file; node_exporter reads those that end in ``.prom``.
        every: seconds between two writes.
        clock: Unix seconds.
    """

    metrics_only = True

    def __init__(self, name: str, path: Path, every: float, clock: Callable[[], float]) -> None:
        super().__init__(name)
        self.refresh_every = every
        self._path = path
        self._exposition = Exposition(clock)

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Replace the file."""
        return self._write(self._exposition.render(snapshot))

    def close(self) -> None:
        """Leave a last sample in which no run is active."""
        last = self._exposition.last()
        if last is not None:
            self._write(last)

    def _write(self, body: bytes) -> DeliveryOutcome:
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
            return DeliveryOutcome(
                DeliveryResult.RETRY, f"{self._path} can't be written: {problem.strerror or problem}"
            )
        return DeliveryOutcome(DeliveryResult.DELIVERED, "written")


def receiver(sink: TextfileSink, name: str, context: ReceiverContext) -> TextfileReceiver:
    """The receiver of a sink."""
    return TextfileReceiver(name, sink.path, sink.every, context.clock)
