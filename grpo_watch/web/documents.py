"""Turns runs and findings into the JSON documents of the API."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import WORST_FIRST, RuleStatus, RuleView, RunSnapshot, caveats
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.report.blindness import blindness, coverage, coverage_line, headline
from grpo_watch.report.charts import Sparkline
from grpo_watch.report.check_document import early_sign_documents, episode, in_full
from grpo_watch.report.view import FindingView, course, judgement_lines, pasteable, top_view, views
from grpo_watch.report.words import cost_words, say, sentence_words
from grpo_watch.rules.rule_changes import RuleSet
from grpo_watch.rules.runbook import nodes, parameters_of, runbook_for

TOP = (
    "rule",
    "key",
    "status",
    "severity",
    "attempt",
    "first_step",
    "fired_step",
    "resolved_step",
    "summary",
    "first_sign",
    "since",
    "headline",
)
"""Fields of a finding on the overview."""


def run_document(run: RunOverview) -> dict[str, Any]:
    """One run as ``/api/v1/runs`` lists it."""
    snapshot = run.snapshot
    return {
        "run": snapshot.run,
        "slug": run.slug,
        "folder": None if run.folder is None else str(run.folder),
        "framework": snapshot.framework,
        "framework_version": snapshot.version,
        "attempt": snapshot.attempt,
        "step": snapshot.step,
        "max_steps": snapshot.max_steps,
        "last_step_time": run.last_step_time,
        "active": run.active,
        "ended": run.ended,
        "verdict": snapshot.verdict.value,
        "headline": headline(snapshot),
        "coverage": coverage_document(snapshot),
        "reason": snapshot.judgement.reason or None,
        "early_signs": early_sign_documents(snapshot),
        "firing": [shown_document(view) for view in views(snapshot) if view.fires],
        "resolved": [shown_document(view) for view in views(snapshot) if view.counted and view.finding.resolved],
        "caveats": [say(snapshot.language, caveat) for caveat in caveats(snapshot)],
        "labels": dict(run.labels),
        "rules": [rule_document(rule, snapshot) for rule in snapshot.rules],
    }


def rule_document(rule: RuleView, snapshot: RunSnapshot) -> dict[str, Any]:
    """A rule of the run; ``blindness`` is the kind of a blind one, ``text`` the reason for people."""
    blind = blindness(rule, snapshot).value if rule.status is RuleStatus.BLIND else None
    status = {"rule": rule.rule, "severity": rule.severity.value, "status": rule.status.value}
    text = sentence_words(snapshot.language, rule.reason)
    return {**status, "reason": rule.reason, "text": text, "blindness": blind}


def coverage_document(snapshot: RunSnapshot) -> dict[str, Any]:
    """How much of the run could be judged; ``text`` is the line that every report shows."""
    found = coverage(snapshot)
    return {
        "text": coverage_line(snapshot),
        "judged": found.judged,
        "applicable": found.applicable,
        "waiting": len(found.waiting),
        "blind": found.blind,
        "settings": [setting for setting in found.missing if setting],
    }


def shown_document(shown: FindingView) -> dict[str, Any]:
    """Findings of one rule that are shown as one, in words."""
    found = episode(shown.finding)
    del found["fired_step"], found["resolved_step"]
    words = {"key": shown.finding.key, "summary": shown.finding.summary, "evidence": shown.words}
    return {**found, **words, "since": shown.since, "episodes": shown.episodes, "keys": list(shown.keys)}


def alert_documents(snapshot: RunSnapshot) -> list[dict[str, Any]]:
    """The findings of one run as ``/api/v1/alerts`` lists them."""
    return [{"run": snapshot.run, **finding_document(finding, snapshot)} for finding in snapshot.findings]


def finding_document(finding: Finding, snapshot: RunSnapshot) -> dict[str, Any]:
    """One finding of a run; numbers that are not finite stay so for ``answers.strict``."""
    status = "firing" if finding.resolved_step is None else "resolved"
    return {**in_full(finding, snapshot), "key": finding.key, "status": status, "evidence": dict(finding.evidence)}


def brief_document(run: RunOverview) -> dict[str, Any]:
    """One run as the overview shows it, without its rules.

    ``eta_seconds`` is the remaining time at the run's own pace; ``top`` the finding to read first.
    """
    snapshot = run.snapshot
    whole = run_document(run)
    del whole["rules"]
    statuses = Counter(rule.status for rule in snapshot.rules)
    open_ones = [finding for finding in snapshot.findings if finding.resolved_step is None]
    return {
        **whole,
        "predicted_max_steps": snapshot.predicted_max_steps,
        "seconds_per_step": snapshot.seconds_per_step,
        "eta_seconds": _remaining(run),
        "top": _top(snapshot),
        "open": sum(view.fires and view.counted for view in views(snapshot)),
        "resolved": len(snapshot.findings) - len(open_ones),
        "watching": statuses[RuleStatus.OK] + statuses[RuleStatus.FIRING],
        "blind": statuses[RuleStatus.BLIND],
        "broken": statuses[RuleStatus.BROKEN],
        "unseen": "; ".join(whole["caveats"]),
        "sources_down": [channel.source for channel in run.channels if not channel.up],
    }


def detail_document(run: RunOverview) -> dict[str, Any]:
    """One run with its findings, its sources and its settings."""
    snapshot = pasteable(run.snapshot, str(run.folder or ""))
    findings = [
        {
            **finding_document(each, snapshot),
            "course": course(each, snapshot.language),
            "wasted_text": cost_words(snapshot.language, each.wasted) if each.wasted else "",
        }
        for each in snapshot.findings
    ]
    return {
        **brief_document(run),
        "rows": snapshot.rows,
        "findings": findings,
        "noted": [{"step": step, "text": text} for step, text in snapshot.notes],
        "notes": [list(line) for line in judgement_lines(snapshot)],
        "cards": [card_document(view, snapshot) for view in views(snapshot)],
        "sources": [
            {"source": channel.source, "up": channel.up, "read_at": channel.read_at, "problem": channel.problem}
            for channel in run.channels
        ],
        "settings": [
            {"name": name, "value": setting.value, "origin": setting.origin}
            for name, setting in sorted(snapshot.config.items())
            if setting.value is not None
        ],
    }


def card_document(shown: FindingView, snapshot: RunSnapshot) -> dict[str, Any]:
    """One card of the page for merged findings, in the words of every report."""
    return {
        **finding_document(shown.finding, snapshot),
        "since": shown.since,
        "episodes": shown.episodes,
        "keys": list(shown.keys),
        "counted": shown.counted,
        "evidence_words": shown.words,
        "wasted_text": shown.wasted,
        "causes": shown.causes,
        "headline": shown.headline,
    }


def _remaining(run: RunOverview) -> float | None:
    snapshot = run.snapshot
    stopping = {rule.rule for rule in snapshot.rules if rule.stops_progress}
    stopped = any(found.rule in stopping and found.resolved_step is None for found in snapshot.findings)
    if not run.active or stopped or snapshot.max_steps is None or snapshot.seconds_per_step is None:
        return None
    return max(0, snapshot.max_steps - snapshot.step) * snapshot.seconds_per_step


def _top(snapshot: RunSnapshot) -> dict[str, Any] | None:
    """The first finding that the verdict counts, with the words of every other report."""
    shown = top_view(snapshot)
    return None if shown is None else {name: card_document(shown, snapshot)[name] for name in TOP}


PAGE = 25
LARGEST_PAGE = 100
ORDERS: Mapping[str, Callable[[RunOverview], Any]] = {
    "verdict": lambda run: (WORST_FIRST.index(run.snapshot.verdict), not run.active, run.snapshot.run),
    "name": lambda run: run.snapshot.run,
    "newest": lambda run: (-(run.last_step_time or 0.0), run.snapshot.run),
    "progress": lambda run: (-run.snapshot.step / (run.snapshot.max_steps or 1e12), run.snapshot.run),
}


@dataclass(frozen=True, slots=True)
class OverviewQuery:
    """Which runs a page shows. ``q``: words that must all occur in name, framework, labels or open findings.

    ``verdict``: verdicts between commas, empty for all; ``state``: ``running``, ``ended`` or empty; ``sort``: one of
    ``ORDERS``. Unknown values are ignored.
    """

    q: str = ""
    verdict: str = ""
    state: str = ""
    sort: str = "verdict"
    offset: int = 0
    limit: int = PAGE


def query_of(query: Mapping[str, str]) -> OverviewQuery:
    """Parse the parameters of a query string."""
    texts = defaultdict(str, {name: text[:200] for name, text in query.items()})
    numbers = {name: int(texts[name]) for name in ("offset", "limit") if texts[name].isdecimal()}
    return OverviewQuery(
        texts["q"],
        texts["verdict"],
        texts["state"],
        texts["sort"] if texts["sort"] in ORDERS else "verdict",
        numbers.get("offset", 0),
        max(1, min(numbers.get("limit", PAGE), LARGEST_PAGE)),
    )


def overview(
    snapshot: DaemonSnapshot, query: OverviewQuery, sparks: Callable[[str], Mapping[str, Sparkline]]
) -> dict[str, Any]:
    """One page of the overview. ``verdicts`` counts all runs, ``matching`` those that the query selects."""
    found = sorted((run for run in snapshot.shown if _wanted(run, query)), key=ORDERS[query.sort])
    shown = found[query.offset : query.offset + query.limit]
    return {
        "total": len(snapshot.shown),
        "matching": len(found),
        "offset": query.offset,
        "limit": query.limit,
        "verdicts": Counter(run.snapshot.verdict.value for run in snapshot.shown),
        "running": sum(run.active for run in snapshot.runs),
        "problems": snapshot.problems,
        "runs": [
            {**brief_document(run), "sparks": {name: asdict(each) for name, each in sparks(run.snapshot.run).items()}}
            for run in shown
        ],
    }


def _wanted(run: RunOverview, query: OverviewQuery) -> bool:
    verdicts = [verdict for verdict in query.verdict.split(",") if verdict]
    if verdicts and run.snapshot.verdict.value not in verdicts:
        return False
    if query.state in {"running", "ended"} and run.active is not (query.state == "running"):
        return False
    words = query.q.casefold().split()
    return not words or _holds(words, run)


def _holds(words: Sequence[str], run: RunOverview) -> bool:
    snapshot = run.snapshot
    texts = [snapshot.run, snapshot.framework or "", *run.labels.keys(), *run.labels.values()]
    texts += [finding.rule for finding in snapshot.findings if finding.resolved_step is None]
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)


def runbook_document(name: str, rules: RuleSet) -> dict[str, Any] | None:
    """The runbook of a rule in force: title, summary, sections of ``["p", "text", ["code", "x"]]``; None if unknown."""
    rule = next((rule for rule in rules.rules if rule.name == name), None)
    if rule is None:
        return None
    runbook = runbook_for(rule, rules.detectors)
    text = "\n".join(line for line in runbook.text.splitlines() if not line.startswith("<!--"))
    return {
        "rule": rule.name,
        "severity": rule.severity.value,
        "summary": runbook.summary,
        "sections": list(_sections(nodes(text))),
        **effective(rule, rules),
    }


def effective(rule: Rule, rules: RuleSet) -> dict[str, Any]:
    """A rule as in force: distances, and each parameter with its value."""
    return {
        "enabled": rule.enabled,
        "when": rule.when,
        "for_steps": rule.for_steps,
        "keep_firing_steps": rule.keep_firing_steps,
        "min_observations": rule.min_observations,
        "params": parameters_of(rule, rules.detectors),
    }


def _sections(blocks: Sequence[list[Any]]) -> Iterator[dict[str, Any]]:
    """The content below each second-level heading; the title and the summary precede the first one."""
    number, titles = -1, []
    counted = []
    for block in blocks:
        if block[0] == "h2":
            number += 1
            titles.append("".join(str(part) for part in block[1:]))
        elif number >= 0:
            counted.append((number, block))
    for at, group in groupby(counted, key=lambda pair: pair[0]):
        yield {"title": titles[at], "blocks": [block for _, block in group]}
