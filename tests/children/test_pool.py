"""The processes that read a long run's dumps: when there are some, what becomes of work that fails, and of them."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from grpo_watch.children import pool as module
from grpo_watch.children.child import MEMORY
from grpo_watch.children.pool import LARGE, crew, size_of
from grpo_watch.cli.main import run_cli
from grpo_watch.sources.completions.jsonl_source import read_piece


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def nobody_left() -> Iterator[None]:
    """Other tests' processes may be alive beside this one's: a client that serves a whole session of tests is."""
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before


def dies_elsewhere(home: int) -> int:
    if os.getpid() != home:
        os._exit(1)
    return 42


@pytest.mark.usefixtures("two_processors", "nobody_left")
def test_work_is_done_elsewhere_and_nobody_is_left_behind() -> None:
    with crew(LARGE) as submit:
        assert submit is not None
        answers = [submit(os.getpid) for _ in range(6)]
        assert os.getpid() not in {answer.result() for answer in answers}
        assert all(answer.done() for answer in answers)


@pytest.mark.usefixtures("two_processors", "nobody_left")
def test_an_error_is_raised_in_its_turn_and_what_a_dead_process_leaves_is_done_here() -> None:
    with crew(LARGE) as submit:
        assert submit is not None
        wrong, right = submit(int, "x"), submit(int, "7")
        with pytest.raises(ValueError, match="'x'"):
            wrong.result()
        assert right.result() == 7
        assert [submit(dies_elsewhere, os.getpid()).result() for _ in range(3)] == [42] * 3


@pytest.mark.usefixtures("two_processors")
def test_a_dump_that_is_read_sooner_than_a_process_starts_has_none() -> None:
    with crew(LARGE - 1) as submit:
        assert submit is None


def test_one_processor_reads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with crew(LARGE) as submit:
        assert submit is None


def test_sizes_are_of_files_and_of_folders_of_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "link").symlink_to("nowhere")
    assert size_of(tmp_path / "a") == 5
    assert size_of(tmp_path) == 10 + len("nowhere")
    assert size_of(tmp_path / "none") == 0


@pytest.mark.slow
@pytest.mark.usefixtures("two_processors")
def test_check_says_the_same_with_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve batches whose groups of four repeat two texts: the rule that says so says it of the same steps."""
    rng = Random(1)
    lines = []
    for step in range(1, 13):
        prompts = [f"{step} {number}" for number in range(8) for _ in range(4)]
        texts = [text for _ in range(8) for text in ["".join(rng.choices("abcdefgh ", k=4_000)) for _ in range(2)] * 2]
        columns = {"step": [step] * 32, "prompt": prompts, "completion": texts, "score": [1.0, 0.0] * 16}
        lines.append(json.dumps(columns) + "\n")
    (tmp_path / "completions.jsonl").write_text("".join(lines))
    (tmp_path / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "num_generations": 4}))
    reported, sent = [], []
    submit = module._Crew.submit

    def counted(self: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        sent.append(function)
        return submit(self, function, *arguments)

    monkeypatch.setattr(module._Crew, "submit", counted)
    for large in (LARGE, 1):
        monkeypatch.setattr(module, "LARGE", large)
        assert run_cli(["check", str(tmp_path), "--format", "json", "--now", "2026-01-01T00:00:00Z"]) == 1
        reported.append(capsys.readouterr().out)
    assert "duplicate-completions" in reported[0]
    assert reported[1] == reported[0]
    assert sent == [read_piece] * 12


def grabs(home: int) -> int:
    return len(bytearray(MEMORY if os.getpid() != home else 1))


@pytest.mark.usefixtures("two_processors", "nobody_left")
def test_what_takes_too_much_memory_there_is_not_done_here() -> None:
    with crew(LARGE) as submit:
        assert submit is not None
        with pytest.raises(MemoryError):
            submit(grabs, os.getpid()).result()
