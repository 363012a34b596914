"""Zeros and numbers that are healthy in verl, one test per trap: whole logs through the shipped rules.

Each log is written as that version prints it, with noise of a fixed seed; the faults that they look like stand below.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import Tick
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules

LOUD = {"warning", "critical"}
STEPS = 60
Row = dict[str, float]
Change = Callable[[int, Row], Mapping[str, float]]
DONE = "(TaskRunner pid=7) \"Final validation metrics: {'val-core/x/acc/mean@1': 0.6}\"\n"


def as_it_is(_: int, row: Row) -> Row:
    return row


def healthy(change: Change = as_it_is) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Rows of a run that learns: 0.6's keys, KL in the loss, full precision."""
    noise = random.Random(7)
    for step in range(1, STEPS + 1):
        row = {
            "actor/entropy": 0.42 + noise.gauss(0, 0.01),
            "actor/kl_loss": 0.0 if step == 1 else 0.00004 * step + abs(noise.gauss(0, 0.00002)),
            "actor/kl_coef": 0.001,
            "actor/pg_loss": noise.gauss(0, 0.01),
            "actor/pg_clipfrac": abs(noise.gauss(0, 0.0004)),
            "actor/ppo_kl": noise.gauss(0, 1e-5),
            "actor/grad_norm": 0.13 + noise.gauss(0, 0.01),
            "actor/lr": 1e-6,
            "training/global_step": step,
            "training/epoch": 0,
            "critic/score/mean": 0.3 + 0.004 * step + noise.gauss(0, 0.02),
            "critic/score/max": 1.0,
            "critic/score/min": 0.0,
            "critic/advantages/mean": -0.01 + noise.gauss(0, 0.003),
            "critic/advantages/max": 1.5,
            "critic/advantages/min": -1.5,
            "response_length/mean": 310.0 + noise.gauss(0, 8),
            "response_length/max": 900.0 + noise.gauss(0, 40),
            "response_length/min": 60.0 + noise.gauss(0, 5),
            "response_length/clip_ratio": 0.0,
            "timing_s/step": 31.0 + noise.gauss(0, 0.5),
            "perf/max_memory_allocated_gb": 24.5,
        }
        yield step, change(step, row)


def full(value: float) -> str:
    return repr(value)


def rounded(value: float) -> str:
    return f"{value:.3f}"


def console(change: Change = as_it_is, number: Callable[[float], str] = full, head: str = "") -> str:
    lines = (
        f"(TaskRunner pid=7) step:{step} - " + " - ".join(f"{key}:{number(value)}" for key, value in row.items())
        for step, row in healthy(change)
    )
    return head + "\n".join(lines) + "\n" + DONE


