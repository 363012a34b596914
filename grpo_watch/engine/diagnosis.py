"""Turns the episodes of a run into findings: root causes, their consequences, and likely causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_watch.engine.engine import Monitor, RunState
from grpo_watch.engine.records import CompletionSummary, Scalar, Severity
from grpo_watch.engine.rule import filled
from grpo_watch.engine.traits import MOST, Traits, likely


def causes_of(detectors: Mapping[str, type[Traits]]) -> dict[str, tuple[str, ...]]:
    """For each detector the names of the detectors that explain it, best first."""
    return {name: traits.explained_by for name, traits in detectors.items()}


class Relations:
    """The traits of the rules that watch one run, by the rule's name.

    A rule under its own name has the traits of the detector that it uses.
    """

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._traits: dict[str, type[Traits]] = {each.rule.name: type(each.detector) for each in monitors}
        self._names = {
            each.rule.name: each.rule.detector or each.rule.name for each in monitors if each.rule.when is None
        }
        self._of_completions = {each.rule.name for each in monitors if CompletionSummary in each.detector.reads}
        self._candidates: dict[str, frozenset[str]] = {}

    def traits(self, rule: str) -> type[Traits]:
        """The traits of the rule's detector; the defaults if the rule is unknown."""
        return self._traits.get(rule, Traits)

    def reads_completions(self, rule: str) -> bool:
        """Whether the rule's findings may begin at a step of dumped completions, between two rows of metrics."""
        return rule in self._of_completions

    def rank(self, cause: str, effect: str) -> int | None:
        """The place of ``cause`` among the rules that explain ``effect`` (0: best); None if it does not explain it."""
        causes, name = self.traits(effect).explained_by, self._name(cause)
        return causes.index(name) if name in causes else None

    def candidates(self, effect: str) -> frozenset[str]:
        """The rules of this run whose findings may explain one of the given rule; may include that rule."""
        if effect not in self._candidates:
            collapse = self.traits(effect).part_of_collapse
            self._candidates[effect] = frozenset(
                rule
                for rule, traits in self._traits.items()
                if self.rank(rule, effect) is not None or (collapse and traits.part_of_collapse)
            )
        return self._candidates[effect]

    def withdraws(self, cause: str, effect: str) -> bool:
        """Whether the cause refutes the finding instead of explaining it."""
        return self.traits(effect).withdrawn_by == self._name(cause)

    def kinds(self, cause: str, effect: str) -> tuple[str, ...] | None:
        """The values of the evidence ``kind`` that the cause explains; None for all."""
        return self.traits(effect).explained_only_as.get(self._name(cause))

    def _name(self, rule: str) -> str:
        return self._names.get(rule, rule)


LATE = 10
"""Steps by which a cause may be detected after its effect: most rules judge a window of five or ten rows, and a row of
metrics covers the steps since the previous row."""


