"""Renders reports, and the comparison of two, as text to be read in ten seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from grpo_watch.engine.diagnosis import Finding, first_sign
from grpo_watch.engine.records import Setting, Severity
from grpo_watch.engine.snapshot import UNJUDGED, WORST_FIRST, RuleStatus, RunSnapshot, caveats
from grpo_watch.report.blindness import blind_words, coverage, judged_words, unjudged, verdict_words
from grpo_watch.report.check_document import RunReport, remarks, worst_first
from grpo_watch.report.lines import Line, aligned, columns, padded
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
from grpo_watch.report.words import say, shown
from grpo_watch.safe_text import visible

if TYPE_CHECKING:
    from grpo_watch.report.compare import Comparison

MANY = 10
"""Most runs with a block each."""
LABEL = 10
"""Columns of a label."""
STYLES = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "cyan",
    "healthy": "bold green",
    "parted": "bold red",
    "same": "bold green",
}


def render(reports: Sequence[RunReport], *, verbose: bool = False) -> Iterator[Line]:
    """One block per run: verdict and its basis, findings with evidence and fix, unjudged rules.

    ``verbose`` adds every episode and consequence, each blind rule with its reason, and rows that channels skipped.
    Several runs end with a table, worst first, and a line that counts the verdicts; more than ``MANY`` are this table
    only, unless ``verbose``.
    """
    shown = reports if verbose or len(reports) <= MANY else ()
    for index, report in enumerate(shown):
        if index:
            yield Line()
        yield from _run(report, verbose=verbose)
    if len(reports) > 1:
        if shown:
            yield Line()
        yield from _table(reports)
        yield _totals(reports)
        if not shown:
            words = "`grpo-watch check` of one of these runs says more; -v shows all."
            yield Line(say(reports[0].snapshot.language, words), "dim")


def _table(reports: Sequence[RunReport]) -> Iterator[Line]:
    """Run, verdict, top finding, since when: one line per run, worst first."""
    say_so = partial(say, reports[0].snapshot.language)
    titles = say_so("run"), say_so("verdict"), say_so("top finding"), say_so("since")
    head = [Line(title, "dim") for title in titles]
    yield from aligned([head, *(_table_row(report.snapshot) for report in worst_first(reports))])


def _table_row(snapshot: RunSnapshot) -> list[Line]:
    first = top_view(snapshot)
    rule, since = "-", "-"
    if first:
        begin = first_sign(first.finding, snapshot.findings).first_step
        rule, since = first.finding.rule, say(snapshot.language, "step {step}", step=begin)
    verdict = Line(verdict_words(snapshot), f"bold {STYLES.get(snapshot.verdict.value, '')}")
    return [Line(visible(snapshot.run), "bold"), verdict, Line(visible(rule), "bold"), Line(since, "bold")]


def _totals(reports: Sequence[RunReport]) -> Line:
    say_so = partial(say, reports[0].snapshot.language)
    counted = Counter(report.snapshot.verdict for report in reports)
    line = Line(say_so("{n} runs", n=len(reports)), "bold")
    separator = say_so(": ")
    for verdict in WORST_FIRST:
        if counted[verdict]:
            words = say_so("{n} {kind}", n=counted[verdict], kind=say_so(verdict.value.replace("-", " ")))
            line.append(separator).append(words, STYLES.get(verdict.value, ""))
            separator = say_so(", ")
    return line


def _run(report: RunReport, *, verbose: bool) -> Iterator[Line]:
    snapshot = report.snapshot
    yield _headline(snapshot)
    shown = views(snapshot)
    first = top_view(snapshot)
    if first is not None and first.headline != first.finding.summary:
        yield Line(visible(first.headline), "bold", indent=2)
    for number, each in enumerate(causes(shown)):
        yield from _finding(
            each, whole=verbose or not number or each.finding.severity is Severity.CRITICAL, verbose=verbose
        )
    yield from _consequences(shown, verbose=verbose)
    yield from _footer(report, verbose=verbose)


def _headline(snapshot: RunSnapshot) -> Line:
    line = Line(shouted(snapshot), STYLES.get(snapshot.verdict.value, "bold"))
    line.append(f"  {visible(snapshot.run)}", "bold")
    judged = [] if snapshot.verdict in UNJUDGED else [judged_words(coverage(snapshot), snapshot)]
    line.append("  " + visible(" · ".join([*facts(snapshot), *judged])), "dim")
    return line


def _finding(shown: FindingView, *, whole: bool, verbose: bool) -> Iterator[Line]:
    """The finding with evidence and fix; those below the first take two lines unless they are critical."""
    finding = shown.finding
    say_so, severity = partial(say, shown.language), finding.severity.value
    head = Line(say_so(severity), STYLES[severity], indent=2)
    head.append(f"  {visible(finding.rule)}", "bold").append(f"  {visible(shown.since)}", "dim")
    yield head
    yield Line(visible(finding.summary), indent=4)
    lines = [(say_so("evidence"), " · ".join(shown.words)), (say_so("fix"), shown.hint)] if whole else []
    likely = shown.causes[: None if verbose else int(whole)]
    lines += [(say_so("likely {rank}", rank=rank), cause) for rank, cause in enumerate(likely, start=1)]
    lines += [(say_so("wasted"), shown.wasted)] if whole else []
    for label, text in lines:
        if text:
            line = Line(indent=4)
            yield line.append(padded(label, LABEL), "dim").append(visible(text))


def _consequences(found: Sequence[FindingView], *, verbose: bool) -> Iterator[Line]:
    """One line per cause; with ``verbose`` one per consequence, with its steps."""
    if not found:
        return
    language = found[0].language
    if verbose:
        for findings in by_cause(found).values():
            yield from (_consequence(finding, language) for finding in findings)
        return
    for cause, findings in by_cause(found).items():
        words = "{what} ({cost})"
        each = (say(language, words, what=visible(one.rule), cost=in_brief(one, language)) for one in findings)
        named = say(language, ", ").join(each)
        yield Line(say(language, "↳ explained by {cause}: {named}", cause=visible(cause), named=named), "dim", indent=2)


def _consequence(finding: Finding, language: str) -> Line:
    line, words = Line("↳ ", "dim", indent=2), "{what} ({cost})"
    since = say(language, ", ").join((say(language, finding.severity.value), when(finding, language)))
    line.append(visible(finding.rule)).append(say(language, words, what="", cost=since))
    return line.append(say(language, " explained by {cause}", cause=visible(finding.caused_by or "")))


def _reservations(snapshot: RunSnapshot) -> Iterator[Line]:
    for caveat in caveats(snapshot):
        yield Line(visible(say(snapshot.language, caveat)), "yellow", indent=2)
    for label, line in judgement_lines(snapshot):
        yield Line(f"{label}{say(snapshot.language, ': ')}{visible(line)}", "dim yellow", indent=2)


def _footer(report: RunReport, *, verbose: bool) -> Iterator[Line]:
    snapshot, say_so = report.snapshot, partial(say, report.snapshot.language)
    colon = say_so(": ")
    yield from _reservations(snapshot)
    missing = blind_words(coverage(snapshot), snapshot)
    if missing:
        yield Line(missing + ("" if verbose else say_so(" (-v lists the rules)")), "dim yellow", indent=2)
    if verbose:
        for label, reason, rules in unjudged(snapshot):
            yield Line(f"{label}{colon}{', '.join(rules)}{colon}{visible(reason)}", "dim", indent=2)
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BROKEN:
            yield Line(f"{say_so('broken')}{colon}{rule.rule}{colon}{visible(rule.reason)}", "red", indent=2)
    yield from (Line(visible(line), "dim", indent=2) for line in remarks(report))


RULE = (
    "Parted: over ten consecutive common rows, the median difference exceeds three times its noise (the standard "
    "deviation of its earlier changes from row to row). Pace, memory and tokens seen do not count."
)


def render_comparison(comparison: Comparison, width: int) -> Iterator[Line]:
    """The result of a comparison, ``width`` columns wide."""
    yield _parted(comparison)
    for name, report in (("a", comparison.a), ("b", comparison.b)):
        shot = report.snapshot
        line = Line(f"{name}  ", indent=2).append(visible(shot.run), "bold").append("  ")
        line.append(shot.verdict.value.replace("-", " "), STYLES.get(shot.verdict.value, ""))
        yield line.append("  " + " · ".join(facts(shot)), "dim")
    yield Line(_common(comparison), "dim", indent=2)
    if comparison.parted:
        yield from _metrics(comparison, width)
    yield from _others(comparison)
    if comparison.settings:
        yield Line("settings that differ", indent=2)
        yield from _settings(comparison, width)
    yield from _lone_findings(comparison)
    yield Line(RULE, "dim")


def _parted(comparison: Comparison) -> Line:
    words = {
        "parted": f"PARTED at step {comparison.step}",
        "same": "SAME within noise",
        "not-evaluable": "NOT EVALUABLE: too few common rows",
    }
    step = comparison.step
    line = Line(words[comparison.verdict], STYLES.get(comparison.verdict, "bold"))
    first = [each.name for each in comparison.parted if each.counted and each.parting and each.parting.step == step]
    rules = [lone.finding.rule for lone in comparison.findings if lone.counted and lone.finding.first_step == step]
    return line.append(f"  {', '.join([*map(visible, first), *rules])}" if comparison.verdict == "parted" else "")


def _common(comparison: Comparison) -> str:
    if not comparison.steps:
        return "no common step"
    return f"{len(comparison.steps)} common steps, {comparison.steps[0]} to {comparison.steps[-1]}"


def _metrics(comparison: Comparison, width: int) -> Iterator[Line]:
    rows = []
    for metric in comparison.parted:
        found = metric.parting
        if found is not None:
            name = visible(metric.name) + ("" if metric.counted else " (not counted)")
            numbers = [_number(found.a), _number(found.b), _number(found.noise)]
            rows.append([name, f"step {found.step}", *numbers, f"step {found.differs}"])
    return _below(["metric", "parted at", "a", "b", "noise", "first different"], rows, width)


def _others(comparison: Comparison) -> Iterator[Line]:
    """Metrics that don't diverge, grouped by reason."""
    titles = {
        "differs": "differ within noise",
        "same": "the same",
        "only-a": "only in a",
        "only-b": "only in b",
        "too-few": "too few common rows",
    }
    for kind, words in titles.items():
        names = [visible(metric.name) for metric in comparison.metrics if metric.status == kind]
        if names:
            yield Line(f"{words}: {', '.join(names)}", "dim", indent=2)


