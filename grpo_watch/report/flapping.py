"""Joins episodes of one rule that follow each other closely: an alert that comes and goes is one finding with gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.engine.diagnosis import LATE, Finding, Waste
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.engine.window import plain_sum


def joined(snapshot: RunSnapshot) -> RunSnapshot:
    """The snapshot with such episodes as one finding, where the first of them stood in the list."""
    of_alert: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in snapshot.findings:
        of_alert.setdefault((finding.rule, finding.key, finding.attempt), []).append(finding)
    if all(len(found) == 1 for found in of_alert.values()):
        return snapshot
    stands_for = {id(part): chain for found in of_alert.values() for chain in _chains(found) for part in chain}
    listed: list[Finding] = []
    done: set[int] = set()
    for finding in snapshot.findings:
        chain = stands_for[id(finding)]
        if id(chain[0]) not in done:
            done.add(id(chain[0]))
            listed.append(_one(chain))
    return replace(snapshot, findings=tuple(listed))


def _chains(found: list[Finding]) -> Iterator[list[Finding]]:
    """Episodes in order; a gap of up to ``LATE`` steps, or no longer than the episode before it, joins two."""
    chain: list[Finding] = []
    for finding in sorted(found, key=lambda each: (each.first_step, each.fired_step)):
        if chain and not _follows(chain[-1], finding):
            yield chain
            chain = []
        chain.append(finding)
    yield chain


def _follows(before: Finding, after: Finding) -> bool:
    end = before.resolved_step
    if end is None or before.caused_by != after.caused_by:
        return False
    return after.first_step - end <= max(LATE, end - before.first_step)


def _one(chain: list[Finding]) -> Finding:
    """The newest episode with the first one's beginning, the worst severity if all is over, and the cost of all."""
    if len(chain) == 1:
        return chain[0]
    first, newest = chain[0], chain[-1]
    worst = max(chain, key=lambda each: each.severity.rank)
    return replace(
        newest,
        first_step=first.first_step,
        fired_step=first.fired_step,
        severity=newest.severity if newest.resolved_step is None else worst.severity,
        wasted=_sum([part.wasted for part in chain if part.wasted is not None]),
        episodes=tuple((part.first_step, part.fired_step, part.resolved_step) for part in chain),
    )


def _sum(parts: list[Waste]) -> Waste | None:
    if not parts:
        return None
    hours = [part.hours for part in parts if part.hours is not None]
    gpu = [part.gpu_hours for part in parts if part.gpu_hours is not None]
    return Waste(
        sum(part.steps for part in parts), plain_sum(hours) if hours else None, plain_sum(gpu) if gpu else None
    )
