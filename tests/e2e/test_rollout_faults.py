"""Faults of the sampler and of the gathering put into the dump of a real healthy run, and found by ``check``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import Tick
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from tests.support.bundles import unpack

HEALTHY = "ms-swift-4.6.0-19-healthy-cosine-warmup"
GROUP = 6
NOW = 1_798_761_600.0


def findings(folder: Path, change: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """What ``check`` finds once every dumped table was changed."""
    run = unpack(HEALTHY, folder)
    (file,) = run.rglob("completions.jsonl")
    tables = [json.loads(line) for line in file.read_text().splitlines()]
    for table in tables:
        change(table)
    file.write_text("".join(json.dumps(table) + "\n" for table in tables))
    report = document(check_runs(find_runs([str(run)])[0], load_rules(()), {}, Tick(NOW, live=False)))
    known = {"completions-truncated"}  # its limit is 24 tokens
    return [finding for finding in report["runs"][0]["findings"] if finding["rule"] not in known]


def test_advantages_that_are_one_row_off(tmp_path: Path) -> None:
    """Found in the third batch, as the runbook says."""

    def moved(table: dict[str, Any]) -> None:
        table["advantages"] = table["advantages"][1:] + table["advantages"][:1]

    found = sorted(findings(tmp_path, moved), key=lambda finding: finding["fired_step"])
    order, sums = (finding for finding in found if finding["rule"] == "reward-misaligned")
    (arithmetic,) = (finding for finding in found if finding["rule"] != "reward-misaligned")
    assert (arithmetic["rule"], arithmetic["caused_by"]) == ("advantage-arithmetic", "reward-misaligned")
    assert (order["first_step"], order["fired_step"], order["severity"]) == (1, 3, "warning")
    assert sums["severity"] == "info"
    assert "do not sum to 0" in sums["summary"]


def test_texts_of_a_shared_seed_that_drift_apart(tmp_path: Path) -> None:
    """Copies three places apart that differ only after 64 characters, as no exact comparison sees them."""

    def drifting(table: dict[str, Any]) -> None:
        texts = [text.ljust(64, "~")[:64] for text in table["completion"]]
        table["completion"] = [
            f"{texts[at - at % GROUP + at % GROUP % 3]} and then {at} is what {at * 7} comes to"
            for at in range(len(texts))
        ]

    (found,) = findings(tmp_path, drifting)
    assert (found["rule"], found["severity"]) == ("near-duplicate-completions", "warning")
    assert "ranks or engines share a seed" in found["summary"]
    assert found["evidence"]["distinct_openings"] == 3


def test_the_run_as_it_was(tmp_path: Path) -> None:
    assert findings(tmp_path, lambda table: None) == []  # noqa: ARG005
