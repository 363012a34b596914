"""Turns reports into JUnit XML for CI servers: a suite for each run, a case for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from xml.etree import ElementTree as ET

from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import RuleStatus, RuleView, RunSnapshot, caveats
from grpo_watch.report.blindness import headline
from grpo_watch.report.check_document import Provenance, RunReport, remarks
from grpo_watch.report.view import FindingView, facts, in_force, judgement_lines, views
from grpo_watch.safe_text import visible

Text = dict[str, str]


def junit(
    reports: Sequence[RunReport], problems: Sequence[str], provenance: Provenance, fail_on: Severity | None
) -> str:
    """The document. A case fails if the verdict counts a finding at or above ``fail_on``; None: nothing fails.

    A rule that could not judge is skipped, with the reason; one that raised is an error. Findings below ``fail_on``, or
    resolved ones, are the output of a passing case.
    """
    suites = [_suite(report, provenance, fail_on) for report in reports]
    if problems:
        suites.append(_unread(problems, provenance))
    root = ET.Element("testsuites", {"name": "grpo-watch", **_totals(suites)})
    root.extend(suites)
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(report: RunReport, provenance: Provenance, fail_on: Severity | None) -> ET.Element:
    snapshot = report.snapshot
    cases = [_case(rule, snapshot, fail_on) for rule in snapshot.rules]
    suite = _element("testsuite", name=snapshot.run, **_counted(cases), timestamp=_timestamp(provenance))
    properties = ET.SubElement(suite, "properties")
    values = {
        "verdict": snapshot.verdict.value,
        "headline": headline(snapshot),
        "run": " · ".join(facts(snapshot)),
        "command": provenance.command,
    }
    for name, value in {**values, "version": provenance.version}.items():
        properties.append(_element("property", name=name, value=value))
    suite.extend(cases)
    also = [
        *caveats(snapshot),
        *(f"{label}: {line}" for label, line in judgement_lines(snapshot)),
        *remarks(report),
    ]
    if also:
        suite.append(_element("system-out", text="\n".join(also)))
    return suite


def _case(rule: RuleView, snapshot: RunSnapshot, fail_on: Severity | None) -> ET.Element:
    case = _element("testcase", classname=f"grpo-watch.{snapshot.run}", name=rule.rule)
    findings = [view for view in views(snapshot) if view.finding.rule == rule.rule]
    in_effect = [view for view in findings if in_force(view.finding, snapshot)]
    failing = [view for view in in_effect if fail_on is not None and view.finding.severity.rank >= fail_on.rank]
    others = [view for view in findings if view not in failing]
    if failing:
        worst = max((view.finding for view in failing), key=lambda finding: finding.severity.rank)
        text = "\n\n".join(map(_described, failing))
        case.append(_element("failure", text, type=worst.severity.value, message=worst.summary))
    elif rule.status is RuleStatus.BROKEN:
        case.append(_element("error", type="broken", message=rule.reason))
    elif rule.status is RuleStatus.BLIND and not findings:
        case.append(_element("skipped", message=rule.reason))
    if others:
        case.append(_element("system-out", "\n\n".join(map(_described, others))))
    return case


def _described(shown: FindingView) -> str:
    finding = shown.finding
    lines = [f"{finding.severity.value} {finding.rule} {shown.key}".rstrip() + f", {shown.since}", finding.summary]
    lines += [f"explained by: {finding.caused_by}"] if finding.caused_by else []
    return "\n".join([*lines, *(f"{label}: {text}" for label, text in shown.details)])


def _unread(problems: Sequence[str], provenance: Provenance) -> ET.Element:
    """Unreadable files that belong to no run, as skipped cases."""
    cases = []
    for index, problem in enumerate(problems, start=1):
        case = _element("testcase", classname="grpo-watch", name=f"not read {index}")
        case.append(_element("skipped", message=problem))
        cases.append(case)
    suite = _element("testsuite", name="not read", **_counted(cases), timestamp=_timestamp(provenance))
    suite.extend(cases)
    return suite


def _counted(cases: Sequence[ET.Element]) -> Text:
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts_by_kind = {many: str(sum(case.find(one) is not None for case in cases)) for many, one in kinds.items()}
    return {"tests": str(len(cases)), **counts_by_kind}


def _totals(suites: Sequence[ET.Element]) -> Text:
    """The sums over all suites (JUnit's schema has no count of skipped cases at the root)."""
    return {name: str(sum(int(suite.get(name, "0")) for suite in suites)) for name in ("tests", "failures", "errors")}


def _timestamp(provenance: Provenance) -> str:
    """The time in UTC without a zone: JUnit's times have none."""
    return datetime.fromtimestamp(provenance.checked, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _element(tag: str, text: str | None = None, **attributes: str) -> ET.Element:
    """An element whose text contains only characters allowed in XML."""
    made = ET.Element(tag, {name: visible(value) for name, value in attributes.items()})
    if text is not None:
        made.text = "\n".join(map(visible, text.split("\n")))
    return made
