"""Writes the metrics into a file for node_exporter's textfile collector; a reader sees the old or the new, whole."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from grpo_watch.config.sinks import TextfileSink
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.metrics_text import MetricsReceiver

MODE = 0o644
"""node_exporter runs as another user."""


def receiver(sink: TextfileSink, name: str, context: ReceiverContext) -> MetricsReceiver:
    """The receiver of a sink; node_exporter reads files that end in ``.prom``."""
    return MetricsReceiver(name, partial(write, sink.path), sink.every, context.clock)


def write(path: Path, body: bytes) -> DeliveryOutcome:
    """Replace the file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE), "wb") as stream:
            os.fchmod(stream.fileno(), MODE)
            stream.write(body)
        beside.replace(path)
    except OSError as problem:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        return DeliveryOutcome(DeliveryResult.RETRY, f"{path} can't be written: {problem.strerror or problem}")
    return DeliveryOutcome(DeliveryResult.DELIVERED, "written")
