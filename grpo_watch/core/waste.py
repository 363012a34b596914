"""Turns findings that stop learning into what they cost so far: steps, hours, GPU-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_watch.core.diagnosis import Finding, Waste
from grpo_watch.core.pace import duration
from grpo_watch.core.records import Severity
from grpo_watch.core.runstate import RunState

STOPS_LEARNING = frozenset(
    {
        "kl-stuck-at-zero",
        "gradient-lost",
        "parameters-unchanged",
        "adapter-never-trained",
        "learning-rate-zero",
        "ranks-diverged",
        "reward-variance-collapse",
        "reward-not-finite",
        "reward-collapse",
        "group-size-one",
        "non-finite-metric",
        "stale-rollout-weights",
        "mixed-prompt-group",
        "duplicate-completions",
        "empty-completions",
        "gibberish-completions",
    }
)
"""Rules whose finding says that the steps it lasts teach the policy nothing, or the wrong thing."""
LONG_STEPS = 20
"""A resolved finding shorter than this many optimizer steps costs too little to speak of."""
SECONDS_PER_HOUR = 3600.0
LEAST_GPU_HOURS = 0.1
"""Less than this is not worth a word to people."""


def with_waste(findings: Sequence[Finding], run: RunState) -> tuple[Finding, ...]:
    """The findings, each with what it wasted beyond the findings before it: the estimates may be added up."""
    counted: list[tuple[int, int, int]] = []
    told = []
    for finding in findings:
        begin, end = _span(finding, run)
        steps = _uncounted(begin, end, [(b, e) for attempt, b, e in counted if attempt == finding.attempt])
        if steps <= 0 or not _counts(finding, end - begin):
            told.append(finding)
            continue
        counted.append((finding.attempt, begin, end))
        told.append(replace(finding, wasted=estimate(steps, run)))
    return tuple(told)


def estimate(steps: int, run: RunState) -> Waste:
    """What ``steps`` optimizer steps cost at the run's median pace.

    GPU-hours count the training processes; the GPUs of a separate rollout server are not known and come on top.
    """
    seconds = run.pace.median()
    world = run.number("world_size")
    if seconds is None:
        return Waste(steps)
    hours = steps * seconds / SECONDS_PER_HOUR
    return Waste(steps, hours, hours * world if world is not None and world >= 1 else None)


def wasted(finding: Finding) -> dict[str, float | None] | None:
    """What the finding cost so far, as JSON; None where nothing is counted."""
    cost = finding.wasted
    return None if cost is None else {"steps": cost.steps, "hours": cost.hours, "gpu_hours": cost.gpu_hours}


def wasted_text(waste: Waste) -> str:
    """The cost in words: ``31 steps · about 12 minutes · 1.6 GPU-hours``."""
    parts = [f"{waste.steps} step{'s' if waste.steps != 1 else ''}"]
    if waste.hours is not None:
        parts.append(f"about {duration(waste.hours * SECONDS_PER_HOUR)}")
    if waste.gpu_hours is not None and waste.gpu_hours >= LEAST_GPU_HOURS:
        parts.append(f"{waste.gpu_hours:.3g} GPU-hours")
    return " · ".join(parts)


def _span(finding: Finding, run: RunState) -> tuple[int, int]:
    """First and last step of the finding; of an attempt that is over, only what it lasted until it fired is sure."""
    if finding.resolved_step is not None:
        return finding.first_step, finding.resolved_step
    return finding.first_step, run.step if finding.attempt == run.attempt else finding.fired_step


def _counts(finding: Finding, steps: int) -> bool:
    """Whether it is a top finding that stops learning, and goes on or lasted long."""
    return (
        finding.rule in STOPS_LEARNING
        and finding.caused_by is None
        and finding.severity.rank >= Severity.WARNING.rank
        and (finding.resolved_step is None or steps >= LONG_STEPS)
    )


def _uncounted(begin: int, end: int, counted: Sequence[tuple[int, int]]) -> int:
    """Steps from ``begin`` to ``end`` that no counted span covers."""
    steps, at = 0, begin
    for first, last in sorted(counted):
        steps += max(0, min(first, end) - at)
        at = max(at, last)
    return steps + max(0, end - at)
