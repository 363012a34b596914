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
    from grpo_watch.store.messages import Notification

FAILED = 1

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
    from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext, build  # noqa: PLC0415

    now = time.time()
    notification = sample(now)
    for routed in build(settings.sinks, ReceiverContext(time.time, "notify-test")):
        receiver = routed.receiver
        if receiver.metrics_only:
            yield receiver.name, True, "skipped: receives no notifications"
            continue
        outcome = receiver.send(notification)
        if not outcome.reached:  # it takes no messages, such as a heartbeat
            outcome = receiver.refresh((), DaemonSnapshot(), now)
        yield receiver.name, outcome.result is DeliveryResult.DELIVERED, outcome.detail


def sample(now: float) -> Notification:
    """An alert of a run that does not exist, which its text explains, without a runbook; each second has its own id."""
    from grpo_watch.notify.message_text import TEST_RULE  # noqa: PLC0415
    from grpo_watch.store.messages import FIRING, Notification  # noqa: PLC0415

    return Notification(
        id=f"notify-test-{int(now)}",
        status=FIRING,
        run="notify-test",
        attempt=1,
        rule=TEST_RULE,
        key="",
        severity="info",
        step=10,
        first_step=2,
        max_steps=80,
        summary="TEST of grpo-watch: no run is affected.",
        message="TEST of grpo-watch: no run is affected.",
        evidence={"kl_reference": 0.0, "reward_zero_std_ratio": 0.125},
        hint="Nothing: this receiver gets its alerts.",
        cause="`grpo-watch notify test` sent this.",
        caused_by=None,
        started=now,
        ended=None,
        at=now,
        series={"kl_reference": (0.0,) * 8, "reward_mean": (0.1, 0.2, 0.2, 0.4, 0.5, 0.5, 0.7, 0.8)},
    )
