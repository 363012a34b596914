"""An immutable snapshot of one run for pages, exporters and reports: verdict, findings, and each rule's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from grpo_watch.engine.detector import Blindness, NotApplicable, NotYet, blindness_of
from grpo_watch.engine.diagnosis import Finding, Relations, diagnose, with_causes
from grpo_watch.engine.engine import Monitor, RunState
from grpo_watch.engine.judgement import NOT_JUDGED, Judgement, judge
from grpo_watch.engine.judgement import UNJUDGED as UNJUDGED  # noqa: PLC0414  it belongs to the verdicts
from grpo_watch.engine.judgement import WORST_FIRST as WORST_FIRST  # noqa: PLC0414  it belongs to the verdicts
from grpo_watch.engine.judgement import RunVerdict as RunVerdict  # noqa: PLC0414  it belongs to the snapshot
from grpo_watch.engine.records import AlertState, Setting, Severity
from grpo_watch.engine.rule import ENGLISH, filled
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.waste import with_waste

ROWS = "rows"
"""Name of the missing evidence if no metric could be read at all."""
NEEDS = "needs "
"""Prefix of the reason of a rule that lacks a metric or a kind of evidence."""
ROWS_COUNTED = "steps are unknown: no row names one, so rows are counted from 1"
NEVER_JUDGED = "nothing to judge yet"
"""Reason of a rule about an event that did not happen, such as a refused launch."""


class RuleStatus(str, Enum):
    """Whether a rule can judge, and with which result."""

    OK = "ok"
    FIRING = "firing"
    BLIND = "blind"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule on one run.

    ``reason`` says why it is blind or broken, ``blind`` how its detector classifies the blindness, ``evaluated``
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


_one_view = lru_cache(maxsize=4_096)(RuleView)
"""Shares equal views: they are made at every row, and nearly all equal those of the previous row and of other runs."""


def _rule_view(monitor: Monitor, state: RunState) -> RuleView:
    status, reason = _status(monitor, state)
    detector, blind = monitor.detector, blindness_of(reason) if status is RuleStatus.BLIND else None
    frozen, stops = detector.shows_frozen_policy, detector.stops_progress
    rule = monitor.rule
    return _one_view(rule.name, rule.severity, status, str(reason), monitor.evaluated, frozen, blind, stops)


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
    """Why a rule has never judged: the evidence it lacks, or its own reason."""
    known = (state.attempt, len(state.values), len(state.evidence), state.rows > 0, state.refused, monitor.reason)
    if monitor.lacks is None or monitor.lacks[0] != known:  # asked at every row, and nearly always unchanged
        monitor.lacks = known, _lacking(monitor, state)
    return monitor.lacks[1]


def _lacking(monitor: Monitor, state: RunState) -> str:
    lacking: list[list[str]] = []
    for alternative in monitor.detector.needs:
        absent = [need for need in alternative if need not in state.evidence and not state.seen(need)]
        if not absent:
            return monitor.reason or NotYet("not enough rows yet")
        lacking.append(absent)
    if not lacking:
        return monitor.reason or (NotApplicable if state.rows else NotYet)(NEVER_JUDGED)
    needed = NEEDS + ", or ".join(dict.fromkeys(" and ".join(absent) for absent in lacking))
    unread = [state.refused.get(need) for absent in lacking for need in absent]
    why = next(filter(None, unread), None if state.rows else state.refused.get(ROWS))
    return f"{needed}: {why}" if why else needed


SEE_FROZEN = "nothing would show a frozen policy in this run: set save_steps, or beta above 0"
SEEN_LATER = "nothing shows a frozen policy in this run before its second checkpoint"


@dataclass(frozen=True, slots=True)
class AlertView:
    """One alert on one run, with its severity after diagnosis."""

    rule: str
    key: str
    state: AlertState
    severity: Severity
    first_step: int
    fired_step: int | None
    fired_total: int
    evidence: Mapping[str, str | int | float | bool | None]
    summary: str
    hint: str
    caused_by: str | None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run's state at one moment, for pages, exporters and reports. Steps are optimizer steps, times Unix seconds.

    ``max_steps`` is the total that the job shows, None once the run is past it (it was another training's);
    ``seconds_per_step`` the median of the newest rows; ``predicted_max_steps`` the number by the settings, if they
    decide it. Each is None if unknown. ``language`` is that of the rules. ``notes`` are the run's own, each with its
    step (alerts that it sent to its tracker).
    """

    run: str
    framework: str | None
    version: str | None
    attempt: int
    step: int
    rows: int
    max_steps: int | None
    last_step_time: float | None
    verdict: RunVerdict
    values: Mapping[str, float | None]
    config: Mapping[str, Setting]
    rules: tuple[RuleView, ...]
    alerts: tuple[AlertView, ...]
    findings: tuple[Finding, ...]
    seconds_per_step: float | None = None
    predicted_max_steps: int | None = None
    judgement: Judgement = NOT_JUDGED
    language: str = ENGLISH
    notes: tuple[tuple[int, str], ...] = ()


