"""Turns reports into one self-contained HTML file: no server, no network, no other file."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.rule import ENGLISH
from grpo_watch.engine.snapshot import UNJUDGED, RuleStatus, RunSnapshot, RunVerdict, caveats
from grpo_watch.report.blindness import coverage, coverage_line, headline, verdict_words
from grpo_watch.report.charts import POINTS, bands, charts, finding_charts
from grpo_watch.report.check_document import Provenance, RunReport, remarks, worst_first
from grpo_watch.report.view import (
    FindingView,
    causes,
    course,
    facts,
    judgement_lines,
    sentence,
    top_view,
    views,
    when,
)
from grpo_watch.report.words import say, shown
from grpo_watch.safe_text import visible

STYLES = tuple(f"web/static/{name}.css" for name in ("vendor/uPlot.min", "theme", "common"))
FEWEST = 60
"""Least steps per chart if many runs share the page."""
FULL = 4
"""Most runs whose charts have full resolution."""


def page(reports: Sequence[RunReport], problems: Sequence[str], provenance: Provenance) -> str:
    """The HTML file.

    Its content security policy permits only the scripts written here and loads nothing. Content of a run is text, or
    JSON in a block that no browser executes.
    """
    language = reports[0].snapshot.language if reports else ENGLISH
    style, plot, script = "".join(map(_file, (*STYLES, "report/static/report.css"))), *_scripts()
    head = joined(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, plot, script)}">'),
            Html('<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'),
            Html('<link rel="icon" href="data:,">'),
            tag("title", _title(reports)),
            Html(f"<style>{style}</style>"),
        ]
    )
    body = joined([*_body(reports, problems, provenance), _data(reports)])
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>{head}</head>\n<body>\n{body}\n'
        f"<script>{plot}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _title(reports: Sequence[RunReport]) -> str:
    if len(reports) == 1:
        return f"{reports[0].snapshot.verdict.value}: {reports[0].snapshot.run} · grpo-watch"
    return f"{len(reports)} runs · grpo-watch"


def _body(reports: Sequence[RunReport], problems: Sequence[str], provenance: Provenance) -> Iterator[Html]:
    buttons = tag("button", "Toggle theme", id="theme", type="button", hidden="")
    origin = f"checked {provenance.time} by grpo-watch {provenance.version}"
    yield tag("header", tag("h1", "grpo-watch report"), tag("span", origin, class_="dim"), buttons, class_="top")
    ordered = worst_first(reports)
    if len(ordered) > 1:
        yield _overview(ordered)
    if not ordered:
        yield tag("p", "Nothing to check: no run found.")
    for index, report in enumerate(ordered):
        yield tag("section", *_parts(report, index), id=f"run-{index}", class_="run")
    if problems:
        yield tag("section", tag("h2", "Problems"), tag("ul", *(tag("li", problem) for problem in problems)))
    again = [
        tag("h2", "How to reproduce"),
        tag("pre", provenance.command),
        tag("p", f"The same files give the same result with grpo-watch {provenance.version}.", class_="dim"),
    ]
    yield tag("section", *again, class_="again")


def _overview(reports: Sequence[RunReport]) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", tag("span", verdict_words(report.snapshot), class_=f"mark {report.snapshot.verdict.value}")),
            tag("td", tag("a", report.snapshot.run, href=f"#run-{index}")),
            tag("td", first.finding.rule if (first := top_view(report.snapshot)) else ""),
            tag("td", " · ".join(facts(report.snapshot)), class_="dim"),
        )
        for index, report in enumerate(reports)
    ]
    head = tag("tr", *(tag("th", name) for name in ("verdict", "run", "root cause", "")))
    return tag(
        "section", tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="overview"), class_="wide")
    )


def _data(reports: Sequence[RunReport]) -> Html:
    """The charts' data by run, in the order of the page."""
    points = min(POINTS, max(FEWEST, POINTS * FULL // max(1, len(reports))))
    drawings: list[dict[str, Any]] = [
        {
            "charts": _charts(report, points),
            "bands": bands(report.snapshot.findings),
        }
        for report in worst_first(reports)
    ]
    text = json.dumps(drawings, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="data">{text}</script>')


def _charts(report: RunReport, points: int) -> list[dict[str, Any]]:
    """The charts, the one that proves the top finding first."""
    if report.series is None or not len(report.series):
        return []
    drawn = finding_charts(charts(report.series, points), report.snapshot)
    return [{**chart, "title": say(report.snapshot.language, chart["title"])} for chart in drawn]


def _policy(style: str, *scripts: str) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _scripts() -> tuple[str, str]:
    """The chart library, and our script, which includes the module shared with the status page."""
    shared = _file("web/static/js/plot.js").replace("\nexport ", "\n")
    own = f'(() => {{\n"use strict";\n{shared}\n{_file("report/static/report.js")}}})();'
    return _file("web/static/vendor/uPlot.iife.min.js"), own


def _file(name: str) -> str:
    return files("grpo_watch").joinpath(name).read_text(encoding="utf-8")


class Html(str):
    """Markup that is not escaped again."""

    __slots__ = ()


def tag(name: str, *inner: object, **attributes: str) -> Html:
    """An element; content that is not ``Html`` is escaped. ``class_`` stands for ``class``, ``a_b`` for ``a-b``."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_plain(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{joined(inner)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """The parts joined; those that are not ``Html`` are escaped."""
    return Html("".join(part if isinstance(part, Html) else _plain(part) for part in parts))


def prose(text: str) -> Html:
    """A sentence with `code` between backticks marked up."""
    parts = text.split("`")
    closed = len(parts) % 2 == 1  # an unpaired backtick is an ordinary character
    return (
        joined(tag("code", part) if index % 2 else part for index, part in enumerate(parts))
        if closed
        else joined([text])
    )


def _plain(value: object) -> str:
    """Escaped text; control characters and direction marks are shown as codes."""
    return escape(visible(str(value)))


HEIGHT, TOP, BAR = 20, 4, 12
"""Heights in pixels; widths are in percent of the run."""


def timeline(snapshot: RunSnapshot) -> Html:
    """The lanes, earliest symptom first, then the run's own events; empty without any."""
    findings = snapshot.findings
    if not findings and not snapshot.notes:
        return Html("")
    last = max(snapshot.step, *(finding.fired_step for finding in findings), 1)
    lanes: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda each: (each.first_step, each.fired_step)):
        lanes.setdefault((finding.rule, finding.key), []).append(finding)
    say_so = partial(say, snapshot.language)
    ends = (tag("span", say_so("step {step}", step=step)) for step in (0, last))
    drawn = []
    for (rule, key), episodes in lanes.items():
        marks = [mark for each in episodes for mark in _episode(each, last)]
        drawn.append(_lane(rule, key, marks, [course(each, snapshot.language) for each in episodes]))
    if snapshot.notes:
        marks = [_stroke(_across(step, last), "info") for step, _ in snapshot.notes]
        texts = [f"{say_so('step {step}', step=step)}: {text}" for step, text in snapshot.notes]
        drawn.append(_lane(say_so("noted by the run"), "", marks, texts))
    return tag("div", *drawn, tag("div", *ends, class_="axis"), class_="tl")


def _lane(name: str, key: str, marks: Sequence[str], texts: Sequence[str]) -> Html:
    label = tag("div", name, tag("span", f" {key}" if key else "", class_="dim"), class_="name")
    ground = f'<line x1="0" x2="100%" y1="{HEIGHT / 2}" y2="{HEIGHT / 2}" class="ground"></line>'
    drawing = Html(f'<svg width="100%" height="{HEIGHT}" aria-hidden="true">{ground}{"".join(marks)}</svg>')
    return tag("div", label, drawing, tag("div", "; ".join(texts), class_="dim when"), class_="lane")


def _episode(finding: Finding, last: int) -> Iterator[str]:
    """A pale bar from the first sign, a full one while firing, a stroke where it fired, a ring where it resolved."""
    first, fired = _across(finding.first_step, last), _across(finding.fired_step, last)
    end = 100.0 if finding.resolved_step is None else _across(finding.resolved_step, last)
    kind, fired_as = finding.severity.value, finding.told_severity.value
    yield _bar(min(first, fired), fired, f"{kind} pending")
    yield _bar(fired, end, kind)
    yield _stroke(fired, fired_as)
    if finding.resolved_step is not None and end >= fired:  # a restart may go back to before the step where it fired
        yield f'<circle cx="{end}%" cy="{HEIGHT / 2}" r="5" class="resolved"></circle>'


def _stroke(at: float, kind: str) -> str:
    return f'<line x1="{at}%" x2="{at}%" y1="1" y2="{HEIGHT - 1}" class="{kind} fired"></line>'


def _bar(start: float, end: float, kind: str) -> str:
    width = max(0.0, round(end - start, 2))
    return f'<rect x="{start}%" width="{width}%" y="{TOP}" height="{BAR}" class="{kind}"></rect>'


def _across(step: int, last: int) -> float:
    return round(100 * min(max(step, 0), last) / last, 2)


NO_SCRIPT = Html(
    "<noscript><p class='dim'>The charts need JavaScript; nothing is loaded from the network.</p></noscript>"
)


def _parts(report: RunReport, index: int) -> Iterator[Html]:
    snapshot = report.snapshot
    say_so = partial(say, snapshot.language)
    yield tag("h2", tag("span", headline(snapshot), class_=f"mark {snapshot.verdict.value}"), " ", snapshot.run)
    yield tag("p", " · ".join(facts(snapshot)), class_="dim")
    for caveat in caveats(snapshot):
        yield tag("p", sentence(caveat, snapshot), class_="note")
    for label, line in judgement_lines(snapshot):
        yield tag("p", f"{label}: {line}", class_="note")
    first = top_view(snapshot)
    if first is not None:
        yield tag("p", first.headline, class_="headline")
        yield _finding(first, say_so("Root cause: "))
    if not snapshot.findings and snapshot.verdict is RunVerdict.HEALTHY:
        yield tag("p", say_so("No findings."))
    if snapshot.findings or snapshot.notes:
        yield joined([tag("h3", say_so("When")), timeline(snapshot)])
    if report.series is not None and len(report.series):
        yield from _chart_area(report, index)
    others = [each for each in causes(views(snapshot)) if each != first]
    if others:
        yield joined([tag("h3", say_so("Further findings") if first else say_so("Findings")), *map(_finding, others)])
    yield from _consequences(snapshot)
    yield from _unjudged(snapshot)
    yield from _background(report)


def _finding(shown: FindingView, title: str = "") -> Html:
    finding = shown.finding
    head = tag("h3", title, finding.rule, f" {shown.key}" if shown.key else "")
    label = tag("p", _severity(finding, shown.language), " ", shown.since, class_="dim")
    details = tag("dl", *(joined([tag("dt", label), tag("dd", prose(text))]) for label, text in shown.details))
    return tag(
        "article", head, label, tag("p", prose(finding.summary)), details, class_=f"finding {finding.severity.value}"
    )


def _severity(finding: Finding, language: str) -> Html:
    return tag("span", say(language, finding.severity.value), class_=f"mark {finding.severity.value}")


def _chart_area(report: RunReport, index: int) -> Iterator[Html]:
    say_so = partial(say, report.snapshot.language)
    yield tag("h3", say_so("Metrics by step"))
    shaded = bool(bands(report.snapshot.findings))
    legend = say_so("Shaded: an alert. Solid line: fired; dashed line: resolved. ") if shaded else ""
    yield tag("p", legend, say_so("Drag to zoom, double-click to reset."), class_="dim")
    yield tag("div", NO_SCRIPT, class_="charts", data_run=str(index))


def _consequences(snapshot: RunSnapshot) -> Iterator[Html]:
    say_so = partial(say, snapshot.language)
    rows = [
        tag(
            "tr",
            tag("td", _severity(finding, snapshot.language)),
            tag("td", finding.rule, f" {finding.key}" if finding.key else ""),
            tag("td", prose(finding.summary), tag("div", when(finding, snapshot.language), class_="dim")),
            tag("td", finding.caused_by, data_label=f"{say_so('explained by')} "),
        )
        for finding in snapshot.findings
        if finding.caused_by is not None
    ]
    if rows:
        names = say_so("severity"), say_so("rule"), say_so("finding"), say_so("explained by")
        yield joined([tag("h3", say_so("Consequences")), _table(names, rows, "stacked")])


def _unjudged(snapshot: RunSnapshot) -> Iterator[Html]:
    """How much could be judged, and which rules a setting would let judge; inapplicable ones are left out."""
    found, say_so = coverage(snapshot), partial(say, snapshot.language)
    rows = [
        tag("tr", tag("td", setting or say_so("nothing known")), tag("td", ", ".join(rules)))
        for setting, rules in found.missing.items()
    ]
    broken = [rule for rule in snapshot.rules if rule.status is RuleStatus.BROKEN]
    rows += [tag("tr", tag("td", say_so("broken"), ": ", rule.reason), tag("td", rule.rule)) for rule in broken]
    if not rows:
        yield tag("p", coverage_line(snapshot), class_="dim")
        return
    title = tag("summary", coverage_line(snapshot))
    table = _table((say_so("to set"), say_so("rules")), rows, "stacked")
    opened = {"open": ""} if snapshot.verdict in UNJUDGED or broken else {}
    yield tag("details", title, table, **opened)


def _background(report: RunReport) -> Iterator[Html]:
    say_so = partial(say, report.snapshot.language)
    if lines := [*remarks(report)]:
        yield tag("ul", *(tag("li", line) for line in lines), class_="note")
    settings = [
        tag("tr", tag("td", name), tag("td", shown(setting.value)), tag("td", setting.origin))
        for name, setting in sorted(report.snapshot.config.items())
        if setting.value is not None
    ]
    if settings:
        table = _table((say_so("setting"), say_so("value"), say_so("source")), settings)
        yield tag("details", tag("summary", say_so("{n} settings of the run", n=len(settings))), table)
    if report.channels:
        names = say_so("channel"), say_so("kind"), say_so("records")
        cells = ((channel.name, channel.kind, channel.records) for channel in report.channels)
        channels = _table(names, [tag("tr", *(tag("td", cell) for cell in row)) for row in cells])
        yield tag("details", tag("summary", say_so("{n} channels read", n=len(report.channels))), channels)


def _table(names: Sequence[str], rows: Sequence[Html], kind: str = "plain") -> Html:
    head = tag("thead", tag("tr", *(tag("th", name) for name in names)))
    return tag("div", tag("table", head, tag("tbody", *rows), class_=kind), class_="wide")
