"""Renders reports, and the comparison of two, as text that a person reads in ten seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_watch.engine.diagnosis import Finding, first_sign
from grpo_watch.engine.records import Setting, Severity
from grpo_watch.engine.snapshot import UNJUDGED, WORST_FIRST, RuleStatus, RunSnapshot, caveats
from grpo_watch.report.blindness import blind_words, coverage, judged_words, unjudged, verdict_words
from grpo_watch.report.check_document import RunReport, worst_first
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
from grpo_watch.report.words import say, sentence_words, shown
from grpo_watch.safe_text import visible

if TYPE_CHECKING:
    from grpo_watch.report.compare import Comparison

REPEATED = "duplicate"
"""A table that the framework dumped again is no trouble: not worth a line."""

MANY = 10
"""Runs up to which each has a block of its own."""
LABEL = 10
"""Columns of a label before what it names."""
STYLES = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "cyan",
    "healthy": "bold green",
    "parted": "bold red",
    "same": "bold green",
}


def render(reports: Sequence[RunReport], console: Console, *, verbose: bool = False) -> None:
    """Print one block per run: verdict and what it rests on, findings with evidence and fix, what could not be seen.

    ``verbose`` adds every episode and consequence, each blind rule with its reason, and what the channels skipped.
    Several runs end with a table, worst first, and a line that counts the verdicts; more than ``MANY`` are this table
    only, unless ``verbose``.
    """
    shown = reports if verbose or len(reports) <= MANY else ()
    for index, report in enumerate(shown):
        if index:
            console.print()
        for line, indent in _run(report, verbose=verbose):
            console.print(Padding(line, (0, 0, 0, indent), expand=False))
    if len(reports) > 1:
        if shown:
            console.print()
        for line in _table(reports):
            console.print(line, soft_wrap=True)
        console.print(_totals(reports))
        if not shown:
            words = "`grpo-watch check` of one of these runs says more; -v shows all."
            console.print(Text(say(reports[0].snapshot.language, words), style="dim"))


def _table(reports: Sequence[RunReport]) -> Iterator[Text]:
    """Run, verdict, top finding, since: one line per run, worst first."""
    ranked = [_table_row(report.snapshot) for report in worst_first(reports)]
    say_so = partial(say, reports[0].snapshot.language)
    rows = [(say_so("run"), say_so("verdict"), say_so("top finding"), say_so("since")), *ranked]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    styles = ["dim", *(STYLES.get(report.snapshot.verdict.value, "") for report in worst_first(reports))]
    for number, (row, style) in enumerate(zip(rows, styles, strict=True)):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        line = Text(cells[0] + "  ", style="dim" if not number else "bold").append(cells[1], style=style)
        line.append(f"  {cells[2]}  {cells[3]}", style="" if number else "dim")
        line.rstrip()
        yield line


def _table_row(snapshot: RunSnapshot) -> tuple[str, str, str, str]:
    first = top_view(snapshot)
    rule, since = "-", "-"
    if first:
        begin = first_sign(first.finding, snapshot.findings).first_step
        rule, since = first.finding.rule, say(snapshot.language, "step {step}", step=begin)
    return visible(snapshot.run), verdict_words(snapshot), visible(rule), since


def _totals(reports: Sequence[RunReport]) -> Text:
    say_so = partial(say, reports[0].snapshot.language)
    counted = Counter(report.snapshot.verdict for report in reports)
    line = Text(say_so("{n} runs", n=len(reports)) + say_so(": "), style="bold")
    counts = [
        Text(
            say_so("{n} {kind}", n=counted[verdict], kind=say_so(verdict.value.replace("-", " "))),
            style=STYLES.get(verdict.value, ""),
        )
        for verdict in WORST_FIRST
        if counted[verdict]
    ]
    return line + Text(say_so(", ")).join(counts)


def _run(report: RunReport, *, verbose: bool) -> Iterator[tuple[Text, int]]:
    snapshot = report.snapshot
    yield _headline(snapshot), 0
    shown = views(snapshot)
    first = top_view(snapshot)
    if first is not None and first.headline != first.finding.summary:
        yield Text(visible(first.headline), style="bold"), 2
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
    say_so, severity = partial(say, shown.language), finding.severity.value
    head = Text(say_so(severity), style=STYLES[severity])
    head.append(f"  {visible(finding.rule)}", style="bold").append(f"  {visible(shown.since)}", style="dim")
    yield head, 2
    yield Text(visible(finding.summary)), 4
    lines = [(say_so("evidence"), " · ".join(shown.words)), (say_so("fix"), shown.hint)] if whole else []
    likely = shown.causes[: None if verbose else int(whole)]
    lines += [(say_so("likely {rank}", rank=rank), cause) for rank, cause in enumerate(likely, start=1)]
    lines += [(say_so("wasted"), shown.wasted)] if whole else []
    for label, text in lines:
        if text:
            yield Text.assemble((set_cell_size(label, LABEL), "dim"), visible(text)), 4


def _consequences(found: Sequence[FindingView], *, verbose: bool) -> Iterator[tuple[Text, int]]:
    """One line per cause; with ``verbose`` one per consequence, with its steps."""
    if not found:
        return
    language = found[0].language
    if verbose:
        for findings in by_cause(found).values():
            yield from ((_consequence(finding, language), 2) for finding in findings)
        return
    for cause, findings in by_cause(found).items():
        words = "{what} ({cost})"
        each = (say(language, words, what=visible(one.rule), cost=in_brief(one, language)) for one in findings)
        named = say(language, ", ").join(each)
        yield Text(say(language, "↳ explained by {cause}: {named}", cause=visible(cause), named=named), style="dim"), 2


def _consequence(finding: Finding, language: str) -> Text:
    line, words = Text("↳ ", style="dim"), "{what} ({cost})"
    since = say(language, ", ").join((say(language, finding.severity.value), when(finding, language)))
    line.append(visible(finding.rule)).append(say(language, words, what="", cost=since), style="dim")
    return line.append(say(language, " explained by {cause}", cause=visible(finding.caused_by or "")), style="dim")


def _reservations(snapshot: RunSnapshot) -> Iterator[tuple[Text, int]]:
    """What the verdict must not be read without."""
    for caveat in caveats(snapshot):
        yield Text(visible(say(snapshot.language, caveat)), style="yellow"), 2
    for label, line in judgement_lines(snapshot):
        yield Text(f"{label}{say(snapshot.language, ': ')}{visible(line)}", style="dim yellow"), 2


def _footer(report: RunReport, *, verbose: bool) -> Iterator[tuple[Text, int]]:
    snapshot, say_so = report.snapshot, partial(say, report.snapshot.language)
    colon = say_so(": ")
    yield from _reservations(snapshot)
    missing = blind_words(coverage(snapshot), snapshot)
    if missing:
        yield (
            Text(missing + ("" if verbose else say_so(" (-v lists the rules)")), style="dim yellow"),
            2,
        )
    if verbose:
        for label, reason, rules in unjudged(snapshot):
            yield Text(f"{label}{colon}{', '.join(rules)}{colon}{visible(reason)}", style="dim"), 2
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BROKEN:
            yield Text(f"{say_so('broken')}{colon}{rule.rule}{colon}{visible(rule.reason)}", style="red"), 2
    for note in report.notes:
        yield Text(visible(note), style="dim"), 2
    for problem in report.problems:
        yield Text(visible(say_so("problem: {what}", what=problem)), style="yellow"), 2
    yield from _channels(report)


def _channels(report: RunReport) -> Iterator[tuple[Text, int]]:
    """What could not be read."""
    for channel in report.channels:
        odd = {reason: count for reason, count in channel.skipped.items() if reason != REPEATED}
        if channel.problem or odd:
            skipped = ", ".join(f"{count} {reason}" for reason, count in odd.items())
            message = channel.problem or f"skipped {skipped}; first: {channel.first_bad}"
            said = sentence_words(report.snapshot.language, message, "errors")
            yield Text(f"{visible(channel.name)}{say(report.snapshot.language, ': ')}{visible(said)}", style="dim"), 2


RULE = (
    "Parted: over ten consecutive common rows, the median difference exceeds three times its noise (the standard "
    "deviation of its earlier changes from row to row). Pace, memory and tokens seen do not count."
)


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison."""
    for line, indent in _lines(comparison):
        console.print(Padding(line, (0, 0, 0, indent), expand=False))


