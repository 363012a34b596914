"""Figures that pages quote are those of the page that has them from a measurement, and of the catalogue."""

from __future__ import annotations

import re

from grpo_watch.catalogue import catalogue
from tests.support.markdown import ROOT

ROBUSTNESS = (ROOT / "docs" / "robustness.md").read_text("utf-8")


def page(name: str) -> str:
    """A page on one line, as its sentences are broken anywhere."""
    return " ".join((ROOT / name).read_text("utf-8").split())


def measured(pattern: str) -> tuple[str, ...]:
    """The groups of ``pattern`` in docs/robustness.md."""
    found = re.search(pattern, ROBUSTNESS, re.MULTILINE)
    assert found is not None, pattern
    return found.groups()


def test_the_readme_quotes_robustness() -> None:
    (runs,) = measured(r"^([\d,]+) healthy runs,")
    (critical,) = measured(r"^\| critical \| (\d+) \|")
    (flagged,) = measured(r"^\| warning or critical \| (\d+) \|")
    faulty, kinds, found = measured(r"^([\d,]+) faulty runs of (\d+) kinds, ([\d,]+) detected")
    recorded, unexpected = measured(r"^(\d+) healthy recorded runs .* do not allow: (\d+) ")
    (fair,) = measured(r"\. (\d+) runs have a finding that their label allows")
    assert (critical, found, unexpected) == ("0", faulty, "0"), "say so in words"
    text = page("README.md")
    assert f"{flagged} of {runs} healthy runs raised a warning and none a critical alert" in text
    assert f"all {faulty} runs with one of {kinds} faults were detected" in text
    assert f"Of {recorded} recorded healthy runs, none raised a false alarm" in text
    assert f"{fair} raised a warning that was justified" in text


def test_the_comparison_quotes_robustness() -> None:
    (share,) = measured(r"^\| warning or critical \| \d+ \| ([\d.]+) % \|")
    faulty, kinds = measured(r"^([\d,]+) faulty runs of (\d+) kinds, \1 detected")
    text = page("docs/comparison.md")
    assert f"raise no critical alert and warnings in {share} %" in text
    assert f"They detected all {faulty} faulty runs of {kinds} kinds" in text


def test_the_readme_does_not_overstate_the_rules() -> None:
    (at_least,) = re.findall(r"more than (\d+) \[rules\]\(docs/rules\.md\)", page("README.md"))
    assert 40 < int(at_least) < len(catalogue())
