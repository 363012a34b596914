"""Renders reports as text that a person reads in ten seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule_views import RuleStatus
from grpo_watch.engine.snapshot import UNJUDGED, WORST_FIRST, RunSnapshot, caveats
from grpo_watch.report.blindness import blind_words, coverage, judged_words, unjudged
from grpo_watch.report.check_document import RunReport
from grpo_watch.report.view import (
    FindingView,
    by_cause,
    causes,
    facts,
    in_brief,
    judgement_lines,
    shouted,
    top_view,
    views,
    when,
)
from grpo_watch.safe_text import visible

REPEATED = "duplicate"
"""A table that the framework dumped again is no trouble: not worth a line."""

STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan", "healthy": "bold green"}


def render(reports: Sequence[RunReport], console: Console, *, verbose: bool = False) -> None:
    """Print one block per run: verdict and what it rests on, findings with evidence and fix, what could not be seen.

    ``verbose`` adds every episode and consequence, each blind rule with its reason, and what the channels skipped.
    Several runs end with a table, worst first, and a line that counts the verdicts.
    """
    for index, report in enumerate(reports):
        if index:
            console.print()
        for line, indent in _run(report, verbose=verbose):
            console.print(Padding(line, (0, 0, 0, indent), expand=False))
    if len(reports) > 1:
        console.print()
        for line in _table(reports):
            console.print(line, soft_wrap=True)
        console.print(_totals(reports))


def _table(reports: Sequence[RunReport]) -> Iterator[Text]:
    """Run, verdict, top finding, since: one line per run, worst first."""
    ranked = sorted(reports, key=lambda report: WORST_FIRST.index(report.snapshot.verdict))
    rows = [("run", "verdict", "top finding", "since"), *(_table_row(report.snapshot) for report in ranked)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        style = STYLES.get(row[1], "") if number else "dim"
        line = Text(cells[0] + "  ", style="dim" if not number else "bold").append(cells[1], style=style)
        line.append(f"  {cells[2]}  {cells[3]}", style="" if number else "dim")
        line.rstrip()
        yield line


def _table_row(snapshot: RunSnapshot) -> tuple[str, str, str, str]:
    first = top_view(snapshot)
    rule, since = (first.finding.rule, f"step {first.finding.first_step}") if first else ("-", "-")
    return visible(snapshot.run), snapshot.verdict.value.replace("-", " "), visible(rule), since


def _totals(reports: Sequence[RunReport]) -> Text:
    counted = Counter(report.snapshot.verdict for report in reports)
    line = Text(f"{len(reports)} runs: ", style="bold")
    counts = [
        Text(f"{counted[verdict]} {verdict.value.replace('-', ' ')}", style=STYLES.get(verdict.value, ""))
        for verdict in WORST_FIRST
        if counted[verdict]
    ]
    return line + Text(", ").join(counts)


def _run(report: RunReport, *, verbose: bool) -> Iterator[tuple[Text, int]]:
    snapshot = report.snapshot
    yield _headline(snapshot), 0
    shown = views(snapshot)
    for number, each in enumerate(causes(shown)):
        yield from _finding(
            each, whole=verbose or not number or each.finding.severity is Severity.CRITICAL, verbose=verbose
        )
    yield from _consequences(shown, verbose=verbose)
    yield from _footer(report, verbose=verbose)


def _headline(snapshot: RunSnapshot) -> Text:
    line = Text(shouted(snapshot), style=STYLES.get(snapshot.verdict.value, "bold"))
    line.append(f"  {visible(snapshot.run)}", style="bold")
    judged = [] if snapshot.verdict in UNJUDGED else [judged_words(coverage(snapshot), snapshot)]
    line.append("  " + visible(" · ".join([*facts(snapshot), *judged])), style="dim")
    return line


def _finding(shown: FindingView, *, whole: bool, verbose: bool) -> Iterator[tuple[Text, int]]:
    """The finding with evidence and fix; those below the first are two lines unless they are critical."""
    finding = shown.finding
    head = Text(finding.severity.value, style=STYLES[finding.severity.value])
    head.append(f"  {visible(finding.rule)}", style="bold").append(f"  {visible(shown.since)}", style="dim")
    yield head, 2
    yield Text(visible(finding.summary)), 4
    if shown.words and whole:
        yield Text.assemble(("evidence  ", "dim"), visible(" · ".join(shown.words))), 4
    if shown.hint and whole:
        yield Text.assemble(("fix       ", "dim"), visible(shown.hint)), 4
    for rank, cause in enumerate(finding.causes[: None if verbose else int(whole)], start=1):
        yield Text.assemble((f"likely {rank}  ", "dim"), visible(cause)), 4
    if shown.wasted and whole:
        yield Text.assemble(("wasted    ", "dim"), shown.wasted), 4


def _consequences(found: Sequence[FindingView], *, verbose: bool) -> Iterator[tuple[Text, int]]:
    """One line per cause; with ``verbose`` one per consequence, with its steps."""
    if verbose:
        yield from ((_consequence(each.finding), 2) for each in found if each.finding.caused_by is not None)
        return
    for cause, findings in by_cause(found).items():
        named = ", ".join(f"{visible(each.rule)} ({in_brief(each)})" for each in findings)
        yield Text(f"↳ explained by {visible(cause)}: {named}", style="dim"), 2


def _consequence(finding: Finding) -> Text:
    line = Text("↳ ", style="dim")
    line.append(visible(finding.rule)).append(f" ({finding.severity.value}, {when(finding)})", style="dim")
    return line.append(f" explained by {visible(finding.caused_by or '')}", style="dim")


def _reservations(snapshot: RunSnapshot) -> Iterator[tuple[Text, int]]:
    """What the verdict must not be read without."""
    for caveat in caveats(snapshot):
        yield Text(visible(caveat), style="yellow"), 2
    for label, line in judgement_lines(snapshot):
        yield Text(f"{label}: {visible(line)}", style="dim yellow"), 2


def _footer(report: RunReport, *, verbose: bool) -> Iterator[tuple[Text, int]]:
    snapshot = report.snapshot
    yield from _reservations(snapshot)
    missing = blind_words(coverage(snapshot), snapshot)
    if missing:
        yield Text(missing + ("" if verbose else " (-v lists the rules)"), style="dim yellow"), 2
    if verbose:
        for label, reason, rules in unjudged(snapshot):
            yield Text(f"{label}: {', '.join(rules)}: {visible(reason)}", style="dim"), 2
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BROKEN:
            yield Text(f"broken: {rule.rule}: {visible(rule.reason)}", style="red"), 2
    for note in report.notes:
        yield Text(visible(note), style="dim"), 2
    for problem in report.problems:
        yield Text(f"problem: {visible(problem)}", style="yellow"), 2
    yield from _channels(report)


def _channels(report: RunReport) -> Iterator[tuple[Text, int]]:
    """What could not be read."""
    for channel in report.channels:
        odd = {reason: count for reason, count in channel.skipped.items() if reason != REPEATED}
        if channel.problem or odd:
            skipped = ", ".join(f"{count} {reason}" for reason, count in odd.items())
            message = channel.problem or f"skipped {skipped}; first: {channel.first_bad}"
            yield Text(f"{visible(channel.name)}: {visible(message)}", style="dim"), 2
