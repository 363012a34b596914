"""Tables with several runs in them, wandb's exports among them, and numbers as spreadsheets print them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.base import Source
from grpo_watch.sources.discovery.discover import Discoverer, discover
from grpo_watch.sources.rows.document import DocumentSource
from grpo_watch.sources.rows.jsonl import JsonlSource
from grpo_watch.sources.rows.layouts import step_key
from grpo_watch.sources.rows.tables import TableSource, arms_of

READERS: dict[str, Callable[..., Source]] = {"csv": TableSource, "jsonl": JsonlSource, "json": DocumentSource}


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """The rows as a table, as JSON lines or as one list, by the file's name."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = path.suffix == ".jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) if lines else json.dumps(rows))
    return path


def read(path: Path, name: str = "") -> list[RawRow]:
    """The rows of the run of this name; without one, of the only run."""
    runs = [run for run in discover(path.parent) if name in {run.name, ""}]
    (channel,) = (channel for run in runs for channel in run.channels if channel.path == path)
    own: dict[str, Any] = {"run": channel.run, "named_by": channel.named_by}
    source = READERS[path.suffix.removeprefix(".")](channel.name, path, [path.parent], **own)
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, RawRow)]


def test_a_column_that_names_the_runs_splits_the_table(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    lines = [f"{arm},{step},{step / 10},0.5" for arm in ("base", "more, KL") for step in (1, 2, 3)]
    lines = [line.replace("more, KL", '"more, KL"') for line in lines]
    path.write_text("arm,step,critic/score/mean,actor/entropy\n" + "\n".join(lines) + "\n")
    assert [run.name for run in discover(tmp_path)] == ["curves.csv#base", "curves.csv#more, KL"]
    assert [row.step for row in read(path, "curves.csv#more, KL")] == [1, 2, 3]
    assert read(path, "curves.csv#base")[1].values == {"critic/score/mean": 0.2, "actor/entropy": 0.5}


def test_one_run_stays_one() -> None:
    assert arms_of("name,step,reward\na,1,0.5\na,2,0.5\n").names == ()
    assert arms_of("seed,step,reward\n1,1,0.5\n2,2,0.5\n").names == ()
    assert arms_of("step,reward\n1,0.5\n1,0.5\n").names == ()
    assert arms_of("").names == ()


ROWS: list[dict[str, Any]] = [
    {"algo": algo, "step": step, "loss": 0.5, "kl": 0.1, "reward": at + step / 10}
    for at, algo in enumerate(("ppo", "grpo"))
    for step in range(1, 6)
]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("column", ["algo", "method", "seed", "agent"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_runs_named_by_a_column_whatever_holds_them(
    tmp_path: Path,
    suffix: str,
    column: str,
    interleaved: bool,  # noqa: FBT001
) -> None:
    """Runs one after the other, or step by step; they were one run of two attempts, or the first alone."""
    rows = [{column if key == "algo" else key: value for key, value in row.items()} for row in ROWS]
    path = write(tmp_path / f"m.{suffix}", sorted(rows, key=lambda row: row["step"]) if interleaved else rows)
    assert [run.name for run in discover(tmp_path)] == [f"m.{suffix}#ppo", f"m.{suffix}#grpo"]
    found = read(path, f"m.{suffix}#grpo")
    assert [(row.step, row.values["reward"]) for row in found] == [(step, 1 + step / 10) for step in range(1, 6)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_runs_named_by_two_columns(tmp_path: Path, suffix: str) -> None:
    rows = [{**row, "seed": seed, "model": "qwen"} for seed in (1, 2) for row in ROWS]
    write(tmp_path / f"m.{suffix}", rows)
    names = [f"m.{suffix}#{algo}/{seed}" for seed in (1, 2) for algo in ("ppo", "grpo")]
    assert [run.name for run in discover(tmp_path)] == names


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
@pytest.mark.parametrize(
    "column",
    [
        {"seed": 42},  # a setting
        {"group": 3, "name": "qwen-grpo"},
    ],
)
def test_a_column_of_one_value_splits_nothing(tmp_path: Path, suffix: str, column: dict[str, object]) -> None:
    write(tmp_path / f"m.{suffix}", [{**row, **column} for row in ROWS[:5]])
    assert len(discover(tmp_path)) == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_a_resumed_run_and_an_evaluation_are_no_further_runs(tmp_path: Path, suffix: str) -> None:
    """A name that changes with the attempt, each with steps of its own; rows of an evaluation beside training."""
    write(tmp_path / f"m.{suffix}", [{**row, "run_id": f"part-{row['step'] > 3}"} for row in ROWS[:5]])
    assert len(discover(tmp_path)) == 1
    names = {"ppo": "train", "grpo": "eval"}
    write(tmp_path / f"m.{suffix}", [{**row, "algo": "grpo", "name": names[str(row["algo"])]} for row in ROWS])
    assert len(discover(tmp_path)) == 1


def numbered(steps: Iterable[int], **named: object) -> list[dict[str, Any]]:
    """A row for each step."""
    return [{"step": step, "loss": 0.5, "kl": 0.1, "reward": step / 10, **named} for step in steps]


def in_turns(*runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of several runs, written step by step."""
    return [row for rows in zip(*runs, strict=True) for row in rows]


ATTEMPTS = [
    *[
        (column, [*numbered(range(1, 50), **{column: 1}), *numbered(range(end, end + 60), **{column: 2})])
        for column in ("seed", "config", "model", "run_id")
        for end in (40, 45, 50)
    ],
    ("attempt of few rows", [*numbered(range(1, 50), run_id="a"), *numbered(range(1, 5), run_id="b")]),
    ("attempt as it begins", [*numbered(range(1, 50), run_id="a"), *numbered(range(41, 47), run_id="b")]),
    ("seeds of environments", [{**row, "seed": 7 * at} for at, row in enumerate(numbered([*range(1, 21)] * 2))]),
    *[
        (column, in_turns(*(numbered(range(1, 31), **{column: value}) for value in values)))
        for column, values in (
            ("group", (0, 1, 2, 3)),
            ("name", ("gsm8k", "math500")),
            ("model", ("actor", "critic")),
            ("agent", ("actor", "critic")),
            ("run", ("train", "holdout")),
            ("run", ("train", "eval")),
        )
    ],
    ("no name", in_turns(numbered(range(1, 31), algo="ppo"), numbered(range(1, 31), algo=None))),
    ("mapping", in_turns(*(numbered(range(1, 31), agent={"id": at}) for at in (1, 2)))),
    ("one seed", in_turns(numbered(range(1, 31), seed=1), numbered(range(1, 31), seed=1.0))),
]


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
@pytest.mark.parametrize(("what", "rows"), ATTEMPTS)
def test_attempts_and_parts_of_one_run_stay_together(
    tmp_path: Path, what: str, rows: list[dict[str, Any]], suffix: str
) -> None:
    """Another name from one attempt to the next, or in every row, is no further run."""
    write(tmp_path / f"m.{suffix}", rows)
    assert [run.name for run in discover(tmp_path)] == [tmp_path.name], what


def test_rows_that_name_no_run_are_of_none(tmp_path: Path) -> None:
    """Evaluations between the steps of two runs, and a first row with another column."""
    rows = in_turns(*(numbered(range(1, 31), algo=algo) for algo in ("ppo", "grpo")))
    rows = [*numbered([0], seed=1), *rows[:20], *numbered([10]), *numbered([10], algo=None), *rows[20:]]
    path = write(tmp_path / "m.jsonl", rows)
    assert [run.name for run in discover(tmp_path)] == ["m.jsonl#ppo", "m.jsonl#grpo"]
    assert [row.step for row in read(path, "m.jsonl#ppo")] == [*range(1, 31)]


def test_a_third_run_that_begins_parts_nothing_again(tmp_path: Path) -> None:
    """Until it has some rows, it is none; and an attempt of one is a run, where others stand beside each other."""
    two = [*numbered(range(1, 31), algo="ppo"), *numbered(range(1, 31), algo="grpo")]
    names = ["m.jsonl#ppo", "m.jsonl#grpo"]
    for begins, rows, more in ((1, 4, []), (1, 5, ["m.jsonl#dapo"]), (25, 20, ["m.jsonl#dapo"])):
        write(tmp_path / "m.jsonl", [*two, *numbered(range(begins, begins + rows), algo="dapo")])
        assert [run.name for run in discover(tmp_path)] == [*names, *more]


@pytest.mark.parametrize("spelled", ["Algo", " algo ", "ALGO"])
def test_a_column_spelled_otherwise(tmp_path: Path, spelled: str) -> None:
    path = tmp_path / "m.jsonl"
    rows = in_turns(*(numbered(range(1, 31), **{spelled: algo}) for algo in ("ppo", "grpo")))
    path.write_text("".join(json.dumps(row, separators=(", ", " : ")) + "\n" for row in rows))
    assert [row.step for row in read(path, "m.jsonl#grpo")] == [*range(1, 31)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_that_outgrows_what_is_looked_at(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_watch.sources.discovery.several_runs.LOOKED_AT", 4_000)
    path = write(tmp_path / f"m.{suffix}", in_turns(*(numbered(range(1, 501), algo=algo) for algo in ("ppo", "grpo"))))
    assert [run.name for run in discover(tmp_path)] == [f"m.{suffix}#ppo", f"m.{suffix}#grpo"]
    assert len(read(path, f"m.{suffix}#grpo")) == 500
    discoverer = Discoverer()
    before = discoverer.discover(tmp_path)
    monkeypatch.setattr("grpo_watch.sources.discovery.several_runs.beginning", None)  # not looked at again
    os.utime(path, (1.0, 1.0))
    assert discoverer.discover(tmp_path) == before


@pytest.mark.parametrize("name", ["run#1.jsonl", "run#1.csv", "run#1.json"])
@pytest.mark.parametrize("several", [False, True])
def test_a_file_whose_name_holds_the_mark(tmp_path: Path, name: str, *, several: bool) -> None:
    rows = in_turns(*(numbered(range(1, 31), algo=algo) for algo in ("ppo", "grpo")[: several + 1]))
    path = write(tmp_path / name, rows)
    assert len(read(path, f"{name}#ppo" if several else "")) == 30


def test_wandbs_export_of_a_chart(tmp_path: Path) -> None:
    """One column group for each run; minimum and maximum are left out, and steps that a run did not log."""
    path = tmp_path / "export.csv"
    names = [f"{run} - train/reward{end}" for run in ("a-1", "b 2") for end in ("", "__MIN", "__MAX")]
    path.write_text(",".join(["Step", *names]) + "\n1,0.1,0,1,,,\n2,0.2,0,1,0.5,0,1\n3,,,,0.6,0,1\n")
    assert [run.name for run in discover(path)] == ["export.csv#a-1", "export.csv#b 2"]
    assert [(row.step, row.values) for row in read(path, "export.csv#b 2")] == [
        (2, {"train/reward": 0.5}),
        (3, {"train/reward": 0.6}),
    ]


def test_the_step_of_any_export() -> None:
    assert step_key(["_step", "reward"]) == "_step"
    assert step_key(["_step", "trainer/global_step", "reward"]) == "trainer/global_step"
    assert step_key(["training/global_step", "step"]) == "step"
    assert step_key(["Iter", "reward"]) == "Iter"
    assert step_key(["reward", "kl"]) is None


def test_thousands_and_full_width_signs(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('step\uff0creward\uff0ckl\n1\uff0c0.5\uff0c0.25\n2,-1.5,"1,568,987.96"\n', encoding="utf-8")
    assert [row.values for row in read(path)] == [
        {"reward": 0.5, "kl": 0.25},
        {"reward": -1.5, "kl": 1568987.96},
    ]


def test_a_markdown_table_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("| Step | Training Loss | reward |\n|---|---|---|\n| 1 | 0.1 | 0.5 |\n")
    (run,) = discover(tmp_path)
    assert "log.txt" in {channel.name for channel in run.channels}
