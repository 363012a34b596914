"""The alert state machine: a pure function from an alert and a reading to the next alert."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from grpo_watch.engine.records import AlertState, Reading, Severity, Transition, Verdict
from grpo_watch.engine.rule import Rule

_NOTHING = Reading(Verdict.NO_DATA)


@dataclass(frozen=True, slots=True)
class Alert:
    """The state of one alert (run × rule × key).

    ``episode`` counts firings begun (0: never pending). ``observations`` counts breaching records of the pending or
    firing episode; ``keep_firing_steps`` counts from ``last_breach_step``. ``reading`` is the one that fired the alert
    or made it worse, so that step and evidence match.
    """

    state: AlertState = AlertState.INACTIVE
    episode: int = 0
    attempt: int = 1
    first_step: int = 0
    fired_step: int | None = None
    resolved_step: int | None = None
    last_breach_step: int = 0
    observations: int = 0
    fired_total: int = 0
    severity: Severity = Severity.INFO
    reading: Reading = _NOTHING


def advance(alert: Alert, reading: Reading, step: int, rule: Rule, attempt: int = 1) -> tuple[Alert, bool]:
    """The alert after ``reading`` at ``step``, and whether its state changed in a way worth recording.

    NO_DATA holds every state. A breach makes an alert pending; it fires when ``step - first_step >= for_steps`` and
    ``min_observations`` breaches are in (at once for an ``immediate`` reading). A firing alert escalates when a breach
    is more severe (firing to firing), and resolves at the first OK that lies ``keep_firing_steps`` behind the last
    breach.
    """
    if reading.verdict is Verdict.NO_DATA:
        return alert, False
    if reading.verdict is Verdict.OK:
        return _clear(alert, step, rule)
    if alert.state is AlertState.FIRING:
        return _still(alert, reading, step, rule)
    return _pend(alert, reading, step, rule, attempt)


def _clear(alert: Alert, step: int, rule: Rule) -> tuple[Alert, bool]:
    if alert.state is AlertState.PENDING:
        state = AlertState.RESOLVED if alert.fired_total else AlertState.INACTIVE
        return replace(alert, state=state, observations=0), True
    if alert.state is AlertState.FIRING and step - alert.last_breach_step >= rule.keep_firing_steps:
        return replace(alert, state=AlertState.RESOLVED, resolved_step=step, observations=0), True
    return alert, False


def _still(alert: Alert, reading: Reading, step: int, rule: Rule) -> tuple[Alert, bool]:
    severity = reading.severity or rule.severity
    grown = replace(alert, last_breach_step=step, observations=alert.observations + 1)
    if severity is not alert.severity and severity.rank > alert.severity.rank:
        return replace(grown, severity=severity, reading=reading), True
    return grown, False


def _pend(alert: Alert, reading: Reading, step: int, rule: Rule, attempt: int) -> tuple[Alert, bool]:
    begins = alert.state is not AlertState.PENDING
    first = step if reading.first_step is None else reading.first_step
    pending = replace(
        alert,
        state=AlertState.PENDING,
        episode=alert.episode + begins,
        attempt=attempt if begins else alert.attempt,
        first_step=first if begins else min(first, alert.first_step),
        fired_step=None,
        resolved_step=None,
        last_breach_step=step,
        observations=1 if begins else alert.observations + 1,
        severity=reading.severity or rule.severity,
        reading=reading,
    )
    waited = step - pending.first_step >= rule.for_steps and pending.observations >= rule.min_observations
    if waited or reading.immediate:
        return replace(pending, state=AlertState.FIRING, fired_step=step, fired_total=alert.fired_total + 1), True
    return pending, begins


def rewind(alert: Alert, step: int) -> Alert:
    """The alert at the start of a new attempt: pending is dropped, firing waits for a reading that clears it."""
    if alert.state is AlertState.PENDING:
        return replace(alert, state=AlertState.RESOLVED if alert.fired_total else AlertState.INACTIVE, observations=0)
    if alert.state is AlertState.FIRING:
        return replace(alert, last_breach_step=min(alert.last_breach_step, step))
    return alert


def transition_id(run: str, rule: str, key: str, alert: Alert, after: AlertState) -> str:
    """The idempotent id of a change: the same for the same event after any restart (32 hex digits)."""
    parts = (run, str(alert.attempt), rule, key, str(alert.episode), after.value, alert.severity.value)
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()


def transition_of(
    run: str, place: tuple[str, str], alert: Alert, before: AlertState, step: int, time: float | None = None
) -> Transition:
    """The transition of an alert from ``before`` to its current state; ``place`` is rule and key.

    ``time`` is the producer's, in Unix seconds.
    """
    rule, key = place
    return Transition(
        id=transition_id(run, rule, key, alert, alert.state),
        run=run,
        attempt=alert.attempt,
        rule=rule,
        key=key,
        episode=alert.episode,
        from_state=before,
        to_state=alert.state,
        step=step,
        first_step=alert.first_step,
        severity=alert.severity,
        time=time,
        reading=alert.reading,
    )
