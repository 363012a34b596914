"""Prints the state of watched runs on the terminal, line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.snapshot import RuleStatus, RunSnapshot, caveats
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.report.blindness import coverage_line, headline
from grpo_watch.report.view import causes, progress, resolved_at, software, views
from grpo_watch.report.words import say
from grpo_watch.safe_text import visible


def summary(snapshot: RunSnapshot) -> Iterator[str]:
    """Lines about a run after its first read: its step, the coverage of its rules, and its firing findings."""
    if not snapshot.rows and not snapshot.findings:
        yield say(snapshot.language, "watching {run}: no row yet", run=snapshot.run)
        return
    trained_by = say(snapshot.language, software(snapshot.framework, snapshot.version))
    watching = say(snapshot.language, "watching {run} ({by}), ", run=snapshot.run, by=trained_by)
    yield f"{watching}{progress(snapshot)}{say(snapshot.language, ': ')}{coverage_line(snapshot)}"
    yield from firing(snapshot)
    for caveat in caveats(snapshot):
        yield f"  {say(snapshot.language, caveat)}"
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BROKEN:
            colon = say(snapshot.language, ": ")
            yield f"  {say(snapshot.language, 'broken')}{colon}{rule.rule}{colon}{rule.reason}"


def firing(snapshot: RunSnapshot) -> Iterator[str]:
    """A line for each firing finding that no other finding explains."""
    for view in views(snapshot):
        found = view.finding
        if view.fires:
            yield f"  {_since(found, snapshot.language)}{say(snapshot.language, ': ')}{found.summary}"


def _since(found: Finding, language: str) -> str:
    severity = say(language, found.severity.value)
    words = "{severity}: {rule} since step {step}"
    return say(language, words, severity=severity, rule=found.rule, step=found.first_step)


def verdict(run: RunOverview) -> Iterator[str]:
    """Lines about a run when the command exits, because all runs have ended or are lost, or the user stopped it."""
    snapshot = run.snapshot
    words = "{run} is not found any more; its last step was {step}" if run.lost else "{run} ended at step {step}"
    if run.active:
        words = "{run} was watched up to step {step} and has not ended"
    end = say(snapshot.language, words, run=snapshot.run, step=snapshot.step)
    yield f"{headline(snapshot)}{say(snapshot.language, ': ')}{end}"
    for view in causes(views(snapshot)):
        found = view.finding
        since = f"{_since(found, snapshot.language)}{resolved_at(found, snapshot.language)}"
        yield f"  {since}{say(snapshot.language, ': ')}{found.summary}"


def show(*lines: str) -> None:
    """Write lines to stdout and flush; ignores a closed pipe."""
    with suppress(OSError):
        sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
        sys.stdout.flush()
