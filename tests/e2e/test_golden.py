"""Bundled real runs, end to end: the labels they came with, and the whole answer against the one pinned before."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
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
    """The part of the answer that is kept: verdicts, findings with evidence, what is blind and why."""
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
            "blind": {rule["rule"]: rule["reason"] for rule in run["rules"] if rule["status"] == "blind"},
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
    for alternatives in label["must"]:
        fired = [finding["fired_step"] for finding in loud if finding["rule"] in alternatives]
        assert fired, f"none of {alternatives} in {said}"
        assert label["from_step"] <= min(fired) <= label["from_step"] + label["within"]
    assert {finding["rule"] for finding in loud if not finding["caused_by"]} <= wanted | set(label["may"])
    if not wanted:
        assert run["verdict"] == "healthy" or said <= set(label["may"])


@pytest.mark.parametrize("name", bundled_runs())
def test_golden(name: str) -> None:
    """The whole answer equals the reviewed one; ``GOLDEN=write`` rewrites it."""
    now = reviewed(answer(name))
    file = RUNS / name / "expected.json"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    before = json.loads(file.read_text(encoding="utf-8"))
    assert before == now, "`make golden` rewrites what is expected; read the difference (a new rule may be blind here)"


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
