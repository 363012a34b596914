"""JUnit documents: valid, countable, and a rule that could not judge is skipped, never passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import RuleStatus, RuleView
from grpo_watch.report.check_document import RunReport
from grpo_watch.report.junit import junit
from tests.support.reports import EVIL, PROVENANCE, a_finding, a_hostile_report, a_report

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def parsed(
    reports: Sequence[RunReport], fail_on: Severity | None = Severity.WARNING, problems: Sequence[str] = ()
) -> ET.Element:
    """The document, after it was held against the schema."""
    text = junit(reports, problems, PROVENANCE, fail_on)
    SCHEMA.validate(text)
    return ET.fromstring(text)  # noqa: S314  our own document


def case(root: ET.Element, name: str) -> ET.Element:
    (found,) = [each for each in root.iter("testcase") if each.get("name") == name]
    return found


def test_a_case_for_each_rule() -> None:
    root = parsed([a_report(a_finding())])
    (suite,) = root
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "timestamp")} == {
        "name": "my run",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "timestamp": "2026-11-21T10:00:00",
    }
    assert list(case(root, "entropy-collapse")) == []
    skipped = case(root, "duplicate-completions").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "needs completions"
    failure = case(root, "kl-stuck-at-zero").find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("critical", "KL is 0")
    assert (failure.text or "").splitlines() == [
        "critical kl-stuck-at-zero, since step 2, fired at 10",
        "KL is 0",
        "Likely cause: The optimizer holds nothing.",
        "What to do: try `this`",
        "Wasted: 8 steps, 30 minutes on 8 GPUs",
        "Evidence: reference KL 0",
    ]


@pytest.mark.parametrize(
    ("severity", "fail_on", "fails"),
    [
        (Severity.WARNING, Severity.WARNING, True),
        (Severity.WARNING, Severity.CRITICAL, False),
        (Severity.CRITICAL, Severity.CRITICAL, True),
        (Severity.CRITICAL, None, False),
        (Severity.INFO, Severity.WARNING, False),
    ],
)
def test_fail_on(severity: Severity, fail_on: Severity | None, fails: bool) -> None:  # noqa: FBT001
    """What is below is in the output of a case that passes."""
    found = case(parsed([a_report(a_finding(severity=severity))], fail_on), "kl-stuck-at-zero")
    assert (found.find("failure") is not None) is fails
    assert (found.find("system-out") is not None) is not fails


def test_what_a_restart_left_behind_does_not_fail() -> None:
    """It resolved in an attempt that is over, so the verdict does not count it either."""
    report = a_report(a_finding(resolved_step=12), attempt=2)
    assert case(parsed([report]), "kl-stuck-at-zero").find("failure") is None
    same_attempt = a_report(a_finding(resolved_step=12), attempt=1)
    assert case(parsed([same_attempt]), "kl-stuck-at-zero").find("failure") is not None


def test_a_broken_rule_is_an_error() -> None:
    report = a_report()
    broken = RuleView("mine", Severity.WARNING, RuleStatus.BROKEN, "KeyError: 'x'")
    report = replace(report, snapshot=replace(report.snapshot, rules=(broken,)))
    root = parsed([report])
    error = case(root, "mine").find("error")
    assert error is not None
    assert error.get("message") == "KeyError: 'x'"
    assert root.get("errors") == "1"


def test_hostile_texts_are_text() -> None:
    root = parsed([a_hostile_report()])
    assert root[0].get("name") == EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\x00", "\\x00")
    assert {element.tag for element in root.iter()} <= {
        "testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "skipped", "system-out"
    }  # fmt: skip


def test_no_run_and_unreadable_files() -> None:
    assert parsed([]).get("tests") == "0"
    root = parsed([], problems=["x: permission denied"])
    skipped = case(root, "not read 1").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "x: permission denied"


def test_the_schema_refuses_what_is_no_junit() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        SCHEMA.validate(
            '<testsuites><testsuite name="x" tests="1" failures="0" errors="0"><case/></testsuite></testsuites>'
        )
