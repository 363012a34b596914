"""Chooses which runs a page of the overview shows: filtered, searched, sorted and cut on this side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from grpo_watch.engine.snapshot import WORST_FIRST
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.report.sparklines import Sparkline
from grpo_watch.web.documents import brief_document

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
    ``ORDERS``. What is not understood counts as not given.
    """

    q: str = ""
    verdict: str = ""
    state: str = ""
    sort: str = "verdict"
    offset: int = 0
    limit: int = PAGE


def query_of(query: Mapping[str, str]) -> OverviewQuery:
    """Read the parameters of a query string."""
    texts = {field.name: query[field.name][:200] for field in fields(OverviewQuery) if field.name in query}
    numbers = {name: int(texts.pop(name)) for name in ("offset", "limit") if texts.get(name, "").isdecimal()}
    texts = {name: text for name, text in texts.items() if name not in {"offset", "limit"}}
    given = OverviewQuery(**texts, **numbers)  # type: ignore[arg-type]  # texts and numbers by their names
    return OverviewQuery(
        given.q,
        given.verdict,
        given.state,
        given.sort if given.sort in ORDERS else "verdict",
        given.offset,
        max(1, min(given.limit, LARGEST_PAGE)),
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
            {**brief_document(run), "sparks": {name: _spark(each) for name, each in sparks(run.snapshot.run).items()}}
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


def _spark(spark: Sparkline) -> dict[str, Any]:
    return {field.name: getattr(spark, field.name) for field in fields(Sparkline)}
