"""Prints on the terminal, line by line, the state of watched runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from grpo_watch.engine.snapshot import RuleStatus, RunSnapshot, caveats
from grpo_watch.report.blindness import coverage_line, headline
from grpo_watch.report.view import causes, progress, software, views
from grpo_watch.safe_text import visible


def summary(snapshot: RunSnapshot) -> Iterator[str]:
    """Lines about a run once it was read: its step, how much of it is judged, and what fires."""
    if not snapshot.rows and not snapshot.findings:
        yield f"watching {snapshot.run}: no row yet"
        return
    trained_by = software(snapshot.framework, snapshot.version)
    yield f"watching {snapshot.run} ({trained_by}), {progress(snapshot)}: {coverage_line(snapshot)}"
    yield from firing(snapshot)
    for caveat in caveats(snapshot):
        yield f"  {caveat}"
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BROKEN:
            yield f"  broken: {rule.rule}: {rule.reason}"


def firing(snapshot: RunSnapshot) -> Iterator[str]:
    """A line for each finding that fires and that nothing explains."""
    for view in views(snapshot):
        found = view.finding
        if view.fires:
            yield f"  {found.severity.value}: {found.rule} since step {found.first_step}: {found.summary}"


def verdict(snapshot: RunSnapshot, *, lost: bool = False) -> Iterator[str]:
    """Lines about a run when the command exits because all runs have ended or are ``lost``."""
    end = "is not found any more; its last step was" if lost else "ended at step"
    yield f"{headline(snapshot)}: {snapshot.run} {end} {snapshot.step}"
    for view in causes(views(snapshot)):
        found = view.finding
        still = "" if found.resolved_step is None else f", resolved at {found.resolved}"
        yield f"  {found.severity.value}: {found.rule} since step {found.first_step}{still}: {found.summary}"


def show(*lines: str) -> None:
    """Write lines for people to stdout at once; ignores a closed pipe."""
    with suppress(OSError):
        sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
        sys.stdout.flush()