def take_snapshot(state: RunState, predicted_max_steps: int | None = None) -> RunSnapshot:
    """A snapshot of the run now; ``predicted_max_steps`` is the number of steps by its settings (None: unknown)."""
    findings = _findings(state)
    rules = tuple(_rule_view(monitor, state) for monitor in state.monitors)
    verdict, judgement = verdict_of(findings, rules, state)
    total = state.max_steps
    return RunSnapshot(
        run=state.run,
        framework=state.framework,
        version=state.version,
        attempt=state.attempt,
        step=state.step,
        rows=state.rows,
        max_steps=total if total is None or state.step <= total else None,
        last_step_time=state.last_step_time,
        verdict=verdict,
        values=dict(state.values),
        config={name: setting for name, (_, setting) in state.config.items()},
        rules=rules,
        alerts=tuple(_alert_views(state, findings)),
        findings=findings,
        seconds_per_step=state.pace.median(),
        predicted_max_steps=predicted_max_steps,
        judgement=judgement,
        language=next(iter({monitor.rule.language for monitor in state.monitors} - {ENGLISH}), ENGLISH),
        notes=state.notes,
    )


STALL_SECONDS = 60.0
"""Seconds after which the cost of a stall is computed again."""


def moved_by_time(state: RunState) -> tuple[int, float | None]:
    """The parts of a snapshot that a tick may change; if equal to the last ones, the last snapshot is reused.

    They are the number of changes of rules' statuses and, while the run stalls, the minute, with which the cost grows.
    """
    changes, going_on = 0, False
    for monitor in state.monitors:
        changes += monitor.changes
        if monitor.episodes and monitor.detector.wastes is WasteKind.SILENCE:
            going_on = going_on or any(episode.resolved_step is None for episode in monitor.episodes)
    return changes, (state.now or 0.0) // STALL_SECONDS if going_on else None


def verdict_of(
    findings: tuple[Finding, ...], rules: tuple[RuleView, ...], state: RunState
) -> tuple[RunVerdict, Judgement]:
    """The verdict by findings, rule statuses and rows read, with its reasons."""
    worst = max((counted_severity(finding, state.attempt) for finding in findings), default=-1)
    if worst >= Severity.WARNING.rank:
        verdict = RunVerdict.CRITICAL if worst == Severity.CRITICAL.rank else RunVerdict.WARNING
        return verdict, Judgement(guessed=state.guesses.names())
    unjudged = (
        (RuleStatus.BLIND, RuleStatus.BROKEN)
        if state.rows
        else (RuleStatus.BLIND, RuleStatus.BROKEN, RuleStatus.FIRING)
    )
    blind = (not findings or not state.rows) and all(rule.status in unjudged for rule in rules)
    return judge(state, blind=blind)


def counted_severity(finding: Finding, attempt: int) -> int:
    """The severity rank of a finding in the verdict: at most a warning if it resolved in the last attempt."""
    if finding.resolved_step is None:
        return finding.severity.rank
    return min(finding.severity.rank, Severity.WARNING.rank) if finding.attempt == attempt else -1


def blind_to_frozen_policy(snapshot: RunSnapshot) -> bool:
    """Whether rows were logged, but every rule that could show a frozen policy is blind or broken."""
    statuses = [rule.status for rule in snapshot.rules if rule.shows_frozen_policy]
    blind = all(status in (RuleStatus.BLIND, RuleStatus.BROKEN) for status in statuses)
    return snapshot.rows > 0 and bool(statuses) and blind


def judged(snapshot: RunSnapshot) -> int:
    """Number of rules that could judge the run."""
    return sum(rule.status in (RuleStatus.OK, RuleStatus.FIRING) for rule in snapshot.rules)


def caveats(snapshot: RunSnapshot) -> tuple[str, ...]:
    """Caveats of the verdict: whole sentences without a capital at the start or a full stop at the end."""
    saves = snapshot.config.get("save_steps")
    often = saves is not None and isinstance(saves.value, (int, float)) and snapshot.step < 2 * saves.value
    found = [SEEN_LATER if often else SEE_FROZEN] if blind_to_frozen_policy(snapshot) else []
    if "steps_counted" in snapshot.config:
        found.append(ROWS_COUNTED)
    if snapshot.judgement.reason:
        found.append(snapshot.judgement.reason)
    if snapshot.judgement.guessed:
        count = len(snapshot.judgement.guessed)
        what = "one metric is" if count == 1 else f"{count} metrics are"
        found.append(f"{what} read under a guessed name, see the suggested `columns:` line")
    return tuple(found)


def _findings(state: RunState) -> tuple[Finding, ...]:
    if not any(monitor.episodes for monitor in state.monitors):
        return ()
    relations = Relations(state.monitors)
    findings = with_waste(diagnose(state.monitors, state.framework, relations), state, relations)
    return with_causes(findings, state, relations)


def _alert_views(state: RunState, findings: tuple[Finding, ...]) -> list[AlertView]:
    effective: dict[tuple[str, str, int | None, int], Finding] = {
        (f.rule, f.key, f.fired_step, f.attempt): f for f in findings
    }
    views = []
    for monitor in [monitor for monitor in state.monitors if monitor.alerts]:
        for key, alert in sorted(monitor.alerts.items()):
            finding = effective.get((monitor.rule.name, key, alert.fired_step, alert.attempt))
            views.append(
                AlertView(
                    rule=monitor.rule.name,
                    key=key,
                    state=alert.state,
                    severity=finding.severity if finding else alert.severity,
                    first_step=alert.first_step,
                    fired_step=alert.fired_step,
                    fired_total=alert.fired_total,
                    evidence=dict(alert.reading.evidence),
                    summary=monitor.rule.says(alert.reading.message),
                    hint=filled(monitor.rule.advice(state.framework, alert.reading.hint), alert.reading.evidence),
                    caused_by=finding.caused_by if finding else None,
                )
            )
    return views
