"""Turns reports into one HTML file that needs nothing besides itself: no server, no network, no other file."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.snapshot import WORST_FIRST, RunSnapshot
from grpo_watch.report.charts import POINTS, bands, charts, finding_charts
from grpo_watch.report.check_document import Provenance, RunReport
from grpo_watch.report.page_run import Html, facts_line, joined, run_section, tag, verdict_mark
from grpo_watch.report.view import top_view

STYLES = tuple(f"web/static/{name}.css" for name in ("vendor/uPlot.min", "theme", "common"))
FEWEST = 60
"""Steps that a chart shows where many runs share the page."""
FULL = 4
"""Up to so many runs have charts at full resolution."""


def page(reports: Sequence[RunReport], problems: Sequence[str], provenance: Provenance) -> str:
    """The whole file.

    Its content security policy allows only the scripts written here and loads nothing. Content of a run is text, or
    JSON in a block that no browser executes.
    """
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
        f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n'
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
    ordered = _worst_first(reports)
    if len(ordered) > 1:
        yield _overview(ordered)
    if not ordered:
        yield tag("p", "Nothing to check: no run found.")
    yield from (run_section(report, index) for index, report in enumerate(ordered))
    if problems:
        yield tag("section", tag("h2", "Problems"), tag("ul", *(tag("li", problem) for problem in problems)))
    again = [
        tag("h2", "How to reproduce"),
        tag("pre", provenance.command),
        tag("p", f"The same files give the same result with grpo-watch {provenance.version}.", class_="dim"),
    ]
    yield tag("section", *again, class_="again")


def _worst_first(reports: Sequence[RunReport]) -> list[RunReport]:
    return sorted(reports, key=lambda report: WORST_FIRST.index(report.snapshot.verdict))


def _overview(reports: Sequence[RunReport]) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", verdict_mark(report.snapshot.verdict)),
            tag("td", tag("a", report.snapshot.run, href=f"#run-{index}")),
            tag("td", _root(report.snapshot)),
            tag("td", facts_line(report.snapshot), class_="dim"),
        )
        for index, report in enumerate(reports)
    ]
    head = tag("tr", *(tag("th", name) for name in ("verdict", "run", "root cause", "")))
    return tag(
        "section", tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="overview"), class_="wide")
    )


def _root(snapshot: RunSnapshot) -> str:
    first = top_view(snapshot)
    return first.finding.rule if first else ""


def _data(reports: Sequence[RunReport]) -> Html:
    """What the charts draw, by run, in the order of the page."""
    points = min(POINTS, max(FEWEST, POINTS * FULL // max(1, len(reports))))
    drawings: list[dict[str, Any]] = [
        {
            "charts": _charts(report, points),
            "bands": bands(report.snapshot.findings),
        }
        for report in _worst_first(reports)
    ]
    text = json.dumps(drawings, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="data">{text}</script>')


def _charts(report: RunReport, points: int) -> list[dict[str, Any]]:
    """The charts, the one that proves the top finding first."""
    if report.series is None or not len(report.series):
        return []
    needs = {name: [need for way in found.needs for need in way] for name, found in catalogue().items()}
    return finding_charts(charts(report.series, points), report.snapshot, needs)


def _policy(style: str, *scripts: str) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _scripts() -> tuple[str, str]:
    """The chart library, and ours: the module that the status page shares, as part of one script."""
    shared = _file("web/static/js/plot.js").replace("\nexport ", "\n")
    own = f'(() => {{\n"use strict";\n{shared}\n{_file("report/static/report.js")}}})();'
    return _file("web/static/vendor/uPlot.iife.min.js"), own


def _file(name: str) -> str:
    return files("grpo_watch").joinpath(name).read_text(encoding="utf-8")
