"""Bundled real runs, end to end: the labels they came with, and the whole answer against the one pinned before."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import Tick
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from tests.support.bundles import RUNS, bundled_runs, labels, unpack
from tests.support.whole_sums import whole_sums_only

NOW = 1_798_761_600.0  # 2027-01-01: long after every run
LOUD = {"warning", "critical"}
BLIND = RUNS / "blind.json"
REWRITE = "`make golden` rewrites what is expected; read the difference"


@pytest.fixture(scope="module", autouse=True)
def _whole_sums() -> Iterator[None]:
    with whole_sums_only():
        yield


@cache
def answer(name: str) -> list[dict[str, Any]]:
    """What ``check --format json`` says about a bundled run; to be left as it is."""
    with TemporaryDirectory() as folder:
        return said_of(unpack(name, Path(folder)))


def said_of(run: Path) -> list[dict[str, Any]]:
    """The same of a run's folder."""
    reports = check_runs(find_runs([str(run)])[0], load_rules(), {}, Tick(NOW, live=False))
    runs: list[dict[str, Any]] = document(reports)["runs"]
    return runs


def reviewed(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The part of the answer that is kept beside the run: verdicts, findings with evidence."""
    kept = (
        "rule",
        "severity",
        "first_step",
        "fired_step",
        "resolved_step",
        "attempt",
        "caused_by",
        "summary",
        "evidence",
    )
    return [
        {
            "run": run["run"],
            "framework": f"{run['framework']} {run['framework_version']}",
            "steps": run["steps"],
            "attempts": run["attempts"],
            "verdict": run["verdict"],
            "findings": [{key: finding[key] for key in kept} for finding in run["findings"]],
            "broken": [rule["rule"] for rule in run["rules"] if rule["status"] == "broken"],
        }
        for run in runs
    ]


@pytest.mark.parametrize("name", sorted(labels()))
def test_label(name: str) -> None:
    """Every fault is named in time, nothing else is reported of a healthy run, no rule breaks."""
    label = labels()[name]
    (run,) = answer(name)
    loud = [finding for finding in run["findings"] if finding["severity"] in LOUD]
    said = {finding["rule"] for finding in loud}
    wanted = {rule for alternatives in label["must"] for rule in alternatives}

    assert not [rule for rule in run["rules"] if rule["status"] == "broken"]
    assert not [finding["hint"] for finding in run["findings"] if re.search(r"\{[a-z]\w*\}", finding["hint"])]
    assert all(finding["headline"] and "{" not in finding["headline"] for finding in loud)
    for alternatives in label["must"]:
        fired = [finding["fired_step"] for finding in loud if finding["rule"] in alternatives]
        assert fired, f"none of {alternatives} in {said}"
        assert label["from_step"] <= min(fired) <= label["from_step"] + label["within"]
    assert {finding["rule"] for finding in loud if not finding["caused_by"]} <= wanted | set(label["may"])
    if not wanted:
        assert run["verdict"] == "healthy" or said <= set(label["may"])


def blind_of(name: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Of each run of a bundle: its framework, and its blind rules with what they lack."""
    return {
        run["run"] if run["run"] == name else f"{name}/{run['run']}": (
            run["framework"] or "unknown framework",
            {rule["rule"]: rule["reason"] for rule in run["rules"] if rule["status"] == "blind"},
        )
        for run in answer(name)
    }


def grouped(runs: Mapping[str, tuple[str, Mapping[str, str]]]) -> dict[str, dict[str, str]]:
    """Rule → reason → runs, as a text; a framework's name stands for all its runs."""
    members: dict[str, set[str]] = {}
    lacking: dict[str, dict[str, set[str]]] = {}
    for run, (framework, blind) in runs.items():
        members.setdefault(framework, set()).add(run)
        for rule, reason in blind.items():
            lacking.setdefault(rule, {}).setdefault(reason, set()).add(run)
    table: dict[str, dict[str, str]] = {}
    for rule in sorted(lacking):
        for reason, among in sorted(lacking[rule].items()):
            whole = {framework for framework, all_runs in members.items() if all_runs <= among}
            single = among.difference(*(members[framework] for framework in whole))
            table.setdefault(rule, {})[reason] = ", ".join([*sorted(whole), *sorted(single)])
    return table


@pytest.mark.parametrize("name", bundled_runs())
def test_golden(name: str) -> None:
    """The answer equals the reviewed one, and so do the blind rules; ``GOLDEN=write`` rewrites both."""
    now = reviewed(answer(name))
    file = RUNS / name / "expected.json"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    assert json.loads(file.read_text(encoding="utf-8")) == now, REWRITE


def test_blind_rules() -> None:
    """In one file, ordered by rule, so that a new rule is one entry there."""
    now = grouped({run: each for name in bundled_runs() for run, each in blind_of(name).items()})
    if os.environ.get("GOLDEN") == "write":
        BLIND.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    assert json.loads(BLIND.read_text(encoding="utf-8")) == now, REWRITE


def test_a_framework_stands_for_all_its_runs() -> None:
    runs = {"a/a": ("trl", {"x": "needs z"}), "b/b": ("trl", {"x": "needs z", "y": "needs z"}), "c/c": ("verl", {})}
    assert grouped(runs) == {"x": {"needs z": "trl"}, "y": {"needs z": "b/b"}}


def test_refused_configurations_are_named() -> None:
    """Each of ten refused launches is one run, and its error text decides the rule."""
    runs = {run["run"].removesuffix(".log"): run for run in answer("trl-1.16.0-20-config-errors")}
    tops = {name: run["findings"][0]["rule"] for name, run in runs.items()}

    assert tops == {
        "batch_not_divisible": "batch-not-divisible",
        "batch_smaller_than_group": "batch-not-divisible",
        "both_generation_settings": "batch-not-divisible",
        "default_per_device_8_gens_6": "batch-not-divisible",
        "generation_batch_not_divisible": "batch-not-divisible",
        "num_generations_1": "group-size-one",
        "fp16_cpu_bf16_both": "run-crashed",
        "missing_prompt_column": "run-crashed",
        "reward_string": "run-crashed",
        "reward_wrong_length": "run-crashed",
    }
