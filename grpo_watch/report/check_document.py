"""Turns run snapshots into the documents that scripts read (``check --format json``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.diagnosis import Finding, first_sign
from grpo_watch.engine.records import CompletionSummary, Scalar, Severity
from grpo_watch.engine.snapshot import UNJUDGED, WORST_FIRST, RunSnapshot, RunVerdict, caveats
from grpo_watch.engine.snapshot import judged as judged  # noqa: PLC0414  reports take it from here
from grpo_watch.engine.waste import wasted
from grpo_watch.report.blindness import headline
from grpo_watch.report.view import in_short
from grpo_watch.report.words import say, sentence_words
from grpo_watch.safe_text import strict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from grpo_watch.report.series import Series

SCHEMA = "grpo-watch/check/1"


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """The yield of one channel of a run, which shows why something was missed."""

    name: str
    kind: str
    records: int
    skipped: Mapping[str, int]
    first_bad: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run's snapshot, its channels, files that could not be read, and notes.

    ``series`` are its rows and ``batches`` its dumped completions, kept only for drawing and comparing.
    """

    snapshot: RunSnapshot
    channels: tuple[ChannelReport, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    series: Series | None = None
    batches: tuple[CompletionSummary, ...] = ()

    @property
    def verdict(self) -> RunVerdict:
        """The verdict on the run."""
        return self.snapshot.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the most important one first."""
        return self.snapshot.findings

    @property
    def metrics(self) -> pd.DataFrame:
        """The logged rows by attempt and step, with canonical names (needs pandas)."""
        from grpo_watch.report.series import metrics_frame  # noqa: PLC0415  only this needs it

        return metrics_frame(self.series)

    @property
    def completions(self) -> pd.DataFrame:
        """The dumped completions, one row each, as numbers (needs pandas)."""
        from grpo_watch.report.series import completions_frame  # noqa: PLC0415  only this needs it

        return completions_frame(self.batches)

    def plot(self, *metrics: str) -> Figure:
        """The metrics over the steps, with the findings (needs matplotlib)."""
        from grpo_watch.report.series import plot  # noqa: PLC0415  only this needs it

        return plot(self.snapshot, self.series, metrics)

    def to_json(self) -> str:
        """The run's part of ``check --format json``."""
        return json.dumps(_run(self))

    def _repr_html_(self) -> str:
        from grpo_watch.report.series import as_html  # noqa: PLC0415  only this needs it

        return as_html(self.snapshot)

    def __repr__(self) -> str:
        return f"<RunReport {self.snapshot.run!r}: {headline(self.snapshot)}, step {self.snapshot.step}>"


REPEATED = "duplicate"
"""A table that the framework dumped again is normal: not worth a line."""


def remarks(report: RunReport) -> Iterator[str]:
    """Notes, files that could not be read, and rows that channels could not read or skipped."""
    say_so = partial(say, report.snapshot.language)
    yield from report.notes
    yield from (say_so("problem: {what}", what=problem) for problem in report.problems)
    for channel in report.channels:
        odd = [f"{count} {reason}" for reason, count in channel.skipped.items() if reason != REPEATED]
        if channel.problem or odd:
            trouble = channel.problem or f"skipped {', '.join(odd)}; first: {channel.first_bad}"
            said = sentence_words(report.snapshot.language, trouble, "errors")
            yield f"{channel.name}{say_so(': ')}{said}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """How to reproduce a report: its command, our version, and its time (Unix seconds)."""

    command: str
    version: str
    checked: float

    @property
    def time(self) -> str:
        """The time as ISO 8601 in UTC, to the second."""
        return datetime.fromtimestamp(self.checked, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(reports: Sequence[RunReport], problems: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON document of ``check`` (schema ``grpo-watch/check/1``); holds strict JSON values only.

    ``problems`` are files and folders that could not be read and belong to no run.
    """
    return {"schema": SCHEMA, "runs": [_run(report) for report in reports], "problems": list(problems)}


def _run(report: RunReport) -> dict[str, Any]:
    snapshot = report.snapshot
    return {
        **brief(snapshot),
        "max_steps": snapshot.max_steps,
        "rows": snapshot.rows,
        "attempts": snapshot.attempt,
        "headline": headline(snapshot),
        "judged": judged(snapshot),
        "reason": snapshot.judgement.reason or None,
        "unread": dict(snapshot.judgement.unread),
        "guessed": dict(snapshot.judgement.guessed),
        "early_signs": early_sign_documents(snapshot),
        "caveats": list(caveats(snapshot)),
        "findings": [in_full(finding, snapshot) for finding in snapshot.findings],
        "rules": [
            {"rule": rule.rule, "status": rule.status.value, "reason": rule.reason or None} for rule in snapshot.rules
        ],
        "channels": [_channel(channel) for channel in report.channels],
        "problems": [*report.problems, *report.notes],
    }


def early_sign_documents(snapshot: RunSnapshot) -> list[dict[str, Any]]:
    """The early signs of a run that is too short to judge."""
    return [
        {
            "rule": sign.rule,
            "text": sign.text,
            "evidence": {name: strict(value) for name, value in sign.evidence.items()},
        }
        for sign in snapshot.judgement.early_signs
    ]


def brief(snapshot: RunSnapshot) -> dict[str, Any]:
    """The run's name, progress and verdict."""
    return {
        "run": snapshot.run,
        "framework": snapshot.framework,
        "framework_version": snapshot.version,
        "steps": snapshot.step,
        "verdict": snapshot.verdict.value,
    }


def _channel(channel: ChannelReport) -> dict[str, Any]:
    return {
        "name": channel.name,
        "kind": channel.kind,
        "records": channel.records,
        "skipped": dict(channel.skipped),
        "first_bad": channel.first_bad or None,
        "problem": channel.problem or None,
    }


def episode(finding: Finding) -> dict[str, Any]:
    """An alert's identity, severity, and steps (optimizer steps)."""
    return {
        "rule": finding.rule,
        "key": finding.key or None,
        "severity": finding.severity.value,
        "first_step": finding.first_step,
        "fired_step": finding.fired_step,
        "resolved_step": finding.resolved_step,
        "attempt": finding.attempt,
    }


def evidence(finding: Finding) -> dict[str, Scalar]:
    """The finding's evidence as strict JSON."""
    return {name: strict(value) for name, value in finding.evidence.items()}


def in_full(finding: Finding, snapshot: RunSnapshot) -> dict[str, Any]:
    """The full document of a finding; ``first_sign`` is the first step of it or of its consequences."""
    sign = first_sign(finding, snapshot.findings)
    return {
        **episode(finding),
        "headline": in_short(finding, snapshot.language, snapshot.findings),
        "evidence": evidence(finding),
        "summary": finding.summary,
        "hint": finding.hint,
        "caused_by": finding.caused_by,
        "wasted": wasted(finding),
        "causes": list(finding.causes),
        "first_sign": sign.first_step,
        "first_sign_rule": sign.rule,
        "told_severity": finding.told_severity.value,
        "episodes": [
            {"first_step": first, "fired_step": fired, "resolved_step": resolved}
            for first, fired, resolved in finding.episodes
            or ((finding.first_step, finding.fired_step, finding.resolved_step),)
        ],
    }


def worst_first(reports: Sequence[RunReport]) -> list[RunReport]:
    """The reports by severity of their verdict, equal ones in the given order."""
    return sorted(reports, key=lambda report: WORST_FIRST.index(report.snapshot.verdict))


def exit_code(reports: Sequence[RunReport], fail_on: Severity | None) -> int:
    """0: nothing at or above ``fail_on`` (None: never fails); 1: findings; 3: nothing could be evaluated."""
    verdicts = [report.snapshot.verdict for report in reports]
    if all(verdict in UNJUDGED for verdict in verdicts):
        return 3
    ranks = {RunVerdict.WARNING: Severity.WARNING.rank, RunVerdict.CRITICAL: Severity.CRITICAL.rank}
    worst = max((ranks.get(verdict, -1) for verdict in verdicts), default=-1)
    return int(fail_on is not None and worst >= fail_on.rank)
