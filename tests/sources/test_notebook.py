"""Notebooks with their saved outputs: tables, printed rows, several cells, errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import EventKind, Item, RunConfig, RunEvent
from grpo_watch.sources.console.notebook import HtmlTableSource, NotebookSource
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from tests.support.channel import rows


def table(steps: Sequence[int], *columns: str, done: int = 0, total: int = 0) -> dict[str, Any]:
    """The output of a training cell: a bar and an HTML table."""
    head = "".join(f"<th>{name}</th>" for name in ("Step", "Training Loss", *columns))
    cells = ("".join(f"<td>{cell}</td>" for cell in (step, 0.01, *(0.5 for _ in columns))) for step in steps)
    bar = f"<div>[{done}/{total} 1:00, Epoch 0/1]</div>" if total else ""
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    html = f"{bar}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return {"output_type": "display_data", "data": {"text/html": [html], "text/plain": ["x"]}}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def error(name: str, text: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": []}


def cell(*outputs: dict[str, Any], source: str = "trainer.train()") -> dict[str, Any]:
    return {"cell_type": "code", "source": [source], "outputs": list(outputs)}


def write(folder: Path, *cells: dict[str, Any]) -> Path:
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["# t"]}, *cells], "nbformat": 4}))
    return path


def read(path: Path) -> tuple[list[Item], NotebookSource]:
    source = NotebookSource("train.ipynb", path, [path.parent])
    return [*source.poll(None), *source.finish()], source


def events(items: Sequence[Item]) -> list[EventKind]:
    return [item.kind for item in items if isinstance(item, RunEvent)]


def test_a_table_gives_rows_the_framework_and_the_end(tmp_path: Path) -> None:
    items, _ = read(write(tmp_path, cell(table([1, 2, 3], "reward", "kl", done=3, total=3))))
    assert [(row.step, row.max_steps) for row in rows(items)] == [(1, 3), (2, 3), (3, 3)]
    assert rows(items)[0].values == {"loss": 0.01, "reward": 0.5, "kl": 0.5}
    assert [item.framework for item in items if isinstance(item, RunConfig)] == ["unsloth"]
    assert events(items) == [EventKind.FINISHED]


def test_the_longest_run_with_a_reward_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    """A supervised warm-up is longer, a trial shorter."""
    warm_up, trial = cell(table(range(1, 51))), cell(table([1, 2], "reward", "kl"))
    items, source = read(write(tmp_path, warm_up, trial, cell(table(range(1, 11), "reward", "kl"))))
    assert [row.step for row in rows(items)] == list(range(1, 11))
    assert all("reward" in row.values for row in rows(items))
    assert sum(source.stats.skipped.values()) == 2
    assert source.stats.first_bad == "not-a-row: cell 1: a table of 50 rows is left aside"


def test_a_continued_run_is_one(tmp_path: Path) -> None:
    items, source = read(
        write(tmp_path, cell(table([10, 20], "reward")), cell(table([30, 40], "reward", done=40, total=40)))
    )
    assert [row.step for row in rows(items)] == [10, 20, 30, 40]
    assert not source.stats.skipped


def test_printed_rows_of_the_cell_with_a_reward(tmp_path: Path) -> None:
    tuned = "".join(f"{{'loss': 1.5, 'mean_token_accuracy': 0.5, 'step': {n}}}\n" for n in range(1, 9))
    trained = "".join(f"{{'loss': 0.1, 'reward': 0.5, 'kl': 0.01, 'step': {n}}}\n" for n in range(1, 5))
    items, source = read(write(tmp_path, cell(printed(tuned)), cell(printed(trained))))
    assert [row.step for row in rows(items)] == [1, 2, 3, 4]
    assert source.stats.first_bad == "not-a-row: cell 1: 8 printed rows are left aside"


def test_printed_rows_complete_a_table_of_the_loss_alone(tmp_path: Path) -> None:
    """A callback prints what the table leaves out; the table's loss has more decimals, and a fourth step."""
    lines = "".join(f"[Step {n}] loss=0.0 reward=0.{n} reward_std=0.0\n" for n in (1, 2, 3))
    items, _ = read(write(tmp_path, cell(table([1, 2, 3, 4], done=4, total=4), printed(lines))))
    assert [(row.step, row.max_steps, row.values) for row in rows(items)] == [
        (1, 4, {"loss": 0.01, "reward": 0.1, "reward_std": 0.0}),
        (2, 4, {"loss": 0.01, "reward": 0.2, "reward_std": 0.0}),
        (3, 4, {"loss": 0.01, "reward": 0.3, "reward_std": 0.0}),
        (4, 4, {"loss": 0.01}),
    ]
    assert rows(items)[0].resolution == 0.05
    assert events(items) == [EventKind.FINISHED]


