"""A run of ms-swift whose length is punished by a negative weight and whose third function only measures."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import EndState, Tick
from grpo_watch.report.check_document import RunReport
from grpo_watch.rules.packs import load_rules

WEIGHTS = (1.0, -0.01, 0.0)
NAMES = ("Accuracy", "Length", "Words")
STEPS, GROUPS, SIZE = 120, 4, 6
REPORTED = ("reward-components-diverge", "reward-components-cancel")


def scores(step: int, chance: random.Random) -> list[tuple[float, ...]]:
    """Answers get shorter, so that the total rises; what is right stays as it was; words follow the length."""
    length = 300.0 - 2.0 * step
    made = []
    for _ in range(GROUPS * SIZE):
        own = max(20.0, chance.gauss(length, 15.0))
        made.append((float(chance.random() < 0.5), own, own / 5.0 + chance.gauss(0.0, 1.0)))
    return made


def logged(step: int, made: Sequence[Sequence[float]], totals: Sequence[float]) -> dict[str, Any]:
    """As ms-swift 4.6.0 writes a row: eight decimals, means of the functions as they are, the total weighted."""
    row: dict[str, Any] = {"loss": 0.001, "grad_norm": 0.5 + step / 1000, "learning_rate": 1e-6, "kl": 0.001 * step}
    for name, column in zip(NAMES, zip(*made, strict=True), strict=True):
        mean = sum(column) / len(column)
        row[f"rewards/{name}/mean"] = round(mean, 8)
        row[f"rewards/{name}/std"] = round((sum((x - mean) ** 2 for x in column) / (len(column) - 1)) ** 0.5, 8)
    row |= {"reward": round(sum(totals) / len(totals), 8), "reward_std": 0.5, "frac_reward_zero_std": 0.0}
    row |= {"completions/mean_length": 60.0, "completions/clipped_ratio": 0.0}
    return {**row, "epoch": step / STEPS, "global_step/max_steps": f"{step}/{STEPS}"}


def dumped(step: int, made: Sequence[Sequence[float]], totals: Sequence[float]) -> dict[str, Any]:
    """A line of completions.jsonl with the advantages of the weighted totals."""
    advantages = []
    for at in range(0, len(totals), SIZE):
        group = totals[at : at + SIZE]
        mean = sum(group) / SIZE
        spread = (sum((total - mean) ** 2 for total in group) / (SIZE - 1)) ** 0.5
        advantages += [(total - mean) / (spread + 1e-4) for total in group]
    rows = range(len(totals))
    texts = [f"step {step} answer {at} " + "of many different words " * 4 + str(at * step) for at in rows]
    columns = {name: list(column) for name, column in zip(NAMES, zip(*made, strict=True), strict=True)}
    return {
        "step": [str(step)] * len(totals),
        "prompt": [f"question {step}.{at // SIZE}" for at in rows],
        "completion": texts,
        **columns,
        "advantages": advantages,
    }


def run_folder(folder: Path, weights: Sequence[float] | None) -> Path:
    """The run, whose ``args.json`` says these weights."""
    chance = random.Random(5)
    rows, tables = [], []
    for step in range(1, STEPS + 1):
        made = scores(step, chance)
        totals = [sum(weight * score for weight, score in zip(WEIGHTS, each, strict=True)) for each in made]
        rows.append(logged(step, made, totals))
        tables.append(dumped(step, made, totals))
    arguments = {"rlhf_type": "grpo", "swift_version": "4.6.0", "tuner_type": "full", "beta": 0.04}
    arguments |= {"num_generations": SIZE, "max_steps": STEPS, "reward_weights": weights}
    folder.mkdir()
    (folder / "args.json").write_text(json.dumps(arguments))
    for name, lines in (("logging.jsonl", rows), ("completions.jsonl", tables)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def checked(folder: Path, **said: str) -> RunReport:
    found, _ = find_runs([str(folder)])
    (report,) = check_runs(found, load_rules([]), said, Tick(2e9, live=False, state=EndState.ENDED))
    return report


def reward_findings(report: RunReport) -> set[tuple[str, str]]:
    return {(f.rule, f.severity.value) for f in report.snapshot.findings if "reward" in f.rule}


@pytest.mark.slow
@pytest.mark.parametrize("said", ["args.json", "--set"])
def test_a_punished_length_is_no_sold_component(tmp_path: Path, said: str) -> None:
    """It falls while the total rises, as its weight of -0.01 asks for; words, which fall too, count nothing."""
    folder = run_folder(tmp_path / "run", WEIGHTS if said == "args.json" else None)
    report = checked(folder) if said == "args.json" else checked(folder, reward_weights="1 -0.01 0")
    assert reward_findings(report) == set()
    status = {view.rule: view.status.value for view in report.snapshot.rules}
    assert [status[rule] for rule in REPORTED] == ["ok", "ok"]
    assert status["reward-misaligned"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, (1.0, -0.01), (-0.01, 1.0, 0.0)], ids=["unsaid", "too few", "turned"])
def test_weights_that_are_not_known_or_not_right_accuse_nobody(
    tmp_path: Path, weights: tuple[float, ...] | None
) -> None:
    """The logged total is another one than the sum with these weights: rules that need them are blind and say why."""
    report = checked(run_folder(tmp_path / "run", weights))
    assert reward_findings(report) == set()
    blind = {view.rule: view.reason for view in report.snapshot.rules if view.status.value == "blind"}
    assert "reward_weights" in blind["reward-components-diverge"]
