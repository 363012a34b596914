"""``grpo-watch notify``: sends a sample to each configured receiver and shows the response."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_watch.cli.options import Config, LogFormat, Logs, NoColor, Verbose, begin, example, group
from grpo_watch.errors import UsageError

if TYPE_CHECKING:
    from grpo_watch.config.schema import Settings

FAILED = 1
ONLY_METRICS = frozenset({"pushgateway", "textfile"})
"""Kinds that get no messages: a sample would overwrite the metrics of a running watch."""

app = group("Test the configured receivers.")


@app.command("test", epilog=example("notify test --config grpo-watch.yaml"))
def send_sample(
    config: Config = None, verbose: Verbose = 0, no_color: NoColor = False, log_format: Logs = LogFormat.LOGFMT
) -> int:
    """Send a sample notification to each receiver. Exits with 0: all accepted, 1: one failed, 2: none configured."""
    begin(verbose, no_color, log_format)
    return notify_test(config)


def notify_test(config: Path | None) -> int:
    """Print one line for each receiver; returns 1 where one did not take the sample.

    Raises:
        UsageError: no receiver is configured, or one can't be made.
    """
    from grpo_watch.config.settings import load_settings  # noqa: PLC0415  a light start

    loaded = load_settings(config=config)
    if not loaded.settings.sinks:
        raise UsageError(f"no receiver configured: add one under sinks: in {loaded.file or 'grpo-watch.yaml'}")
    failed = False
    for name, well, detail in _tried(loaded.settings):
        failed = failed or not well
        sys.stdout.write(f"{'ok    ' if well else 'failed'}  {name}: {detail}\n")
        sys.stdout.flush()
    return FAILED if failed else 0


def _tried(settings: Settings) -> Iterator[tuple[str, bool, str]]:
    """For each receiver its name, whether it took the sample, and its answer."""
    from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot  # noqa: PLC0415
    from grpo_watch.notify.notification import DeliveryResult  # noqa: PLC0415
    from grpo_watch.notify.receiver_context import ReceiverContext  # noqa: PLC0415
    from grpo_watch.notify.receiver_factory import build  # noqa: PLC0415
    from grpo_watch.notify.test_notification import sample  # noqa: PLC0415

    now = time.time()
    notification = sample(now)
    for sink, routed in zip(
        settings.sinks, build(settings.sinks, ReceiverContext(time.time, "notify-test")), strict=True
    ):
        receiver = routed.receiver
        if sink.type in ONLY_METRICS:
            yield receiver.name, True, "skipped: receives no notifications"
            continue
        asked = sink.type == "heartbeat"
        outcome = receiver.refresh((), DaemonSnapshot(), now) if asked else receiver.send(notification)
        yield receiver.name, outcome.result is DeliveryResult.DELIVERED, outcome.detail