def test_printed_rows_between_those_of_the_table_are_rows(tmp_path: Path) -> None:
    lines = "".join(f"[Step {n}] kl=0.5 reward=0.25\n" for n in (5, 10, 15, 20))
    items, _ = read(write(tmp_path, cell(table([10, 20]), printed(lines))))
    assert [(row.step, sorted(row.values)) for row in rows(items)] == [
        (5, ["kl", "reward"]),
        (10, ["kl", "loss", "reward"]),
        (15, ["kl", "reward"]),
        (20, ["kl", "loss", "reward"]),
    ]


def test_printed_rows_of_another_cell_complete_no_table(tmp_path: Path) -> None:
    lines = "".join(f"[Step {n}] kl=0.5 reward=0.25\n" for n in (1, 2, 3))
    items, _ = read(write(tmp_path, cell(table([1, 2, 3])), cell(printed(lines), source="again()")))
    assert {tuple(row.values) for row in rows(items)} == {("loss",)}


@pytest.mark.parametrize(
    ("cells", "died"),
    [
        ([cell(table([1, 2], "reward"), error("ValueError", "bad"))], True),
        ([cell(table([1, 2], "reward")), cell(error("NameError", "x"), source="plot(df)")], False),
        ([cell(error("NameError", "x"), source="model.train()"), cell(table([1, 2], "reward"))], False),
        ([cell(error("RuntimeError", "dynamo"), source="trainer.train()")], True),
        ([cell(table([1, 2], "reward"), error("KeyboardInterrupt", ""))], False),
        ([cell(table([1, 2], "reward"), error("", ""))], False),  # an editor lost its connection
    ],
)
def test_an_error_counts_where_it_ends_training(cells: list[dict[str, Any]], died: bool, tmp_path: Path) -> None:  # noqa: FBT001
    items, _ = read(write(tmp_path, *cells))
    assert (EventKind.TRACEBACK in events(items)) is died


