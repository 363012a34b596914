"""What is reported of a place without any run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.records import Tick
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.console import source
from grpo_watch.sources.console.source import LogSigns, signs_of
from grpo_watch.sources.discovery.unread import nothing_there


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["args.json"], "1 file (args.json); these are settings: the rows are missing"),
        (["wandb/run-20260101_000000-abc/files/config.yaml"], "of wandb's run the log itself (run-….wandb)"),
        (["model.safetensors", "config.json"], "2 files (config.json, model.safetensors); these are weights"),
        (
            ["a.py", "b.py", "c.py", "d.py", "e.py"],
            "5 files (a.py, b.py, c.py, d.py and 1 more); a log of rows is missing",
        ),
        ([], "the folder holds no file"),
    ],
)
def test_what_was_looked_at_and_what_is_missing(names: list[str], says: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert says in nothing_there(tmp_path)


def test_a_readme_that_shows_rows_is_named(tmp_path: Path) -> None:
    rows = "".join(f"step {n} | loss 0.1 | reward 0.{n}\n" for n in range(1, 5))
    (tmp_path / "README.md").write_text(f"# Results\n\n{rows}")
    assert "README.md shows rows of a training, which may be an example: name the file" in nothing_there(tmp_path)


@pytest.mark.parametrize("end", ["", "[rank0]: Traceback (most recent call last):\n[rank0]: KeyboardInterrupt\n"])
def test_a_score_that_stands_alone_on_its_lines_is_proposed_and_then_read(end: str, tmp_path: Path) -> None:
    """Nothing tells it from what an evaluation prints, so the answer asks."""
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"Loading 4 GB\nPercentage of correct examples:  0.{n}6\nIteration: {n} Micro: 1\n" for n in range(6))
        + end
    )
    found, _ = find_runs([str(tmp_path)])
    said = " ".join(problem for run in found for problem in run.problems) or nothing_there(tmp_path)
    columns = {"reward_mean": "Percentage of correct examples"}
    assert f"if {columns['reward_mean']} is the reward" in said
    assert f'"columns": {json.dumps(columns)}}}]`' in said
    assert [row.values["reward_mean"] for row in signs_of(path.read_bytes(), columns).rows][:2] == [0.06, 0.16]


@pytest.mark.parametrize("names", [5, 50])
def test_one_of_many_scores_is_tried(names: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark prints one for each of its tasks."""
    tried: list[str] = []

    def counted(text: bytes, columns: Mapping[str, str]) -> LogSigns:
        tried.extend(columns.values())
        return signs_of(text, columns)

    monkeypatch.setattr(source, "signs_of", counted)
    lines = [f"task_{n} success: 0.{turn}{n}\n" for turn in range(40) for n in range(names)]
    lines += [f"avg_response_length_correct: {turn}.5\n" for turn in range(90)]
    assert source.lone_score("".join(lines).encode()) == ""
    assert tried == ["task_0 success"]


def test_rewards_of_single_completions_are_named(tmp_path: Path) -> None:
    file = tmp_path / "rewards.jsonl"
    file.write_text('{"task": "a", "reward": {"total": 0.5}, "length": 7}\n' * 4)
    assert "rewards.jsonl holds a reward for each completion but no step, and a log" in nothing_there(tmp_path)
    file.write_text('{"task": "a", "answer": "b"}\n')
    assert "no step" not in nothing_there(tmp_path)


@pytest.mark.parametrize(
    ("name", "head", "line"),
    [
        ("m.jsonl", "", '{{"t": {n}, "fitness": 0.{n}, "drift": 0.0}}'),
        ("m.csv", "t,fitness,drift\n", "{n},0.{n},0.0"),
        ("train.log", "", "[2026-03-02 10:00:{n}] INFO t={n} fitness=0.{n} drift=0.0 z=3"),
        ("train.out", "loading 3 shards\n", "{{'t': {n}, 'fitness': 0.{n}, 'drift': 0.0}}"),
        ("train.txt", "", "t {n} | fitness 0.{n} | loss 0.1 | drift 0.0"),
    ],
)
def test_columns_without_a_known_name_are_read_by_the_settings_that_are_proposed(
    name: str, head: str, line: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(head + "".join(line.format(n=n) + "\n" for n in range(10, 40)))
    said = nothing_there(tmp_path)
    assert f"{name} has numbers under" in said
    assert "a log of rows is missing" not in said

    settings = tmp_path / "grpo-watch.yaml"
    settings.write_text(said.split("`")[1])
    chosen = load_settings({}, config=settings).settings
    found, _ = find_runs([str(file)], chosen)
    (run,) = document(check_runs(found, load_rules([]), {}, Tick(1.8e9, live=False), chosen))["runs"]
    assert run["rows"] == 30


def test_pairs_of_a_log_without_a_known_name_are_shown(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("".join(f"t={n} fitness=0.{n} drift=0.0\n" for n in range(10, 40)))
    assert "train.log has numbers under t, fitness, drift, none of them known as a metric" in nothing_there(tmp_path)
