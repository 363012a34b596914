"""Turns transitions of a run's alerts into notifications; explained findings get none."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import TypeAlias
from urllib.parse import quote

from grpo_watch.engine.alerts import Alert, transition_id, transition_of
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import AlertState, Severity, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.notify.receiver import OWN_RULE
from grpo_watch.report.view import in_short, pasteable
from grpo_watch.report.words import label_of, rounded, say, sentence_words
from grpo_watch.store.messages import FIRING, RESOLVED, Notification
from grpo_watch.store.state import slug

Recent: TypeAlias = Callable[[str], tuple[float, ...]]
"""The newest points of a metric."""
Alerts: TypeAlias = Mapping[tuple[str, str], Alert]
"""The alerts of one run by rule and key."""
SERIES, POINTS = 3, 24
"""Most metrics with a message, and most points of each."""
ALWAYS_SHOWN = ("reward_mean", "kl_reference")
"""Metrics shown in addition to those of the evidence, if there is room."""
CAUSES = 2
EXAMPLE = "example"
"""The evidence key of an excerpt of a completion."""


@dataclass(frozen=True, slots=True)
class NotificationContext:
    """Context for a run's notifications besides its transitions.

    ``recent`` returns up to so many newest values of a metric, oldest first. ``at`` is Unix seconds, ``page`` the
    address of the status page or empty, ``rules`` those of the run by name, ``runbook`` the address of runbooks with
    ``{rule}`` in it, or empty. ``texts``: excerpts of completions may be sent; ``folder``: of the run, for commands to
    paste.
    """

    snapshot: RunSnapshot
    recent: Callable[[str, int], Sequence[float]]
    at: float
    labels: Mapping[str, str] = field(default_factory=dict)
    page: str = ""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    runbook: str = ""
    texts: bool = False
    folder: str = ""


def notifications(transitions: Iterable[Transition], context: NotificationContext) -> list[Notification]:
    """The notifications of these transitions, in order.

    A finding that another one explains gets none. It may have got one before the other was found: so a resolve is
    always made, and goes only to receivers that got the firing one.
    """
    listed = sorted(pasteable(context.snapshot, context.folder).findings, key=lambda finding: finding.fired_step)
    findings = {(each.rule, each.key, each.attempt): each for each in listed}
    recent = cache(
        lambda name: tuple(filter(math.isfinite, context.recent(name, POINTS)))
    )  # the transitions of a burst, possibly thousands, share the same series
    made = []
    for transition in transitions:
        status = _status(transition)
        if status is None:
            continue
        finding = findings.get((transition.rule, transition.key, transition.attempt))
        if status == RESOLVED or finding is None or finding.caused_by is None:
            made.append(_notification(transition, status, finding, context, recent))
    return made


def firing(run: str, alerts: Alerts) -> Iterator[Transition]:
    """For each firing alert of a run, the transition that made it fire, with its original id."""
    for (rule, key), alert in alerts.items():
        if alert.state is AlertState.FIRING:
            step = alert.first_step if alert.fired_step is None else alert.fired_step
            yield transition_of(run, (rule, key), alert, AlertState.PENDING, step)


def over(fired: Notification, alerts: Alerts, at: float) -> Notification | None:
    """The resolve, at ``at`` (Unix seconds), of an alert that a receiver has as firing and that no longer fires.

    It has the id and step of the run's own resolve, of the last one if the alert fired again meanwhile. If the alert
    has been pending since, that is unknown: the id is a new one, the step the one at which it became pending. None for
    alerts that only the watch itself resolves.
    """
    place = (fired.rule, fired.key)
    alert = alerts.get(place)
    if alert is not None and alert.resolved_step is not None:
        name, step = transition_id(fired.run, *place, alert, AlertState.RESOLVED), alert.resolved_step
    elif fired.rule != OWN_RULE or (alert is not None and alert.state is AlertState.RESOLVED):
        name = hashlib.blake2b(f"{fired.id}\x1fover".encode(), digest_size=16).hexdigest()
        step = fired.step if alert is None else max(fired.step, alert.first_step)
    else:
        return None
    return replace(fired, id=name, status=RESOLVED, step=step, ended=at, at=at)


def runbook_of(rule: str, template: str) -> str:
    """The address of a rule's runbook, or the command that shows it."""
    return template.replace("{rule}", quote(rule, safe="")) if template else f"grpo-watch explain {rule}"


