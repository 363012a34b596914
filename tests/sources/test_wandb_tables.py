"""Completions in a wandb folder whose log is not there: the tables beside the console are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.engine.records import CompletionSummary, Stream
from grpo_watch.sources.completions.completion_table import WandbTablesSource, holds_tables
from grpo_watch.sources.discovery.discover import discover

TABLES = "wandb/run-20260101_000000-abcd1234/files/media/table"
WORDS = ("red", "green", "blue", "black")


def a_table(folder: Path, step: int, texts: tuple[str, ...], *, wandb_step: int | None = None) -> None:
    """Two prompts with four completions each, as TRL logs them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        [str(step), f"question {step}-{prompt}", f"answer {step}-{prompt} is {text}, so that is it", float(at % 2), 0.5]
        for prompt in range(2)
        for at, text in enumerate(texts)
    ]
    content = {"columns": ["step", "prompt", "completion", "correct", "advantage"], "data": rows}
    at = step if wandb_step is None else wandb_step
    (folder / f"completions_{at}_0a1b2c3d4e5f.table.json").write_text(json.dumps(content))


def read(folder: Path) -> list[CompletionSummary]:
    source = WandbTablesSource("tables", folder, [folder], lambda: 4)
    items = [*source.poll(None), *source.finish()]
    return [item for item in items if isinstance(item, CompletionSummary)]


def test_tables_come_under_the_step_of_their_own_column(tmp_path: Path) -> None:
    """wandb counts its own steps; a second table under one step is an evaluation, the same table again is none."""
    a_table(tmp_path, 10, WORDS, wandb_step=3)
    a_table(tmp_path, 20, WORDS, wandb_step=12)
    a_table(tmp_path, 20, WORDS, wandb_step=13)
    a_table(tmp_path, 20, WORDS[::-1], wandb_step=14)
    (tmp_path / "val_generations_1_0a1b2c3d4e5f.table.json").write_text("{}")

    found = read(tmp_path)

    assert [(batch.step, batch.stream) for batch in found] == [
        (10, Stream.TRAIN),
        (20, Stream.TRAIN),
        (20, Stream.EVAL),
    ]
    assert [(group.size, group.unique) for group in found[0].groups] == [(4, 4), (4, 4)]


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"columns": ["a"], "data": [[1]]}'])
def test_another_table_is_counted_and_passed_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "completions_1_0a1b2c3d4e5f.table.json").write_text(content)
    assert read(tmp_path) == []


def a_run(tmp_path: Path, texts: tuple[str, ...]) -> Path:
    """Twelve steps in wandb's copy of the console and in its tables; the log itself is missing."""
    folder = tmp_path / TABLES
    for step in range(1, 13):
        a_table(folder, step, texts)
    rows = (
        "{'loss': 0.01, 'grad_norm': 0.5, 'learning_rate': 1e-06, 'reward': 0.5, 'reward_std': 0.3, 'kl': 0.01}\n"
        f" {step / 12:.0%}| {step}/12 [00:{step:02}<00:01,  1.00s/it]\n"
        for step in range(1, 13)
    )
    (folder.parent.parent / "output.log").write_text("".join(rows))
    return tmp_path


def rules(capsys: pytest.CaptureFixture[str], path: Path) -> set[str]:
    run_cli(["check", str(path), "--format", "json", "--fail-on", "never"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    return {finding["rule"] for finding in run["findings"]}


def test_copies_inside_groups_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each half of a group repeats the other."""
    assert "duplicate-completions" in rules(capsys, a_run(tmp_path, (*WORDS[:2], *WORDS[:2])))


def test_four_answers_are_no_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "duplicate-completions" not in rules(capsys, a_run(tmp_path, WORDS))


def test_the_log_itself_names_its_tables(tmp_path: Path) -> None:
    """Beside a ``.wandb`` file the folder of tables is no channel of its own."""
    path = a_run(tmp_path, WORDS)
    assert holds_tables(path / TABLES)
    assert any(channel.what.value == "wandb completion tables" for run in discover(path) for channel in run.channels)

    (path / TABLES).parents[2].joinpath("run-abcd1234.wandb").write_bytes(b":W&B\xee\xbe\x00")

    assert all(channel.what.value != "wandb completion tables" for run in discover(path) for channel in run.channels)
