"""``grpo-watch notify``: sends a sample to each configured receiver and shows the response."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_watch.errors import UsageError

if TYPE_CHECKING:
    from grpo_watch.config.schema import Settings
    from grpo_watch.store.messages import Notification

FAILED = 1


def test_command(given: Namespace) -> int:
    """Print one line for each receiver; returns 1 if one rejected the message.

    Raises:
        UsageError: no receiver is configured, one can't be made, or the run has no finding.
    """
    from grpo_watch.config.settings import load_settings  # noqa: PLC0415  a light start

    loaded = load_settings(config=given.config)
    if not loaded.settings.sinks:
        raise UsageError(f"no receiver configured: add one under sinks: in {loaded.file or 'grpo-watch.yaml'}")
    now = time.time()
    notification = sample(now) if given.run is None else alert_of(given.run, loaded.settings, now)
    failed = False
    for name, well, detail in _tried(loaded.settings, notification, now):
        failed = failed or not well
        sys.stdout.write(f"{'ok    ' if well else 'failed'}  {name}: {detail}\n")
        sys.stdout.flush()
    return FAILED if failed else 0


def _tried(settings: Settings, notification: Notification, now: float) -> Iterator[tuple[str, bool, str]]:
    """Each receiver's name, whether it accepted the message, and its answer."""
    from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot  # noqa: PLC0415
    from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext, build  # noqa: PLC0415

    for routed in build(settings.sinks, ReceiverContext(time.time, "notify-test")):
        receiver = routed.receiver
        if receiver.metrics_only:
            yield receiver.name, True, "skipped: receives no notifications"
            continue
        outcome = receiver.send(notification)
        if not outcome.reached:  # the receiver takes no messages, such as a heartbeat
            outcome = receiver.refresh((), DaemonSnapshot(), now)
        yield receiver.name, outcome.result is DeliveryResult.DELIVERED, outcome.detail


def alert_of(path: Path, settings: Settings, now: float) -> Notification:
    """The message of the run's first root finding, as the daemon would have sent it, but without sparklines.

    Raises:
        UsageError: the path holds no run, or no run has a finding that the verdict counts.
    """
    from grpo_watch.cli.check import check_runs, find_runs  # noqa: PLC0415
    from grpo_watch.engine.records import Tick  # noqa: PLC0415
    from grpo_watch.notify.notifications import EXAMPLE, cause_of, runbook_of  # noqa: PLC0415
    from grpo_watch.report.view import pasteable, top_view  # noqa: PLC0415
    from grpo_watch.rules.packs import rules_for  # noqa: PLC0415

    found, _ = find_runs([str(path)], settings)
    rules = rules_for(settings)
    roots = {run.name: str(run.root.resolve()) for run in found if not run.remote}
    for report in check_runs(found, rules, {}, Tick(now, live=False), settings):
        view = top_view(pasteable(report.snapshot, roots.get(report.snapshot.run, "")))
        if view is None:
            continue
        finding, summaries = view.finding, {rule.name: rule.summary for rule in rules}
        texts = settings.privacy.messages
        return replace(
            sample(now),
            run=report.snapshot.run,
            attempt=finding.attempt,
            rule=finding.rule,
            key=finding.key,
            severity=finding.severity.value,
            step=finding.fired_step,
            first_step=finding.first_step,
            max_steps=report.snapshot.max_steps,
            summary=summaries.get(finding.rule, "") or finding.summary,
            message=finding.summary,
            evidence={name: value for name, value in finding.evidence.items() if texts or name != EXAMPLE},
            hint=finding.hint,
            cause=cause_of(finding, report.snapshot.language),
            runbook=runbook_of(finding.rule, settings.runbook_url),
            headline=view.headline,
            language=report.snapshot.language,
            series={},
        )
    raise UsageError(f"{path}: no run with a finding to send")


def sample(now: float) -> Notification:
    """A sample alert of a run that does not exist, without a runbook; its id changes every second."""
    from grpo_watch.notify.message_text import TEST_RULE  # noqa: PLC0415
    from grpo_watch.store.messages import FIRING, Notification  # noqa: PLC0415

    return Notification(
        id=f"notify-test-{int(now)}",
        status=FIRING,
        run="notify-test",
        rule=TEST_RULE,
        severity="info",
        step=10,
        first_step=2,
        max_steps=80,
        summary="TEST of grpo-watch: no run is affected.",
        message="TEST of grpo-watch: no run is affected.",
        headline="TEST of grpo-watch: no run is affected.",
        evidence={"kl_reference": 0.0, "reward_zero_std_ratio": 0.125},
        hint="Nothing: this receiver gets its alerts.",
        cause="`grpo-watch notify test` sent this.",
        started=now,
        at=now,
        series={"kl_reference": (0.0,) * 8, "reward_mean": (0.1, 0.2, 0.2, 0.4, 0.5, 0.5, 0.7, 0.8)},
    )