@dataclass(frozen=True, slots=True)
class Waste:
    """The cost of a finding so far: optimizer steps, hours at the run's median pace, hours × training processes.

    Hours are None while the pace is unknown, GPU-hours also while the world size is.
    """

    steps: int
    hours: float | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One episode of one rule, as people and scripts see it (steps are optimizer steps).

    ``causes`` are likely causes, likeliest first; ``wasted`` is None if learning did not stop or another finding counts
    the same steps. ``told_as`` is the severity with which it fired, if later evidence made it milder. ``episodes`` are
    first, fired and resolved step of each episode, if a report shows several as one finding; ``headline`` is the
    problem in a few plain words; ``message`` the detector's own, in English.
    """

    rule: str
    key: str
    severity: Severity
    attempt: int
    first_step: int
    fired_step: int
    resolved_step: int | None
    evidence: Mapping[str, Scalar]
    summary: str
    hint: str
    caused_by: str | None = None
    wasted: Waste | None = None
    causes: tuple[str, ...] = ()
    told_as: Severity | None = None
    episodes: tuple[tuple[int, int, int | None], ...] = ()
    headline: str = ""
    message: str = ""

    @property
    def told_severity(self) -> Severity:
        """The severity with which it fired."""
        return self.told_as or self.severity

    @property
    def resolved(self) -> str:
        """Where the finding ended, in words; empty while open. An end before the fired step is in a later attempt."""
        if self.resolved_step is None:
            return ""
        return f"{self.resolved_step}{' of a later attempt' if self.resolved_step < self.fired_step else ''}"


def diagnose(
    monitors: Sequence[Monitor], framework: str | None = None, relations: Relations | None = None
) -> tuple[Finding, ...]:
    """All findings of a run, the top one first, then by severity, step and rule, with the framework's own hints.

    ``relations`` are those of the monitors, if the caller has them.
    """
    findings = [_finding(monitor, index, framework) for monitor in monitors for index in range(len(monitor.episodes))]
    known = relations or Relations(monitors)
    explained = [_settled(_explain(finding, findings, known), known) for finding in findings]
    return tuple(sorted(explained, key=_rank))


def _settled(finding: Finding, relations: Relations) -> Finding:
    if finding.resolved_step is None or not relations.traits(finding.rule).harmless_when_over:
        return finding
    return replace(finding, severity=Severity.INFO, told_as=finding.told_severity)


def _finding(monitor: Monitor, index: int, framework: str | None) -> Finding:
    episode, rule = monitor.episodes[index], monitor.rule
    severity = episode.severity
    if monitor.detector.ends_run and episode.resolved_step is not None:
        severity = min(severity, Severity.WARNING, key=lambda level: level.rank)
    worst = episode.worst or episode.reading
    evidence = {**worst.evidence, **({"at_step": episode.worst_step} if episode.worst else {})}
    return Finding(
        rule=rule.name,
        key=episode.key,
        severity=severity,
        attempt=episode.attempt,
        first_step=episode.first_step,
        fired_step=episode.fired_step,
        resolved_step=episode.resolved_step,
        evidence=evidence,
        summary=rule.says(worst.message),
        hint=filled(rule.advice(framework, episode.reading.hint), evidence),
        told_as=episode.severity if severity is not episode.severity else None,
        headline=episode.reading.headline or rule.headline_at(episode.severity),
        message=worst.message,
    )


def _explain(finding: Finding, others: Sequence[Finding], relations: Relations) -> Finding:
    cause = _cause(finding, others, relations)
    if cause is None:
        return finding
    severity = _capped(finding.severity, finding.rule, cause, relations)
    known = _cause(finding, [other for other in others if other.fired_step <= finding.fired_step], relations)
    fired_as = _capped(finding.told_severity, finding.rule, known, relations)
    return replace(finding, caused_by=cause, severity=severity, told_as=fired_as if fired_as is not severity else None)


def _cause(finding: Finding, others: Sequence[Finding], relations: Relations) -> str | None:
    """The rule that explains the finding, or None; in a run with many findings, only possible causes are tried."""
    possible = relations.candidates(finding.rule)
    if not possible:
        return None
    causes = [other for other in others if other.rule in possible and explains(other, finding, relations)]
    return _best(finding, causes, relations)


def _capped(severity: Severity, rule: str, cause: str | None, relations: Relations) -> Severity:
    """The finding's severity, given the rule that explains it."""
    if cause is None:
        return severity
    cap = Severity.INFO if relations.withdraws(cause, rule) else Severity.WARNING
    return min(severity, cap, key=lambda level: level.rank)


def _best(effect: Finding, possible: Sequence[Finding], relations: Relations) -> str | None:
    """The rule that explains the finding best: one that began before it, then by the order of ``explained_by``.

    Among the symptoms of one collapse, the first to appear explains the others.
    """
    ranked = [(rank, cause) for cause in possible if (rank := relations.rank(cause.rule, effect.rule)) is not None]
    if not ranked:
        return _earliest(other for other in possible if _precedes(other, effect, relations))
    _, best = min(ranked, key=lambda each: (_shows_late(each[1], effect, relations), each[0]))
    if not relations.traits(best.rule).part_of_collapse:
        return best.rule
    return _earliest(cause for _, cause in ranked if relations.traits(cause.rule).part_of_collapse)


