"""The cost of findings that stop learning: steps, hours, GPU-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_watch.engine.diagnosis import Finding, Relations, Waste, explains
from grpo_watch.engine.engine import RunState
from grpo_watch.engine.records import Severity
from grpo_watch.engine.traits import WasteKind

LONG_STEPS = 20
"""A resolved finding shorter than this many optimizer steps counts as free."""
SECONDS_PER_HOUR = 3600.0


def with_waste(findings: Sequence[Finding], run: RunState, relations: Relations | None = None) -> tuple[Finding, ...]:
    """The findings, each with the waste beyond that of the findings before it: the estimates may be added up.

    Only findings that nothing explains carry a cost. Their consequences lie in their span: learning stopped at the
    first sign, not when its cause was named. ``relations`` are those of the run's monitors, if the caller has them.
    """
    known = relations or Relations(run.monitors)
    counted: list[tuple[int, int, int]] = []
    costed = []
    for finding in findings:
        traits = known.traits(finding.rule)
        if finding.key in traits.learning_goes_on:
            costed.append(finding)
            continue
        if traits.wastes is WasteKind.SILENCE:
            costed.append(replace(finding, wasted=_silence(finding, run)))
            continue
        span = _span(finding, findings, run, known)
        begin, end = span or (0, 0)
        steps = _uncounted(begin, end, [(b, e) for attempt, b, e in counted if attempt == finding.attempt])
        if steps <= 0:
            costed.append(finding)
            continue
        counted.append((finding.attempt, begin, end))
        costed.append(replace(finding, wasted=estimate(steps, run)))
    return tuple(costed)


def estimate(steps: int, run: RunState) -> Waste:
    """The cost of ``steps`` optimizer steps at the run's median pace.

    GPU-hours count the training processes; the GPUs of a separate rollout server are unknown and come on top.
    """
    seconds = run.pace.median()
    return Waste(steps) if seconds is None else _timed(steps, steps * seconds, run)


def _timed(steps: int, seconds: float, run: RunState) -> Waste:
    world, hours = run.number("world_size"), seconds / SECONDS_PER_HOUR
    return Waste(steps, hours, hours * world if world is not None and world >= 1 else None)


def _silence(finding: Finding, run: RunState) -> Waste | None:
    """The time since the last row, while a live run hangs; None for recorded runs, whose time alive is unknown."""
    if finding.severity is not Severity.CRITICAL or finding.caused_by is not None:
        return None
    recorded = finding.evidence.get("silent_seconds")
    seconds = recorded if isinstance(recorded, int | float) else 0.0
    if finding.resolved_step is None and run.now is not None and run.latest_row_time is not None:
        seconds = max(seconds, run.now - run.latest_row_time)
    return _timed(0, seconds, run) if seconds > 0 else None


def wasted(finding: Finding) -> dict[str, float | None] | None:
    """The finding's cost so far as JSON; None if nothing is counted."""
    cost = finding.wasted
    return None if cost is None else {"steps": cost.steps, "hours": cost.hours, "gpu_hours": cost.gpu_hours}


def _span(finding: Finding, findings: Sequence[Finding], run: RunState, relations: Relations) -> tuple[int, int] | None:
    """First and last step at which the finding and its consequences stopped learning; None if nothing is wasted.

    That is so if another finding explains it, if neither it nor a consequence stops learning, or if all of them are
    over and were short.
    """
    if finding.caused_by is not None:
        return None
    if relations.traits(finding.rule).wastes is WasteKind.SINCE_SAVE:
        return _since_save(finding, run)
    parts = [part for part in (finding, *_consequences(finding, findings, relations)) if _stops(part, relations)]
    if not parts:
        return None
    begin, end = min(part.first_step for part in parts), max(_end(part, run) for part in parts)
    over = all(part.resolved_step is not None for part in parts)
    return None if over and end - begin < LONG_STEPS else (begin, end)


def _consequences(finding: Finding, findings: Sequence[Finding], relations: Relations) -> list[Finding]:
    """The finding's direct and indirect consequences.

    Episodes of two rules may explain each other in turns, so each is taken once.
    """
    found = [finding]
    for cause in found:
        found += [
            other
            for other in findings
            if other.caused_by == cause.rule and other not in found and explains(cause, other, relations)
        ]
    return found[1:]


def _since_save(finding: Finding, run: RunState) -> tuple[int, int] | None:
    """The steps lost by a crash: back to where the run went on, or would from its newest checkpoint.

    None if no checkpoint is known, unless the run was to save and did not get so far.
    """
    last, saved = finding.evidence.get("last_step"), run.saved
    if finding.resolved_step is not None:
        saved = finding.resolved_step - 1
    elif saved is None and run.known("save_steps"):
        saved = 0
    return (saved, last) if isinstance(last, int) and saved is not None else None


def _stops(finding: Finding, relations: Relations) -> bool:
    kind = relations.traits(finding.rule).wastes
    if kind is WasteKind.STEPS_IF_CRITICAL:
        return finding.severity is Severity.CRITICAL
    return kind is WasteKind.STEPS and finding.severity.rank >= Severity.WARNING.rank


def _end(finding: Finding, run: RunState) -> int:
    """The finding's last step; in an attempt that is over, only the steps until it fired are certain."""
    if finding.resolved_step is not None:
        return finding.resolved_step
    return run.step if finding.attempt == run.attempt else finding.fired_step


def _uncounted(begin: int, end: int, counted: Sequence[tuple[int, int]]) -> int:
    steps, at = 0, begin
    for first, last in sorted(counted):
        steps += max(0, min(first, end) - at)
        at = max(at, last)
    return steps + max(0, end - at)