def findings(tmp_path: Path, text: str, name: str = "train.log") -> dict[str, str]:
    """Warnings and criticals by rule, with their first line."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(text)
    now = Tick((tmp_path / "run" / name).stat().st_mtime + 60, live=False)
    reports = check_runs(find_runs([str(tmp_path / "run")])[0], load_rules(), {}, now)
    (run,) = document(reports)["runs"]
    assert run["framework"] == "verl"
    return {one["rule"]: one["summary"] for one in run["findings"] if one["severity"] in LOUD}


def changed(**more: float) -> Change:
    """Rows with some values set (``__`` for a slash), NaN for absent."""
    named = {key.replace("__", "/"): value for key, value in more.items()}
    return lambda _, row: {key: value for key, value in {**row, **named}.items() if value == value}  # noqa: PLR0124


ABSENT = float("nan")


def test_a_healthy_run(tmp_path: Path) -> None:
    assert findings(tmp_path, console()) == {}


@pytest.mark.parametrize(
    "trap",
    [
        # 0.7.0 and 0.7.1 without a reference model write the placeholder of kl_loss
        changed(actor__kl_loss=0.0, actor__kl_coef=ABSENT),
        # the default: no KL anywhere
        changed(actor__kl_loss=ABSENT, actor__kl_coef=ABSENT),
        # one update per batch: old and new policy are the same, by design (up to 0.7)
        changed(actor__ppo_kl=0.0, actor__pg_clipfrac=0.0),
        # bypass_mode: neither entropy nor old log-probabilities
        changed(actor__entropy=ABSENT, actor__ppo_kl=ABSENT),
        # 0.9's new trainer: the share of responses as long as the longest is never 0
        changed(response_length__clip_ratio=0.0625, training__num_turns__mean=2.0),
        # advantages are averaged over tokens: their mean is not 0
        changed(critic__advantages__mean=-0.21),
        # in-reward KL, k1: signed
        changed(actor__reward_kl_penalty=-0.0004, actor__kl_loss=ABSENT, actor__kl_coef=ABSENT),
    ],
    ids=["kl-placeholder", "no-kl", "on-policy", "bypass", "clip-ratio-0.9", "advantages-mean", "kl-in-reward"],
)
def test_a_healthy_zero_stays_quiet(tmp_path: Path, trap: Change) -> None:
    assert findings(tmp_path, console(trap)) == {}


def test_three_decimals_hide_a_small_kl_and_the_rate(tmp_path: Path) -> None:
    """Up to 0.4.1 kl_loss, ppo_kl and lr of this healthy run all read 0.000."""
    small = changed(actor__kl_loss=0.0003)
    assert "actor/kl_loss:0.000 - " in console(small, rounded)
    assert "actor/lr:0.000 - " in console(small, rounded)
    assert findings(tmp_path, console(small, rounded)) == {}


def test_the_first_rows_of_a_warm_up(tmp_path: Path) -> None:
    """0.8 logs the next rate: step 1 was made with 0, so policy and reference are still one at step 2."""

    def warm(step: int, row: Row) -> Row:
        still = {"actor/kl_loss": 0.0, "actor/ppo_kl": 0.0} if step <= 2 else {}
        return {**row, "actor/loss": 0.01, "actor/lr": min(step, 10) * 1e-7, **still}

    assert findings(tmp_path, console(warm)) == {}


def test_the_critic_warms_up_without_any_update_of_the_policy(tmp_path: Path) -> None:
    def warm(step: int, row: Row) -> Row:
        return row if step > 15 else {key: value for key, value in row.items() if not key.startswith("actor/")}

    assert findings(tmp_path, console(warm)) == {}


def test_numpy_scalars_and_validation_in_the_row(tmp_path: Path) -> None:
    def with_validation(step: int, row: Row) -> Row:
        return {**row, "val-core/x/acc/mean@1": 0.5} if step % 10 == 0 else row

    text = console(with_validation, lambda value: f"np.float64({value!r})", "step:0 - val-core/x/acc/mean@1:0.3\n")
    assert findings(tmp_path, text) == {}


def test_one_group_of_zeros_now_and_then(tmp_path: Path) -> None:
    """A small batch of easy prompts: all advantages are 0 in one step of six."""

    def easy(step: int, row: Row) -> Row:
        return {**row, "critic/advantages/max": 0.0, "critic/advantages/min": 0.0} if step % 6 == 0 else row

    assert findings(tmp_path, console(easy)) == {}


# the faults that these look like


def test_a_kl_that_stays_zero_although_there_is_a_reference(tmp_path: Path) -> None:
    assert "kl-stuck-at-zero" in findings(tmp_path, console(changed(actor__kl_loss=0.0, actor__ppo_kl=0.0)))


def test_no_advantage_at_all(tmp_path: Path) -> None:
    dead = changed(critic__advantages__max=0.0, critic__advantages__min=0.0)
    assert "reward-variance-collapse" in findings(tmp_path, console(dead))


def test_numbers_that_are_not_finite_in_the_file_logger(tmp_path: Path) -> None:
    """orjson writes NaN as null: the run is as broken as one whose console says nan."""

    def row(step: int, values: Mapping[str, Any]) -> str:
        data = {**values, "actor/grad_norm": None, "actor/pg_loss": None} if step > 40 else values
        return json.dumps({"step": step, "data": data}, separators=(",", ":"))

    text = "\n".join(row(step, values) for step, values in healthy()) + "\n"
    assert "non-finite-metric" in findings(tmp_path, text, "exp.jsonl")


def test_the_file_logger_of_a_healthy_run(tmp_path: Path) -> None:
    rows = (json.dumps({"step": step, "data": row}, separators=(",", ":")) for step, row in healthy())
    assert findings(tmp_path, "\n".join(rows) + "\n", "exp.jsonl") == {}
