"""The rules in force, and the effect of changed rules on stored alerts: at most one transition each, at the cursor."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct, field

from grpo_watch import __version__
from grpo_watch.engine.alerts import Alert, transition_id, transition_of
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.records import AlertState, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import GrpoWatchError

log = logging.getLogger("grpo_watch.daemon")


class RulesInForce:
    """Rules that can be reloaded; if loading fails, the old ones stay in force.

    Args:
        load: reads the rules; called at the start and at each reload. May raise ``GrpoWatchError``.
    """

    def __init__(self, load: Callable[[], RuleSet]) -> None:
        self._load = load
        self.wanted = False
        """Whether the next ``reload`` loads."""
        self.now = load()
        self.problem = ""
        """Why the files do not load; empty while they do."""

    def want(self) -> None:
        """Load the rules at the next ``reload``; any thread may call this."""
        self.wanted = True

    def reload(self) -> bool:
        """Load the rules if that is wanted; returns whether they changed."""
        if not self.wanted:
            return False
        self.wanted = False
        try:
            rules = self._load()
        except GrpoWatchError as error:
            self.problem = str(error)
            log.error("settings not reloaded; the old ones stay", extra={"fields": {"error": str(error)}})  # noqa: TRY400
            return False
        self.problem = ""
        changed = rules != self.now
        self.now = rules
        return changed


Key = tuple[str, str]
"""Rule and key of an alert."""

_NEVER = Alert()


class RuleSet(Struct, frozen=True):
    """The enabled rules, the detectors, and a fingerprint per rule."""

    rules: tuple[Rule, ...]
    detectors: Mapping[str, type[Detector]]
    fingerprints: Mapping[str, str] = field(default_factory=dict)


def rule_set(rules: Sequence[Rule], detectors: Mapping[str, type[Detector]]) -> RuleSet:
    """The rules that are enabled for any run, with their fingerprints."""
    enabled = tuple(rule for rule in rules if rule.anywhere)
    return RuleSet(enabled, detectors, {rule.name: fingerprint(rule, detectors) for rule in enabled})


def fingerprint(rule: Rule, detectors: Mapping[str, type[Detector]]) -> str:
    """A hash of all that decides a rule's readings: this version, detector, parameters, distances and severity."""
    parts = (
        __version__,
        rule.when or "",
        sorted(rule.params.items()),
        rule.for_steps,
        rule.keep_firing_steps,
        rule.min_observations,
        rule.severity.value,
        *((sorted(each.match.items()), sorted(each.changes.items(), key=str)) for each in rule.overrides),
    )
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=12)
    if rule.when is None:
        detector = detectors[rule.detector or rule.name]
        file = sys.modules[detector.__module__].__file__
        digest.update(Path(file).read_bytes() if file else b"")
    return digest.hexdigest()


class SettledAlerts(Struct, frozen=True):
    """The alerts as they continue, and the transitions to send."""

    alerts: Mapping[Key, Alert]
    transitions: tuple[Transition, ...]


def reconcile(
    run: str, loaded: Mapping[Key, Alert], reached: Mapping[Key, Alert], rules: RuleSet, step: int
) -> SettledAlerts:
    """Compare the stored alerts with those of a replay under the rules in force.

    If both agree there is no transition: under the same rules they agree everywhere. Counters never decrease, and an
    alert whose history differs begins a new episode, so that no later transition has the id of an earlier one.

    Args:
        run: name of the run.
        loaded: the stored alerts.
        reached: the alerts after the replay.
        rules: the rules in force.
        step: the newest step, the step of the transitions.
    """
    alerts: dict[Key, Alert] = {}
    transitions: list[Transition] = []
    for key in sorted(loaded.keys() | reached.keys()):
        before, after = loaded.get(key, _NEVER), reached.get(key, _NEVER)
        alerts[key] = _carried(before, after)
        change = _change(before, after)
        if change is not None:
            alert = (
                alerts[key]
                if change[1] is AlertState.FIRING
                else replace(before, state=AlertState.RESOLVED, resolved_step=step)
            )
            mark = f"{key[0]}\x1f{rules.fingerprints.get(key[0], 'removed')}"
            name = transition_id(run, mark, key[1], alert, alert.state)
            transitions.append(replace(transition_of(run, key, alert, change[0], step), id=name))
    return SettledAlerts(alerts, tuple(transitions))


def _carried(before: Alert, after: Alert) -> Alert:
    """The replay's alert, with counters that continue from the stored ones."""
    differs = after.state is not before.state
    begins = differs and after.state in {AlertState.FIRING, AlertState.PENDING}
    return replace(
        after,
        episode=before.episode + 1 if begins else max(before.episode, after.episode),
        fired_total=before.fired_total + (differs and after.state is AlertState.FIRING),
    )


def _change(before: Alert, after: Alert) -> tuple[AlertState, AlertState] | None:
    fires, fired = after.state is AlertState.FIRING, before.state is AlertState.FIRING
    if fires and not fired:
        return before.state, AlertState.FIRING
    if fired and not fires:
        return AlertState.FIRING, AlertState.RESOLVED
    if fires and after.severity.rank > before.severity.rank:
        return AlertState.FIRING, AlertState.FIRING
    return None