def _earliest(findings: Iterable[Finding]) -> str | None:
    first = min(findings, key=_begin, default=None)
    return first.rule if first else None


def _shows_late(cause: Finding, effect: Finding, relations: Relations) -> bool:
    return not relations.traits(cause.rule).seen_in_checkpoints and cause.first_step > effect.first_step


def _precedes(cause: Finding, effect: Finding, relations: Relations) -> bool:
    """Whether one symptom of a collapse began before another and is no milder."""
    one_collapse = all(relations.traits(each.rule).part_of_collapse for each in (cause, effect))
    return (
        one_collapse
        and cause.rule != effect.rule
        and _begin(cause) < _begin(effect)
        and cause.severity.rank >= effect.severity.rank
    )


def _begin(finding: Finding) -> tuple[int, int, str]:
    return finding.first_step, finding.fired_step, finding.rule


def explains(cause: Finding, effect: Finding, relations: Relations) -> bool:
    """Whether ``cause`` may explain ``effect``.

    Both must be in the same attempt and overlap; the cause must be a warning or worse, and begin no more than ``LATE``
    steps after the effect (or show in checkpoints only). A cause whose fault begins in the row that shows it explains
    nothing that began in an earlier row; completions may show its effect before the row that covers them.
    """
    kinds = relations.kinds(cause.rule, effect.rule)
    in_checkpoints = relations.traits(cause.rule).seen_in_checkpoints
    return (
        cause.attempt == effect.attempt
        and cause.severity.rank >= Severity.WARNING.rank
        and (cause.resolved_step is None or cause.resolved_step >= effect.first_step)
        and (effect.resolved_step is None or effect.resolved_step >= cause.first_step)
        and (in_checkpoints or cause.first_step <= effect.first_step + _delay(cause, effect, relations))
        and (kinds is None or effect.evidence.get("kind") in kinds)
    )


def _delay(cause: Finding, effect: Finding, relations: Relations) -> int:
    at_once = relations.traits(cause.rule).begins_when_seen and not relations.reads_completions(effect.rule)
    return 0 if at_once else LATE


def with_causes(findings: Sequence[Finding], run: RunState, relations: Relations | None = None) -> tuple[Finding, ...]:
    """The findings; those that nothing explains get their likely causes in this run.

    ``relations`` are those of the run's monitors, if the caller has them.
    """
    known = relations or Relations(run.monitors)
    bugs = [each for each in findings if known.traits(each.rule).names_causes and each.resolved_step is None]
    return tuple(_with_causes(finding, run, known, bugs) for finding in findings)


def _with_causes(finding: Finding, run: RunState, relations: Relations, bugs: Sequence[Finding]) -> Finding:
    traits = relations.traits(finding.rule)
    if finding.caused_by is not None or finding.severity is Severity.INFO or finding.key in traits.learning_goes_on:
        return finding
    said = finding.message or finding.summary
    named = tuple(bug.message for bug in bugs if finding.rule in str(bug.evidence.get("explains", "")).split())
    return replace(finding, causes=(*named, *likely(traits.likely_causes, run, said))[:MOST])


def first_sign(finding: Finding, findings: Iterable[Finding]) -> Finding:
    """The earliest of the finding and its direct and indirect consequences in the same attempt.

    A cause often shows only after its consequences, since checkpoints are rare.
    """
    others = [other for other in findings if other.attempt == finding.attempt and other.caused_by is not None]
    rules, family = {finding.rule}, [finding]
    while more := [other for other in others if other.caused_by in rules and other not in family]:
        family += more
        rules |= {other.rule for other in more}
    return min(family, key=lambda each: (each.first_step, each is not finding))


def earlier_sign(finding: Finding, findings: Iterable[Finding]) -> Finding | None:
    """The first sign of a finding if it is another finding at an earlier step, else None."""
    sign = first_sign(finding, findings)
    return None if sign is finding else sign


def _rank(finding: Finding) -> tuple[bool, bool, int, int, str, str]:
    return (
        finding.resolved_step is not None,
        finding.caused_by is not None,
        -finding.severity.rank,
        finding.fired_step,
        finding.rule,
        finding.key,
    )
