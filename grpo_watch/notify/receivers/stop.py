"""Asks a run that wastes its GPUs to stop, by a file that the training job looks for; off unless it is configured.

That it asks is an alert of the run, ``stop-asked``, stored before anything is done. The file is this alert's delivery:
made when its message comes, removed when the message of its end does.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_watch.config.sinks import StopSink
from grpo_watch.engine.records import EventKind, RunEvent
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunStanding
from grpo_watch.notify.alert_parts import moment, parts_of
from grpo_watch.notify.notification import FIRING, NOTHING, STOP_RULE, DeliveryOutcome, DeliveryResult, Notification
from grpo_watch.notify.receiver_context import ReceiverContext
from grpo_watch.notify.receivers import stop_file

log = logging.getLogger("grpo_watch.stop")

LOOK_SECONDS = 5.0
LEAP_SECONDS = 60.0
"""So much later than that, a look comes after the clock was set forward, or the machine slept: no person could act."""
MOST_LEAPS = 32
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_OURS = ("run", "attempt", "sink")
"""What identifies a file that this receiver made for this attempt."""


@dataclass(frozen=True, slots=True)
class StopPlan:
    """When a run is asked to stop, and where.

    ``rules`` are the rules that count, at ``critical`` only; ``grace`` is how many seconds one must have fired.
    ``file`` is made in the run's folder, or in ``folder`` as ``RUN.FILE``. ``dry_run``: only report it.
    """

    rules: frozenset[str]
    grace: float
    file: str
    folder: Path | None = None
    dry_run: bool = False


class StopReceiver:
    """Asks runs to stop when their grace is over; makes and removes the file as the run's alert fires and resolves.

    Args:
        name: what metrics call it; the key of its alerts.
        plan: when and where.
        standing: the status of a run; None until it has been read.
        feed_event: feeds an event to the run of this name.
        clock: Unix seconds.
    """

    pace = 0.0
    keyed = False
    refresh_every: float | None = LOOK_SECONDS

    def __init__(
        self,
        name: str,
        plan: StopPlan,
        standing: Callable[[str], RunStanding | None],
        feed_event: Callable[[str, RunEvent], None],
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self._plan, self._standing, self._feed_event, self._clock = plan, standing, feed_event, clock
        self._looked_at: float | None = None
        self._leaps: deque[tuple[float, float]] = deque(maxlen=MOST_LEAPS)

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Make the file that a stored alert of this receiver asks for, or remove it; of all else nothing."""
        outcome = NOTHING
        for part in parts_of(notification):
            if (part.rule, part.key) == (STOP_RULE, self.name) and not part.evidence.get("dry_run"):
                outcome = self._deliver(part)
                if outcome.result is not DeliveryResult.DELIVERED:
                    return outcome
        return outcome

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:
        """Report which runs are asked to stop, and which no longer are."""
        self._note_leap(now)
        by_run: dict[str, list[Notification]] = {}
        for notification in firing:
            by_run.setdefault(notification.run, []).append(notification)
        shown = [run.snapshot for run in snapshot.runs]
        problems = [problem for each in shown for problem in self._look(each, by_run.get(each.run, ()), now)]
        return (
            DeliveryOutcome(DeliveryResult.RETRY, problems[0])
            if problems
            else DeliveryOutcome(DeliveryResult.DELIVERED, "all that is due is asked")
        )

    def close(self) -> None:
        """Nothing is held."""

    # who is asked

    def _look(self, snapshot: RunSnapshot, firing: Sequence[Notification], now: float) -> Iterator[str]:
        """Report on one run; gives why it can't be asked, if it can't."""
        run, standing = snapshot.run, self._standing(snapshot.run)
        if standing is None or not standing.active:
            return
        mine = [notification for notification in firing if self._counts(notification, standing.attempt)]
        asked = [found for found in snapshot.findings if (found.rule, found.key) == (STOP_RULE, self.name)]
        dry = [found.evidence.get("dry_run") for found in asked if found.resolved_step is None]
        if dry and (not mine or dry[-1] is not self._plan.dry_run):
            self._feed_event(run, RunEvent(self.name, EventKind.STOP_WITHDRAWN))
        due = [notification for notification in mine if self._lasted(notification, now) >= self._plan.grace]
        if due and not dry:
            problem = self._problem(snapshot, standing)
            if problem:
                yield problem
            else:
                self._ask(due[0], now)

    def _note_leap(self, now: float) -> None:
        before, self._looked_at = self._looked_at, now
        leap = 0.0 if before is None else now - before - LOOK_SECONDS
        if leap > LEAP_SECONDS:
            self._leaps.append((now, leap))

    def _lasted(self, notification: Notification, now: float) -> float:
        """For how many seconds it fires, without those that the clock leapt over."""
        return now - notification.started - sum(leap for at, leap in self._leaps if at > notification.started)

    def _counts(self, notification: Notification, attempt: int) -> bool:
        """Whether this alert is a reason. What an earlier attempt did is none: the one that was resumed may be well."""
        worst = notification.status == FIRING and notification.severity == "critical"
        return worst and notification.rule in self._plan.rules and notification.attempt == attempt

    def _problem(self, snapshot: RunSnapshot, standing: RunStanding) -> str:
        if STOP_RULE not in {rule.rule for rule in snapshot.rules}:
            return f"{snapshot.run} can't be asked to stop: the rule {STOP_RULE} is switched off"
        place = self._place(snapshot.run, standing)
        if place is None:
            return f"{snapshot.run} can't be asked to stop: its folder is not on this machine; give `folder`"
        why = stop_file.reachable(place.parent)
        return f"{place} can't be made: {why}" if why else ""

    def _ask(self, notification: Notification, now: float) -> None:
        kind = EventKind.STOP_REHEARSED if self._plan.dry_run else EventKind.STOP_ASKED
        lasts = f"{notification.rule} has been critical for {self._lasted(notification, now) / 60:.0f} minutes"
        self._feed_event(notification.run, RunEvent(self.name, kind, text=lasts, about=notification.rule))

    def _place(self, run: str, standing: RunStanding) -> Path | None:
        if self._plan.folder is not None:
            return self._plan.folder / f"{_ODD.sub('-', run).lstrip('.-') or 'run'}.{self._plan.file}"
        return None if standing.folder is None else standing.folder / self._plan.file

    # the file

    def _deliver(self, notification: Notification) -> DeliveryOutcome:
        """Make the file, or remove it. It stops whatever attempt continues, so it is made for the alert's own only."""
        standing = self._standing(notification.run)
        if standing is None:
            return DeliveryOutcome(DeliveryResult.RETRY, f"{notification.run} is not read yet", LOOK_SECONDS)
        file = self._place(notification.run, standing)
        over = not standing.active or standing.attempt != notification.attempt
        if file is None or (over and notification.status == FIRING):
            return NOTHING
        try:
            if notification.status == FIRING:
                stop_file.make(file, self._document(notification))
            else:
                stop_file.remove(file, {name: self._document(notification)[name] for name in _OURS})
        except OSError as problem:
            did = "made" if notification.status == FIRING else "removed"
            return DeliveryOutcome(DeliveryResult.RETRY, f"{file} can't be {did}: {problem.strerror or problem}")
        fields = {"run": notification.run, "rule": notification.evidence.get("because"), "file": str(file)}
        log.warning("stop asked" if notification.status == FIRING else "stop withdrawn", extra={"fields": fields})
        return DeliveryOutcome(
            DeliveryResult.DELIVERED, "asked to stop" if notification.status == FIRING else "asked no more"
        )

    def _document(self, notification: Notification) -> dict[str, Any]:
        """What the file says, for people and for the job; ``id`` is the transition's, ``step`` the newest one read."""
        return {
            "rule": notification.evidence.get("because"),
            "run": notification.run,
            "attempt": notification.attempt,
            "step": notification.step,
            "at": moment(self._clock()),
            "reason": notification.message,
            "sink": self.name,
            "id": notification.id,
        }


def receiver(sink: StopSink, name: str, context: ReceiverContext) -> StopReceiver:
    """The receiver of a sink."""
    plan = StopPlan(frozenset(sink.rules), sink.grace_seconds, sink.file, sink.folder, sink.dry_run)
    return StopReceiver(name, plan, context.standing, context.feed_event, context.clock)