def _lines(comparison: Comparison) -> Iterator[tuple[RenderableType, int]]:
    yield _parted(comparison), 0
    for name, report in (("a", comparison.a), ("b", comparison.b)):
        shot = report.snapshot
        line = Text(f"{name}  ").append(visible(shot.run), style="bold").append("  ")
        line.append(shot.verdict.value.replace("-", " "), style=STYLES.get(shot.verdict.value, ""))
        yield line.append("  " + " · ".join(facts(shot)), style="dim"), 2
    yield Text(_common(comparison), style="dim"), 2
    if comparison.parted:
        yield _metrics(comparison), 1
    yield from ((line, 2) for line in _others(comparison))
    if comparison.settings:
        yield Text("settings that differ"), 2
        yield _settings(comparison), 1
    yield from _lone_findings(comparison)
    yield Text(RULE, style="dim"), 0


def _parted(comparison: Comparison) -> Text:
    words = {
        "parted": f"PARTED at step {comparison.step}",
        "same": "SAME within noise",
        "not-evaluable": "NOT EVALUABLE: too few common rows",
    }
    step = comparison.step
    line = Text(words[comparison.verdict], style=STYLES.get(comparison.verdict, "bold"))
    first = [each.name for each in comparison.parted if each.counted and each.parting and each.parting.step == step]
    rules = [lone.finding.rule for lone in comparison.findings if lone.counted and lone.finding.first_step == step]
    return line.append(f"  {', '.join([*map(visible, first), *rules])}" if comparison.verdict == "parted" else "")


