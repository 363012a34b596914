"""Turns reports into GitHub-flavoured Markdown; text from a run is escaped: no markup, no mention, no link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from grpo_watch import lazy_re as re
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import UNJUDGED, RuleStatus, RunSnapshot, RunVerdict, caveats
from grpo_watch.report.blindness import blind_words, coverage, judged_words
from grpo_watch.report.check_document import Provenance, RunReport, remarks
from grpo_watch.report.view import (
    FindingView,
    by_cause,
    causes,
    facts,
    in_brief,
    judgement_lines,
    sentence,
    shouted,
    top_view,
    views,
)
from grpo_watch.report.words import say
from grpo_watch.safe_text import visible

SPECIAL = re.compile(r"[\\`*\[\]<~|$]|(?<!\w)_|^(?:[-+#>=:]|\d+(?=[.)]))")
"""Characters that begin markup: anywhere, an underscore before a word, or at the beginning of a line."""
LINKED = re.compile(r"(?<!\w)@(?=\w)|#(?=\d)|(?<=[Gg][Hh])-(?=\d)|:(?=//)|(?<=[Ww]{3})\.")
"""Where GitHub links plain text: ``@name``, ``#1``, ``GH-1``, addresses. A zero-width space prevents it."""
BACKTICKS = re.compile(r"`+")
ENTITY = re.compile(r"&(?=#?\w+;)")


def markdown(reports: Sequence[RunReport], problems: Sequence[str], provenance: Provenance) -> str:
    """The document: each run from its verdict to the unjudged rules, then how to reproduce it."""
    lines = [] if reports else ["Nothing to check: no run found.", ""]
    for report in reports:
        lines += _run(report)
    lines += [*(f"- problem: {prose(problem)}" for problem in problems), *([""] if problems else [])]
    lines += [f"Checked {provenance.time} by grpo-watch {provenance.version}; to reproduce:", ""]
    lines += fenced([provenance.command], "sh")
    return "\n".join(lines) + "\n"


def _run(report: RunReport) -> Iterator[str]:
    snapshot = report.snapshot
    judged = [] if snapshot.verdict in UNJUDGED else [judged_words(coverage(snapshot), snapshot)]
    yield from (f"## {shouted(snapshot)}: {code(snapshot.run)}", "", prose(" · ".join([*facts(snapshot), *judged])), "")
    first, shown, say_so = top_view(snapshot), views(snapshot), partial(say, snapshot.language)
    if first is not None and first.headline != first.finding.summary:
        yield from (f"**{prose(first.headline)}**", "")
    for each in causes(shown):
        whole = each == first or each.finding.severity is Severity.CRITICAL
        yield from _finding(each, whole=whole, first=each == first)
    yield from _consequences(shown)
    if not shown and snapshot.verdict is RunVerdict.HEALTHY:
        yield from (say_so("No findings."), "")
    for caveat in caveats(snapshot):
        yield from (f"**{sentence(caveat, snapshot)}**", "")
    listed = [f"- {label}: {prose(line)}" for label, line in judgement_lines(snapshot)]
    yield from [*listed, ""] if listed else []
    yield from _unjudged(snapshot)
    if len(snapshot.findings) > 1:
        yield from _folded(say_so("When each alert fired"), _timeline(snapshot.findings, snapshot.language))
    listed = [f"- {prose(line)}" for line in remarks(report)]
    yield from [*listed, ""] if listed else []


def _finding(shown: FindingView, *, whole: bool, first: bool) -> Iterator[str]:
    """A finding and its steps; if ``whole`` also cause, fix and cost."""
    finding = shown.finding
    key = f" {code(shown.key)}" if shown.key else ""
    yield from (f"### {say(shown.language, 'Root cause: ') if first else ''}{code(finding.rule)}{key}", "")
    yield from (
        f"**{say(shown.language, finding.severity.value)}**, {prose(shown.since)}: {prose(finding.summary)}",
        "",
    )
    points = [f"- **{label}:** {prose(text)}" for label, text in shown.details]
    yield from [*points, ""] if points and whole else []


def _consequences(shown: Sequence[FindingView]) -> Iterator[str]:
    """One line for each cause."""
    lines = []
    for cause, findings in by_cause(shown).items():
        named = ", ".join(f"{code(each.rule)} ({in_brief(each, shown[0].language)})" for each in findings)
        lines.append(say(shown[0].language, "- Explained by {cause}: {named}", cause=code(cause), named=named))
    yield from [*lines, ""] if lines else []


def _timeline(findings: Sequence[Finding], language: str) -> Iterator[str]:
    rows, say_so = [], partial(say, language)
    for finding in sorted(findings, key=lambda each: (each.first_step, each.fired_step)):
        fired = str(finding.fired_step)
        fired += say_so(" as {severity}", severity=say_so(finding.told_as.value)) if finding.told_as else ""
        name = " ".join(filter(None, (code(finding.rule), code(finding.key))))
        cause = code(finding.caused_by) if finding.caused_by else ""
        resolved, severity = finding.resolved, say_so(finding.severity.value)
        rows.append((str(finding.first_step), fired, resolved, severity, name, cause))
    names = say_so("since step"), say_so("fired"), say_so("resolved"), say_so("severity"), say_so("rule")
    yield from table((*names, say_so("explained by")), rows)


def _unjudged(snapshot: RunSnapshot) -> Iterator[str]:
    """The unjudged rules with the settings that would help; their names are folded away. Also broken rules."""
    found, say_so = coverage(snapshot), partial(say, snapshot.language)
    line = blind_words(found, snapshot)
    if line:
        yield from (f"{prose(line)}.", "")
        rows = [
            (code(setting) if setting else "", ", ".join(map(code, rules))) for setting, rules in found.missing.items()
        ]
        yield from _folded(say_so("Rules that lack data"), table((say_so("to set"), say_so("rules")), rows))
    broken = [
        f"- broken: {code(rule.rule)}: {prose(rule.reason)}"
        for rule in snapshot.rules
        if rule.status is RuleStatus.BROKEN
    ]
    yield from [*broken, ""] if broken else []


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", "")


def prose(text: str) -> str:
    """A sentence; `code` between backticks stays code, the rest is escaped."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # one backtick has no partner
        return _plain("`".join(parts))
    return "".join(code(part) if index % 2 else _plain(part) for index, part in enumerate(parts))


def code(text: str) -> str:
    """A span of code; also inside a table, where a pipe needs a backslash even in code."""
    content = visible(text)
    if not content.strip():
        return ""
    fence = "`" * (1 + max((len(run) for run in BACKTICKS.findall(content)), default=0))
    room = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{fence}{room}{content}{room}{fence}".replace("|", "\\|")


def fenced(lines: Iterable[str], kind: str = "text") -> list[str]:
    """A code block, one line each, with a fence longer than any inside."""
    content = [visible(line) for line in lines]
    longest = max((len(run) for run in chain.from_iterable(map(BACKTICKS.findall, content))), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", *content, fence]


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are already Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}", *lines]


def _escaped(found: re.Match[str]) -> str:
    """The escaped match; for a number that would begin a list, its dot is escaped."""
    return f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}"


def _plain(text: str) -> str:
    """Text with markup, entities, mentions (``@name``) and links escaped."""
    return LINKED.sub("\\g<0>\u200b", ENTITY.sub("&amp;", SPECIAL.sub(_escaped, text)))
