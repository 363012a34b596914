"""Version folders below one output folder: attempts of one job, or several jobs, by what they hold and when it came."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo_watch.sources.discovery.discover import Discoverer, discover
from tests.sources.test_discover import SWIFT_CONSOLE, SWIFT_ROW, TABLE, write

FIRST, SECOND, THIRD = "v0-20270103-101500", "v1-20270103-101530", "v2-20270103-111500"
START = 1_800_000_000


def version(
    output: Path, name: str, began: int, ended: int, resumed_from: str | None = None, step: int = 1, **settings: object
) -> Path:
    """A version folder of ms-swift: its arguments were written when it began, its log when it ended."""
    folder = output / name
    given: Mapping[str, object] = {"swift_version": "4.6.0", "rlhf_type": "grpo", "beta": 0.04, "learning_rate": 1e-6}
    given = {**given, "max_steps": 80, "resume_from_checkpoint": resumed_from, **settings}
    for file, text, at in (
        ("args.json", json.dumps(given), began),
        ("logging.jsonl", json.dumps({**SWIFT_ROW, "global_step/max_steps": f"{step}/80"}) + "\n", ended),
    ):
        os.utime(write(folder / file, text), (START + at, START + at))
    return folder


def names(path: Path) -> list[str]:
    return sorted(run.name for run in discover(path))


@pytest.mark.parametrize(("step", "logged_every", "one"), [(1, 1, False), (5, 5, False), (21, 1, True), (25, 5, True)])
def test_the_second_continues_the_first_unless_it_begins_at_the_beginning(
    tmp_path: Path, step: int, logged_every: int, *, one: bool
) -> None:
    version(tmp_path / "output", FIRST, 0, 60, logging_steps=logged_every)
    version(tmp_path / "output", SECOND, 61, 120, step=step, logging_steps=logged_every)
    assert names(tmp_path / "output") == ([f"{tmp_path.name}/output"] if one else [FIRST, SECOND])


def test_a_folder_without_a_row_yet_is_no_attempt(tmp_path: Path) -> None:
    """What it continues shows by its first row, or by a resume setting."""
    version(tmp_path / "output", FIRST, 0, 60)
    second = version(tmp_path / "output", SECOND, 61, 120, step=21)
    rows = (second / "logging.jsonl").read_text()
    (second / "logging.jsonl").write_text("")
    os.utime(write(second / "completions.jsonl", json.dumps(TABLE) + "\n"), (START + 70, START + 70))
    discoverer = Discoverer()
    assert sorted(run.name for run in discoverer.discover(tmp_path / "output")) == [FIRST, SECOND]
    os.utime(write(second / "logging.jsonl", rows), (START + 70, START + 70))
    assert [run.name for run in discoverer.discover(tmp_path / "output")] == [f"{tmp_path.name}/output"]


def test_two_that_write_at_the_same_time_are_two_runs(tmp_path: Path) -> None:
    version(tmp_path / "output", FIRST, 0, 100)
    version(tmp_path / "output", SECOND, 30, 110)
    assert names(tmp_path / "output") == [FIRST, SECOND]


def test_a_folder_that_goes_on_growing_makes_two_runs_of_one(tmp_path: Path) -> None:
    """The second folder appears while the first rests: until that writes again, it may have been stopped."""
    first = version(tmp_path / "output", FIRST, 0, 30)
    version(tmp_path / "output", SECOND, 31, 40, step=21)
    discoverer = Discoverer()
    assert [run.name for run in discoverer.discover(tmp_path / "output")] == [f"{tmp_path.name}/output"]
    os.utime(first / "logging.jsonl", (START + 45, START + 45))
    os.utime(tmp_path / "output" / SECOND / "logging.jsonl", (START + 46, START + 46))
    assert sorted(run.name for run in discoverer.discover(tmp_path / "output")) == [FIRST, SECOND]


def test_other_settings_make_another_run(tmp_path: Path) -> None:
    version(tmp_path / "output", FIRST, 0, 60)
    version(tmp_path / "output", SECOND, 61, 120, step=21, learning_rate=5e-6)
    assert names(tmp_path / "output") == [FIRST, SECOND]


@pytest.mark.parametrize("changed", [{"max_steps": 160}, {"learning_rate": 5e-6}])
def test_a_resumed_run_may_have_other_settings(tmp_path: Path, changed: Mapping[str, object]) -> None:
    first = version(tmp_path / "output", FIRST, 0, 60)
    version(tmp_path / "output", SECOND, 61, 120, resumed_from=str(first / "checkpoint-40"), **changed)
    assert names(tmp_path / "output") == [f"{tmp_path.name}/output"]


def test_each_job_keeps_its_attempts(tmp_path: Path) -> None:
    """The third folder resumes from the first, which ran beside the second."""
    first = version(tmp_path / "output", FIRST, 0, 100)
    version(tmp_path / "output", SECOND, 30, 110)
    version(tmp_path / "output", THIRD, 120, 200, resumed_from=f"/elsewhere/output/{first.name}/checkpoint-20")
    found = {run.name: run for run in discover(tmp_path / "output")}
    assert sorted(found) == [FIRST, SECOND]
    logs = {channel.name: channel.segment for channel in found[FIRST].channels if channel.name.endswith(".jsonl")}
    assert logs == {f"{FIRST}/logging.jsonl": 0, f"{THIRD}/logging.jsonl": 1}
    assert found[FIRST].root == tmp_path / "output"
    assert found[SECOND].root == tmp_path / "output" / SECOND


def test_folders_that_were_copied_in_any_order_say_nothing_by_their_times(tmp_path: Path) -> None:
    version(tmp_path / "output", FIRST, 500, 500)
    version(tmp_path / "output", SECOND, 499, 499, step=21)
    assert names(tmp_path / "output") == [f"{tmp_path.name}/output"]


@pytest.mark.parametrize(("ended", "found"), [(60, ["job"]), (100, ["job", FIRST, SECOND])])
def test_one_console_beside_them_is_one_job_unless_both_write(tmp_path: Path, ended: int, found: list[str]) -> None:
    write(tmp_path / "job" / "train.log", SWIFT_CONSOLE)
    version(tmp_path / "job/output", FIRST, 0, ended)
    version(tmp_path / "job/output", SECOND, 61, 120, learning_rate=5e-6)
    assert names(tmp_path / "job") == found


def test_arguments_that_are_half_written_decide_nothing(tmp_path: Path) -> None:
    version(tmp_path / "output", FIRST, 0, 60)
    second = version(tmp_path / "output", SECOND, 61, 120, step=21, learning_rate=5e-6)
    whole = (second / "args.json").read_text()
    os.utime(write(second / "args.json", whole[:40]), (START + 61, START + 61))
    discoverer = Discoverer()
    assert [run.name for run in discoverer.discover(tmp_path / "output")] == [f"{tmp_path.name}/output"]
    os.utime(write(second / "args.json", whole), (START + 61, START + 61))
    assert sorted(run.name for run in discoverer.discover(tmp_path / "output")) == [FIRST, SECOND]
