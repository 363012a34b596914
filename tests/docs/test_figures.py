"""Figures that pages quote are those of the page that has them from a measurement, and of the catalogue."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from grpo_watch.catalogue import catalogue
from tests.support.markdown import ROOT


def page(name: str) -> str:
    """A page on one line, as its sentences are broken anywhere."""
    return " ".join((ROOT / name).read_text("utf-8").split())


FIGURES = {
    "healthy": "9,001",
    "critical": "0",
    "flagged": "7",
    "share": "0.1",
    "faulty": "5,005",
    "kinds": "99",
    "found": "5,002",
    "recorded": "88",
    "unexpected": "0",
    "fair": "3",
    "plain_healthy": "9001",
    "plain_faulty": "5005",
    "plain_found": "5002",
}


def test_pages_get_the_figures_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """That they have those of today is among what `make docs` writes."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    quoted = import_module("quoted_figures")
    today = quoted.measured((ROOT / "docs" / "robustness.md").read_text("utf-8"))
    assert today.keys() >= FIGURES.keys()
    pages = {name: " ".join(quoted.quoting(name, page(name), FIGURES).split()) for name in quoted.QUOTED}
    assert "7 of 9,001 healthy runs raised a warning" in pages["README.md"]
    assert "5,002 of 5,005 runs with one of 99 faults were detected" in pages["README.md"]
    assert "Of 88 recorded healthy runs, none raised a false alarm; 3 raised" in pages["README.md"]
    assert "9001 次正常训练中有 7 次出现" in pages["README.zh-CN.md"]
    assert "They detected 5,002 of 5,005 faulty runs of 99 kinds" in pages["docs/comparison.md"]


def test_a_page_that_says_none_where_there_is_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    quoted = import_module("quoted_figures")
    text = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    with pytest.raises(ValueError, match="say so"):
        quoted.measured(re.sub(r"^\| critical \| 0 ", "| critical | 1 ", text, flags=re.MULTILINE))
    with pytest.raises(ValueError, match="no sentence like"):
        quoted.quoting("README.md", "rewritten", FIGURES)


def test_the_readme_does_not_overstate_the_rules() -> None:
    (at_least,) = re.findall(r"more than (\d+) \[rules\]\(docs/rules\.md\)", page("README.md"))
    assert 40 < int(at_least) < len(catalogue())