@pytest.mark.parametrize(("later", "died"), [("GRPOTrainer(model).train()", True), ("SFTTrainer(m).train()", False)])
def test_an_error_before_training_ends_a_notebook_that_never_gets_there(
    later: str,
    died: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """The model does not load; the cells behind it have no output."""
    cells = [cell(printed("ok\n"), source="import torch"), cell(error("MemoryError", "GPU"), source="load()")]
    path = write(tmp_path, *cells, cell(source=later))
    assert (EventKind.TRACEBACK in events(read(path)[0])) is died
    assert bool(discover(tmp_path)) is died


@pytest.mark.parametrize(("source", "died"), [("trainer.train()", True), ("plot(rewards)", False)])
def test_a_traceback_in_what_a_cell_printed_counts_where_it_trains(
    source: str,
    died: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """A job started by a shell command, whose error is text and no output of the kernel; no row came before."""
    text = 'Traceback (most recent call last):\n  File "grpo.py", line 7, in <module>\nAssertionError: no piece\n'
    path = write(tmp_path, cell(printed("ok\n"), source="import torch"), cell(printed(text), source=source))
    assert (EventKind.TRACEBACK in events(read(path)[0])) is died
    assert bool(discover(tmp_path)) is died


@pytest.mark.parametrize("trained", [True, False])
def test_a_table_of_an_evaluation_outside_training_counts_where_there_is_no_other(
    trained: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """It shows the rewards that the table of training lacks, but a single row that no step made."""
    html = "".join(f"<th>{name}</th>" for name in ("Training Loss", "Validation Loss", "Step", "Reward"))
    html = f"<table><tr>{html}</tr><tr><td>0.1</td><td>0.2</td><td>40</td><td>0.6</td></tr></table>"
    evaluated = cell({"output_type": "display_data", "data": {"text/html": html}}, source="trainer.evaluate()")
    items, _ = read(write(tmp_path, *([cell(table([10, 20, 30]))] if trained else []), evaluated))
    assert [row.step for row in rows(items)] == ([10, 20, 30] if trained else [40])


def test_a_notebook_that_grows_gives_only_what_is_new(tmp_path: Path) -> None:
    path = write(tmp_path, cell(table([1, 2], "reward", "kl")))
    items, source = read(path)
    write(tmp_path, cell(table([1, 2, 3], "reward", "kl")))
    again = NotebookSource("train.ipynb", path, [tmp_path], cursor=source.cursor())
    assert [row.step for row in rows(list(again.poll(None)))] == [3]
    assert len(rows(items)) == 2


def test_a_folder_and_a_named_file_find_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, cell(table([1, 2], "reward")))
    for place in (tmp_path, path):
        (run,) = discover(place)
        assert [channel.what for channel in run.channels if channel.name == "train.ipynb"] == [ChannelContent.NOTEBOOK]


def test_notebooks_beside_each_other_are_runs_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, cell(table([1, 2], "reward"))).rename(tmp_path / f"{name}.ipynb")
    assert sorted(run.name for run in discover(tmp_path)) == ["a.ipynb", "b.ipynb"]


def test_a_notebook_without_outputs_is_no_run(tmp_path: Path) -> None:
    write(tmp_path, cell(source="GRPOTrainer(model)"))
    assert discover(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"cells": [null, {"outputs": [3]}]}', "\0" * 100])
def test_broken_notebooks_give_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(text)
    assert rows(read(path)[0]) == []
    assert discover(tmp_path) == []


def test_several_tables_in_one_html_file(tmp_path: Path) -> None:
    """A saved output with a trial and the run itself: the longer one with a reward is read."""
    trial, run = table([1, 2], "reward", total=5), table([1, 2, 3], "reward", done=3, total=3)
    path = tmp_path / "output.html"
    path.write_text("".join(part for each in (trial, run) for part in each["data"]["text/html"]))
    source = HtmlTableSource("output.html", path, [tmp_path])
    items = list(source.poll(None))
    assert [(row.step, row.max_steps) for row in rows(items)] == [(1, 3), (2, 3), (3, 3)]
    assert source.stats.first_bad == "not-a-row: a table of 2 rows is left aside"


def test_a_trial_before_the_run_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    """Ten steps to try the cell, then the run: both are read. The supervised table before them is left aside."""
    items, source = read(
        write(
            tmp_path,
            cell(table(range(5, 45, 5))),
            cell(table(range(1, 11), "reward", "kl", done=10, total=10)),
            cell(table(range(5, 605, 5), "reward", "kl", done=600, total=600)),
        )
    )
    assert [row.step for row in rows(items)] == [*range(1, 11), *range(5, 605, 5)]
    assert events(items) == [EventKind.STARTED, EventKind.FINISHED]
    assert sum(source.stats.skipped.values()) == 1


def test_counted_rows_beside_a_table_of_every_tenth_step_are_its_rows(tmp_path: Path) -> None:
    """The bar is drawn by the notebook, so that what is printed names no step."""
    text = "".join(f"{{'loss': 0.01, 'reward': 0.{n}, 'kl': 0.0}}\n" for n in range(1, 5))
    items, _ = read(write(tmp_path, cell(table(range(10, 50, 10), done=40, total=40), printed(text))))
    assert [(row.step, row.values["reward"]) for row in rows(items)] == [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.4)]


def test_a_data_frame_counts_where_nothing_else_shows_rows(tmp_path: Path) -> None:
    """pandas' index has no name, and the step may be called anything that steps are called."""
    head = "<tr><th></th><th>global_step</th><th>loss</th><th>mean_reward</th></tr>"
    body = "".join(f"<tr><th>{n}</th><td>{10 * n}</td><td>0.1</td><td>0.{n}</td></tr>" for n in range(1, 4))
    html = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    frame = {"output_type": "execute_result", "data": {"text/html": [html]}}
    items, _ = read(write(tmp_path, cell(frame, source="df")))
    assert [(row.step, row.values["mean_reward"]) for row in rows(items)] == [(10, 0.1), (20, 0.2), (30, 0.3)]
    items, _ = read(write(tmp_path, cell(table([1, 2], "reward")), cell(frame, source="df")))
    assert [row.step for row in rows(items)] == [1, 2]


@pytest.mark.parametrize("wrong", [None, 7, ["x"], {"a": 1}])
def test_fields_of_wrong_types_stop_nothing(tmp_path: Path, wrong: object) -> None:
    """A notebook may hold anything: the cells around it are read."""
    shown = [
        {"output_type": wrong},
        {"output_type": "stream", "text": wrong},
        {"output_type": "error", "ename": wrong, "evalue": wrong},
        {"output_type": "display_data", "data": {"text/html": wrong, "text/plain": wrong, "text/markdown": wrong}},
        {"output_type": "display_data", "data": wrong},
    ]
    items, _ = read(write(tmp_path, cell(table([1, 2, 3], "reward"), *shown), cell(*shown, source="1")))
    assert [row.step for row in rows(items)] == [1, 2, 3]
    assert len(discover(tmp_path)) == 1