def _common(comparison: Comparison) -> str:
    if not comparison.steps:
        return "no common step"
    return f"{len(comparison.steps)} common steps, {comparison.steps[0]} to {comparison.steps[-1]}"


def _metrics(comparison: Comparison) -> Table:
    made = _columns("metric", "parted at", "a", "b", "noise", "first different")
    for metric in comparison.parted:
        found = metric.parting
        if found is not None:
            name = visible(metric.name) + ("" if metric.counted else " (not counted)")
            numbers = [_number(found.a), _number(found.b), _number(found.noise)]
            made.add_row(Text(name), f"step {found.step}", *numbers, f"step {found.differs}")
    return made


def _others(comparison: Comparison) -> Iterator[Text]:
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
            yield Text(f"{words}: {', '.join(names)}", style="dim")


def _settings(comparison: Comparison) -> Table:
    made = _columns("setting", "a", "read from", "b", "read from")
    for name, (a, b) in comparison.settings.items():
        made.add_row(*map(Text, (name, *_setting(a), *_setting(b))))
    return made


def _setting(setting: Setting | None) -> tuple[str, str]:
    return ("unknown", "") if setting is None else (shown(setting.value), visible(setting.origin))


def _lone_findings(comparison: Comparison) -> Iterator[tuple[Text, int]]:
    for lone in comparison.findings:
        finding = lone.finding
        line = Text(f"only {lone.of}: ").append(finding.severity.value, style=STYLES[finding.severity.value])
        line.append(f"  {finding.rule}", style="bold").append(f"  {when(finding)}", style="dim")
        line.append("" if lone.counted else " (after the last common step)", style="dim")
        yield line, 2
        yield Text(visible(finding.summary)), 4


def _columns(*names: str) -> Table:
    made = Table(*names, box=box.SIMPLE, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in made.columns:
        column.overflow = "fold"
    return made


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "not a number" if value != value else f"{value:.5g}"  # noqa: PLR0124 - NaN
