"""How each rule does on one run: whether it judged, what it lacks, whether it fires."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from grpo_watch.engine.detector import Blindness, Detector, NotApplicable, NotYet, blindness_of
from grpo_watch.engine.monitor import Monitor
from grpo_watch.engine.records import Severity
from grpo_watch.engine.run_state import RunState

ROWS = "rows"
"""What stands for every metric where nothing was logged that could be read."""
NEEDS = "needs "
"""How the reason of a rule begins that lacks a metric or a kind of evidence."""
NEVER_JUDGED = "nothing to judge yet"
"""The reason of a rule about an event that did not happen, as a refused launch."""


class RuleStatus(str, Enum):
    """Whether a rule can see, and what it sees."""

    OK = "ok"
    FIRING = "firing"
    BLIND = "blind"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule on one run.

    ``reason`` says why it is blind or broken, ``blind`` which kind of blind it is by its detector, ``evaluated``
    whether it ever judged anything, ``shows_frozen_policy`` whether it would show a policy that does not change,
    ``stops_progress`` whether a run with its open finding makes no further steps.
    """

    rule: str
    severity: Severity
    status: RuleStatus
    reason: str = ""
    evaluated: bool = False
    shows_frozen_policy: bool = False
    blind: Blindness | None = None
    stops_progress: bool = False


class RuleViews:
    """The views of all rules of one run; those that nothing changed are the same objects, most of them at most rows."""

    def __init__(self) -> None:
        self._views: tuple[RuleView, ...] = ()
        self._monitors: tuple[Monitor, ...] = ()
        self._keep: list[bool] = []
        self._changes: list[int] = []
        self._known: object = None

    def of(self, state: RunState) -> tuple[RuleView, ...]:
        """The views now."""
        if state.monitors is not self._monitors:
            self._begin(state.monitors)
        known = (len(state.values), len(state.evidence), state.rows > 0, state.refused)
        fresh, self._known = known != self._known, known
        changed = {}
        for index, monitor in enumerate(self._monitors):
            if fresh or not self._keep[index] or monitor.changes != self._changes[index]:
                self._changes[index] = monitor.changes
                view = _rule_view(monitor, state)
                if view != self._views[index]:
                    changed[index] = view
        if changed:
            self._views = tuple(changed.get(index, view) for index, view in enumerate(self._views))
        return self._views

    def _begin(self, monitors: tuple[Monitor, ...]) -> None:
        """A rule whose detector has reasons of its own to be blind is asked each time."""
        self._monitors, self._known = monitors, None
        self._keep = [type(monitor.detector).blind_because is Detector.blind_because for monitor in monitors]
        self._changes = [monitor.changes for monitor in monitors]
        self._views = tuple(RuleView(monitor.rule.name, monitor.rule.severity, RuleStatus.OK) for monitor in monitors)


def _rule_view(monitor: Monitor, state: RunState) -> RuleView:
    status, reason = _status(monitor, state)
    detector = monitor.detector
    return RuleView(
        rule=monitor.rule.name,
        severity=monitor.rule.severity,
        status=status,
        reason=str(reason),
        evaluated=monitor.evaluated,
        shows_frozen_policy=detector.shows_frozen_policy,
        blind=blindness_of(reason) if status is RuleStatus.BLIND else None,
        stops_progress=detector.stops_progress,
    )


def _status(monitor: Monitor, state: RunState) -> tuple[RuleStatus, str]:
    if monitor.broken is not None:
        return RuleStatus.BROKEN, monitor.broken
    if monitor.firing:
        return RuleStatus.FIRING, ""
    known = monitor.detector.blind_because(state)
    if known is None and monitor.evaluated:
        return RuleStatus.OK, ""
    return RuleStatus.BLIND, known or missing_evidence(monitor, state)


def missing_evidence(monitor: Monitor, state: RunState) -> str:
    """Why a rule that never judged anything could not: the evidence that it lacks, or its own reason."""
    lacking: list[list[str]] = []
    for alternative in monitor.detector.needs:
        absent = [need for need in alternative if not state.seen(need) and need not in state.evidence]
        if not absent:
            return monitor.reason or NotYet("not enough rows yet")
        lacking.append(absent)
    if not lacking:
        return monitor.reason or (NotApplicable if state.rows else NotYet)(NEVER_JUDGED)
    needed = NEEDS + ", or ".join(" and ".join(absent) for absent in lacking)
    unread = [state.refused.get(need) for absent in lacking for need in absent]
    why = next(filter(None, unread), None if state.rows else state.refused.get(ROWS))
    return f"{needed}: {why}" if why else needed
