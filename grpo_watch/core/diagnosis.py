"""Turns the episodes of a run into findings: one top finding, the others marked as its consequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from grpo_watch.core.monitor import Monitor
from grpo_watch.core.records import Scalar, Severity

CAUSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "run-crashed": ("group-size-one", "batch-not-divisible", "non-finite-metric", "memory-creep"),
        "run-stalled": ("run-crashed", "non-finite-metric"),
        "learning-rate-zero": (),
        "gradient-lost": ("non-finite-metric",),
        "adapter-never-trained": ("learning-rate-zero", "gradient-lost", "reward-variance-collapse"),
        "parameters-unchanged": (
            "learning-rate-zero",
            "gradient-lost",
            "adapter-never-trained",
            "reward-variance-collapse",
        ),
        "kl-stuck-at-zero": (
            "reference-follows-policy",
            "learning-rate-zero",
            "gradient-lost",
            "adapter-never-trained",
            "parameters-unchanged",
            "reward-variance-collapse",
        ),
        "kl-explosion": ("non-finite-metric", "stale-rollout-weights"),
        "entropy-collapse": ("non-finite-metric",),
        "entropy-explosion": ("non-finite-metric", "stale-rollout-weights"),
        "grad-norm-spike": ("non-finite-metric",),
        "clip-fraction-high": ("kl-explosion",),
        "reward-collapse": ("non-finite-metric", "stale-rollout-weights"),
        "length-explosion": ("non-finite-metric", "stale-rollout-weights"),
        "length-collapse": ("non-finite-metric",),
        "reward-variance-collapse": (
            "non-finite-metric",
            "duplicate-completions",
            "completions-truncated",
            "empty-completions",
            "gibberish-completions",
            "entropy-collapse",
            "entropy-explosion",
            "reward-collapse",
            "near-duplicate-completions",
        ),
        "duplicate-completions": ("non-finite-metric",),
        "near-duplicate-completions": ("non-finite-metric", "duplicate-completions", "entropy-collapse"),
        "gibberish-completions": (
            "non-finite-metric",
            "stale-rollout-weights",
            "kl-explosion",
            "entropy-explosion",
            "entropy-collapse",
        ),
        "completions-truncated": (
            "non-finite-metric",
            "stale-rollout-weights",
            "kl-explosion",
            "entropy-explosion",
            "gibberish-completions",
        ),
        "empty-completions": ("non-finite-metric", "stale-rollout-weights", "kl-explosion"),
        "train-rollout-mismatch": ("non-finite-metric", "stale-rollout-weights", "entropy-explosion"),
        "reward-not-finite": ("non-finite-metric",),
        "metric-vanished": ("non-finite-metric", "reward-not-finite"),
        "dead-reward-component": ("non-finite-metric", "reward-collapse", "completions-truncated"),
        "step-time-regression": ("length-explosion",),
        "memory-creep": ("length-explosion",),
    }
)
"""For each rule the rules that explain it, best explanation first. The relation has no cycles (tested)."""

ONE_COLLAPSE = frozenset(
    {
        "kl-explosion",
        "entropy-collapse",
        "entropy-explosion",
        "reward-collapse",
        "length-explosion",
        "length-collapse",
    }
)
"""Symptoms of one collapse, in any order: the one that began first (and is no milder) explains the others."""

WITHDRAWN: Mapping[str, str] = MappingProxyType({"kl-stuck-at-zero": "reference-follows-policy"})
"""A finding that its cause does not merely explain but refutes: the weights do move, so it becomes an ``info``."""


@dataclass(frozen=True, slots=True)
class Waste:
    """What a finding cost so far: optimizer steps, hours at the run's median pace, hours × training processes.

    Hours are None while the pace is unknown, GPU-hours also while the world size is.
    """

    steps: int
    hours: float | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One episode of one rule, as people and scripts see it (steps are optimizer steps).

    ``causes`` are likely causes, likeliest first; ``wasted`` is None where learning did not stop or another finding
    counts the same steps.
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


def diagnose(monitors: Iterable[Monitor]) -> tuple[Finding, ...]:
    """All findings of a run, the top one first, then by severity, step and rule."""
    findings = [
        _finding(monitor, episode_index) for monitor in monitors for episode_index in range(len(monitor.episodes))
    ]
    explained = [_explain(finding, findings) for finding in findings]
    return tuple(sorted(explained, key=_rank))


def _finding(monitor: Monitor, index: int) -> Finding:
    episode, rule = monitor.episodes[index], monitor.rule
    severity = episode.severity
    if rule.name == "run-crashed" and episode.resolved_step is not None:
        severity = min(severity, Severity.WARNING, key=lambda level: level.rank)
    evidence = dict(episode.reading.evidence)
    return Finding(
        rule=rule.name,
        key=episode.key,
        severity=severity,
        attempt=episode.attempt,
        first_step=episode.first_step,
        fired_step=episode.fired_step,
        resolved_step=episode.resolved_step,
        evidence=evidence,
        summary=episode.reading.message or rule.summary,
        hint=episode.reading.hint or rule.hint,
    )


def _explain(finding: Finding, others: Sequence[Finding]) -> Finding:
    for cause in CAUSES.get(finding.rule, ()):
        if any(explains(other, finding) for other in others if other.rule == cause):
            cap = Severity.INFO if WITHDRAWN.get(finding.rule) == cause else Severity.WARNING
            return replace(finding, caused_by=cause, severity=min(finding.severity, cap, key=lambda level: level.rank))
    if finding.rule in ONE_COLLAPSE:
        earlier = [other for other in others if other.rule in ONE_COLLAPSE and _precedes(other, finding)]
        if earlier:
            first = min(earlier, key=_begin)
            return replace(
                finding, caused_by=first.rule, severity=min(finding.severity, Severity.WARNING, key=lambda s: s.rank)
            )
    return finding


def _precedes(cause: Finding, effect: Finding) -> bool:
    return (
        cause.rule != effect.rule
        and _begin(cause) < _begin(effect)
        and cause.severity.rank >= effect.severity.rank
        and explains(cause, effect)
    )


def _begin(finding: Finding) -> tuple[int, int, str]:
    return finding.first_step, finding.fired_step, finding.rule


def explains(cause: Finding, effect: Finding) -> bool:
    """Whether the one may explain the other: same attempt, worth a look, and at least partly at the same time."""
    return (
        cause.attempt == effect.attempt
        and cause.severity.rank >= Severity.WARNING.rank
        and (cause.resolved_step is None or cause.resolved_step >= effect.first_step)
        and (effect.resolved_step is None or effect.resolved_step >= cause.first_step)
    )


def _rank(finding: Finding) -> tuple[bool, bool, int, int, str, str]:
    return (
        finding.resolved_step is not None,
        finding.caused_by is not None,
        -finding.severity.rank,
        finding.fired_step,
        finding.rule,
        finding.key,
    )
