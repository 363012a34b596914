"""Markdown for issues: complete, and nothing that came from a run is markup."""

from __future__ import annotations

import re

import pytest

from grpo_watch.engine.detector import Blindness
from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import RuleStatus, RuleView
from grpo_watch.report.markdown import code, fenced, markdown, prose, table
from tests.support.reports import PROVENANCE, a_finding, a_hostile_report, a_report, frozen


def test_the_whole_story() -> None:
    consequence = a_finding(
        "reward-collapse", caused_by="kl-stuck-at-zero", severity=Severity.WARNING, resolved_step=18
    )
    text = markdown([a_report(a_finding(), consequence)], ["x: permission denied"], PROVENANCE)
    for line in (
        "## CRITICAL: `my run`",
        "trl 1.16.0 · step 20 of 100 · 3 of 4 applicable rules judged",
        "### Root cause: `kl-stuck-at-zero`",
        "**critical**, since step 2, fired at 10: KL is 0",
        "- **Likely cause:** The optimizer holds nothing.",
        "- **What to do:** try `this`",
        "- **Wasted:** 8 steps, 30 minutes on 8 GPUs",
        "- **Evidence:** reference KL 0",
        "- Explained by `kl-stuck-at-zero`: `reward-collapse` (warning, since step 2)",
        "| 2 | 10 | 18 | warning | `reward-collapse` | `kl-stuck-at-zero` |",
        "1 blind: set log_completions=True.",
        "| `log_completions=True` | `duplicate-completions` |",
        "- problem: x: permission denied",
        "Checked 2026-11-21T10:00:00Z by grpo-watch 9.9.9; to reproduce:",
        "grpo-watch check 'my run' --now 2026-11-21T10:00:00Z",
    ):
        assert line in text.splitlines()


def test_the_first_sign_and_reported_severity_stay() -> None:
    lines = markdown([a_report(*frozen())], [], PROVENANCE).splitlines()
    assert "**critical**, since step 60, fired at 80; first sign: step 2 (kl-stuck-at-zero): KL is 0" in lines
    assert "| 2 | 10 as critical |  | warning | `kl-stuck-at-zero` | `parameters-unchanged` |" in lines


def test_a_healthy_run_is_short() -> None:
    text = markdown([a_report(verdict="healthy")], [], PROVENANCE)
    assert "No findings." in text
    assert "1 of 2 applicable rules judged" in text
    assert "Root cause" not in text


def test_what_does_not_apply_is_not_listed() -> None:
    rules = (RuleView("resume-regression", Severity.WARNING, RuleStatus.BLIND, "-", blind=Blindness.NOT_APPLICABLE),)
    text = markdown([a_report(a_finding(), rules=rules)], [], PROVENANCE)
    assert "resume-regression" not in text
    assert "0 of 0 applicable rules judged" in text


def test_nothing_found() -> None:
    assert markdown([], [], PROVENANCE).startswith("Nothing to check: no run found.\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kl_reference is a_b", "kl_reference is a_b"),
        ("_x_ *y*", r"\_x_ \*y\*"),
        ("<img onerror=x>", r"\<img onerror=x>"),
        ("![a](http://b)", "!\\[a\\](http:\u200b//b)"),
        ("www.evil.example", "www.\u200bevil.example"),
        ("fixes #12, GH-7, a/b#3", "fixes #\u200b12, GH-\u200b7, a/b#\u200b3"),
        ("step: 3, C# 5", "step: 3, C# 5"),
        ("a | b", r"a \| b"),
        ("&lt;", "&amp;lt;"),
        ("AT&T", "AT&T"),
        ("@team, a@b", "@\u200bteam, a@b"),
        ("1. one", r"1\. one"),
        ("# one", r"\# one"),
        ("one # two - three", "one # two - three"),
        ("run `a|b` now", r"run `a\|b` now"),
        ("one ` tick", r"one \` tick"),
        ("a\nb\x1b", r"a\\nb\\x1b"),
        ("", ""),
    ],
)
def test_prose(text: str, shown: str) -> None:
    assert prose(text) == shown


def test_code_and_fences_are_longer_than_what_they_hold() -> None:
    assert code("a") == "`a`"
    assert code("a`b") == "``a`b``"
    assert code("`a") == "`` `a ``"
    assert code("a|b") == r"`a\|b`"
    assert code(" ") == ""
    assert fenced(["````"]) == ["`````text", "````", "`````"]
    assert table(["x"], [["1"]]) == ["| x |", "| --- |", "| 1 |"]


def test_hostile_texts_are_text() -> None:
    """Outside code there is no unescaped tag but our own; no line is broken; every table row has its cells."""
    text = markdown([a_hostile_report()], ["<b>@all"], PROVENANCE)
    assert not set(text) & {"\x1b", "\u202e", "\x00"}
    outside = re.sub(r"(?ms)^(`{3,})\w+$.*?^\1$", "", text)
    outside = re.sub(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert set(re.findall(r"(?<!\\)<[^\s>]*>?", outside)) == {"<details>", "<summary>", "</summary>", "</details>"}
    for line in outside.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in {3, 7}