def _settings(comparison: Comparison, width: int) -> Iterator[Line]:
    rows = [[name, *_setting(a), *_setting(b)] for name, (a, b) in comparison.settings.items()]
    return _below(["setting", "a", "read from", "b", "read from"], rows, width)


def _setting(setting: Setting | None) -> tuple[str, str]:
    return ("unknown", "") if setting is None else (shown(setting.value), visible(setting.origin))


def _lone_findings(comparison: Comparison) -> Iterator[Line]:
    for lone in comparison.findings:
        finding = lone.finding
        line = Line(f"only {lone.of}: ", indent=2).append(finding.severity.value, STYLES[finding.severity.value])
        line.append(f"  {finding.rule}", "bold").append(f"  {when(finding)}", "dim")
        line.append("" if lone.counted else " (after the last common step)", "dim")
        yield line
        yield Line(visible(finding.summary), indent=4)


def _below(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Line]:
    """Rows below their titles, between empty lines; rows wider than ``width`` become text."""
    table = [*aligned([[Line(title, "dim") for title in titles], *rows], gap=3, indent=2)]
    if max(columns(line.plain.rstrip()) for line in table) + 2 > width:
        cells = [(row[0], zip(titles[1:], row[1:], strict=True)) for row in rows]
        texts = (f"{name}: {' · '.join(f'{title} {cell}' for title, cell in more if cell)}" for name, more in cells)
        table = [Line(text, indent=2, hang=2) for text in texts]
    yield from (Line(), *table, Line())


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "not a number" if value != value else f"{value:.5g}"  # noqa: PLR0124 - NaN