def cause_of(finding: Finding, language: str) -> str:
    """The likeliest causes as one text."""
    causes = [sentence_words(language, cause) for cause in finding.causes[:CAUSES]]
    return say(language, "; ").join(cause.rstrip(".。") for cause in causes)


def _headline(finding: Finding, context: NotificationContext) -> str:
    """The finding's headline as it was before it resolved."""
    return in_short(replace(finding, resolved_step=None), context.snapshot.language, context.snapshot.findings)


def _ended(transition: Transition, context: NotificationContext) -> str:
    """Why an alert is over: how long it lasted, and the current values of the metrics in its evidence."""
    language, values = context.snapshot.language, context.snapshot.values
    if transition.attempt < context.snapshot.attempt or transition.step < transition.first_step:
        return say(language, "The run was restarted from a step before it.")
    now = [
        f"{label_of(name, language)} {rounded(float(was))} → {rounded(value)}"
        for name, was in transition.reading.evidence.items()
        if isinstance(was, int | float) and (value := values.get(name)) is not None and value != was
    ]
    lasted = transition.step - transition.first_step
    words = "It lasted 1 step." if lasted == 1 else "It lasted {n} steps."
    return say(language, words, n=lasted) + (say(language, " Now: {values}.", values=", ".join(now)) if now else "")


def digest(parts: Sequence[Notification], at: float) -> Notification:
    """Merge notifications into one; its id follows from theirs. ``at`` is Unix seconds."""
    runs = sorted({part.run for part in parts})
    begun = [part for part in parts if part.status != RESOLVED]
    worst = max(begun or parts, key=lambda part: Severity(part.severity).rank)
    say_so, ended = partial(say, worst.language), len(parts) - len(begun)
    counts = [say_so("{n} firing", n=len(begun))] if begun else []
    counts += [say_so("{n} resolved", n=ended)] if ended else []
    where = runs[0] if len(runs) == 1 else say_so("{n} runs", n=len(runs))
    return Notification(
        id=hashlib.blake2b("\x1f".join(part.id for part in parts).encode(), digest_size=16).hexdigest(),
        status=FIRING if begun else RESOLVED,
        run=where,
        rule="digest",
        severity=worst.severity,
        summary=say_so("{n} alerts of {runs}: {counts}", n=len(parts), runs=where, counts=", ".join(counts)),
        started=min(part.started for part in parts),
        at=at,
        page=worst.page,
        parts=tuple(parts),
        language=worst.language,
    )


def _status(transition: Transition) -> str | None:
    if transition.to_state is AlertState.FIRING:
        return FIRING
    ends = transition.from_state is AlertState.FIRING and transition.to_state is AlertState.RESOLVED
    return RESOLVED if ends else None


def _notification(
    transition: Transition, status: str, finding: Finding | None, context: NotificationContext, recent: Recent
) -> Notification:
    reading = transition.reading
    at = context.at if transition.time is None else min(transition.time, context.at)
    rule, language = context.rules.get(transition.rule, Rule(transition.rule)), context.snapshot.language
    severity = transition.severity if finding is None else finding.severity
    return Notification(
        id=transition.id,
        status=status,
        run=transition.run,
        attempt=transition.attempt,
        rule=transition.rule,
        key=transition.key,
        severity=severity.value,
        step=transition.step,
        first_step=transition.first_step,
        max_steps=context.snapshot.max_steps,
        summary=rule.summary or reading.message,
        message=rule.says(reading.message),
        evidence={name: value for name, value in reading.evidence.items() if context.texts or name != EXAMPLE},
        hint=finding.hint if finding else rule.advice(context.snapshot.framework, reading.hint),
        cause=cause_of(finding, language) if finding else "",
        caused_by=finding.caused_by if finding else None,
        started=at,
        ended=at if status == RESOLVED else None,
        at=context.at,
        labels=dict(context.labels),
        page=context.page and f"{context.page}#/run/{slug(transition.run)}",
        runbook=runbook_of(transition.rule, context.runbook),
        series=_series(reading.evidence, recent),
        headline=_headline(finding, context) if finding else "",
        why=_ended(transition, context) if status == RESOLVED else "",
        language=language,
    )


def _series(evidence: Iterable[str], recent: Recent) -> dict[str, tuple[float, ...]]:
    """The newest points of the metrics in the evidence, and of ``ALWAYS_SHOWN``."""
    found = {name: recent(name) for name in dict.fromkeys((*evidence, *ALWAYS_SHOWN))}
    return dict(islice(((name, points) for name, points in found.items() if points), SERIES))
