"""A check is a function, a page and tests; the page's examples are judged, a missing part is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.launches import Launch, LaunchSettings, launch_facts
from grpo_watch.preflight.assess import Check, catalogue

CHECKS = catalogue()
TESTS = Path(__file__).with_name("checks")
BLOCK = re.compile(r"^```launch\n(.*?)^```$", re.MULTILINE | re.DOTALL)
every_check = pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in CHECKS.items()])

HEADINGS = ("What it checks", "Why it matters", "What the framework says", "Examples", "When it is wrong", "What to do")
"""The second-level headings of every page, in this order."""


def examples(check: Check) -> Iterator[dict[str, Any]]:
    for match in BLOCK.finditer(check.page.read_text(encoding="utf-8")):
        yield yaml.safe_load(match[1])


def launched(example: dict[str, Any]) -> Launch:
    rows = example.get("dataset_size")
    return Launch(
        example["framework"],
        str(example["version"]),
        settings={name: Setting(value, "example") for name, value in example["settings"].items()},
        world_size=Setting(example["world_size"], "example"),
        dataset_size=None if rows is None else Setting(rows, "example"),
        packages={name: Setting(version, "example") for name, version in example.get("packages", {}).items()},
        peft=example.get("peft"),
    )


@every_check
def test_the_page_has_its_title_and_headings(check: Check) -> None:
    lines = check.page.read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {check.name}"
    assert lines[2].endswith(".")
    assert tuple(line[3:] for line in lines if line.startswith("## ")) == HEADINGS


@every_check
def test_the_examples_on_the_page_are_true(check: Check) -> None:
    """At least one launch that the check reports, and one that it does not."""
    outcomes = set()
    for example in examples(check):
        problems = list(check.judge(LaunchSettings(launched(example))))
        expect = example["expect"]
        outcomes.add(expect.get("quiet", False))
        if expect.get("quiet"):
            assert problems == [], example
        else:
            assert {problem.severity.value for problem in problems} == {expect["severity"]}, example
            assert expect.get("says", "") in problems[0].says
    assert outcomes == {True, False}


@every_check
def test_a_check_has_tests_of_its_own(check: Check) -> None:
    assert (TESTS / f"test_{check.page.stem}.py").is_file()


def test_no_orphans_stay_behind() -> None:
    """A page or a test without its check, or a function that no table names."""
    folder = next(iter(CHECKS.values())).page.parent
    stems = {check.page.stem for check in CHECKS.values()}
    assert {path.stem for path in folder.glob("*.md")} == stems
    public = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert set(re.findall(r"^def ([a-z]\w+)", public, re.MULTILINE)) == stems
    assert {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} == stems


@every_check
def test_a_check_names_itself_and_the_place(check: Check) -> None:
    """And gives one sentence and a fix."""
    for example in examples(check):
        for problem in check.judge(LaunchSettings(launched(example))):
            assert problem.check == check.name
            assert problem.hint
            assert "\n" not in problem.message
            assert problem.where in {"", "example"}


EVERYWHERE = {
    *("dataset-too-small", "group-size-one", "no-checkpoints", "sampling-greedy", "seed-per-request"),
    *("known-bug", "no-evaluation"),
}
"""Checks of what every framework has: groups, data, sampling, checkpoints, packages."""


def family(framework: str) -> str:
    """Frameworks with the same trainer are judged by the same rules."""
    return "transformers" if launch_facts()[framework].on_trainer else framework


@every_check
def test_a_check_is_quiet_about_frameworks_that_are_not_its_own(check: Check) -> None:
    """What it says of its own framework's settings it says of no other, unless it is about all of them."""
    judged = [launched(example) for example in examples(check)]
    own = {family(each.framework or "") for each in judged}
    reporting = {
        framework
        for framework in launch_facts()
        for given in judged
        if family(framework) not in own and list(check.judge(LaunchSettings(replace(given, framework=framework))))
    }
    assert bool(reporting) is (check.name in EVERYWHERE), reporting
