"""A log that shows nothing but a death is found in a folder as well as when it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.sources.discovery import sniff
from grpo_watch.sources.discovery.discover import discover

DEATHS = (
    "[rank3]:[E101 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL\n",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n",
    "ValueError: generation_batch_size (6) must be divisible by num_generations (4).\n",
    "+ python -m verl.trainer.main_ppo a=1\nCould not override 'a'.\nSet the environment variable HYDRA_FULL_ERROR=1\n",
    "+ python train_grpo.py\npython: can't open file 'train_grpo.py': [Errno 2] No such file or directory\n",
    "/src/aten/cuda/Gather.cu:88: gather: block: [3,0,0], thread: [9,0,0] Assertion `i < n` failed.\n",
)


@pytest.mark.parametrize("text", DEATHS)
def test_it_is_the_run_of_a_folder_without_another(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.txt").write_text(f"starting\n{text}")
    (tmp_path / "notes.md").write_text(text)

    (found,) = discover(tmp_path)

    assert [channel.name for channel in found.channels if channel.what.value == "console"] == ["job.txt"]


def test_beside_a_run_one_that_names_no_training_is_passed_over(tmp_path: Path) -> None:
    """An evaluation that ran out of memory says nothing of the training beside it."""
    (tmp_path / "eval.txt").write_text(DEATHS[1])
    (tmp_path / "logging.jsonl").write_text('{"loss": 0.1, "reward": 0.5, "global_step/max_steps": "1/9"}\n')

    (found,) = discover(tmp_path)

    assert all("eval" not in channel.name for channel in found.channels)


@pytest.mark.parametrize("text", ["Error: no such file\n", "Traceback (most recent call last):\nKeyError: 'a'\n", ""])
def test_other_logs_are_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.log").write_text(text)
    assert discover(tmp_path) == []


BLOCKS = "".join(
    f"{'=' * 25} Step {n}/10 {'=' * 25}\n\U0001f4ca Training Results:\n  \u2022 Loss: 0.01\n"
    f"  \u2022 Avg Reward: 0.{n}\n  \u2022 Total step time: 9.5s\n"
    for n in range(1, 6)
)


def test_a_console_without_an_ending_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "loop_logs").write_text(BLOCKS)

    (found,) = discover(tmp_path)

    assert (found.framework, [channel.path.name for channel in found.files]) == ("nemo-rl", [])
    assert [channel.name for channel in found.channels if channel.what.value == "console"] == ["loop_logs"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("loop_logs", "starting\nstep 3 of the recipe\n"), ("LICENSE", BLOCKS), ("run_log", "pip install verl nemo-rl\n")],
)
def test_other_files_without_an_ending_are_none(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert discover(tmp_path) == []


def test_a_growing_log_is_read_again_when_it_has_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is one of a run, or one of no run that lies alone: looks every few seconds must not read each."""
    read: list[str] = []
    ends = sniff.ends_of
    monkeypatch.setattr(sniff, "ends_of", lambda path, roots: read.append(path.name) or ends(path, roots))
    sniffer, log, server = sniff.Sniffer(), tmp_path / "train.log", tmp_path / "server.log"
    server.write_text("torch: ready\n")
    for step in range(1, 65):
        with log.open("a") as file:
            file.write(f"step: {step} loss: 0.1 reward: 0.{step:02} kl: 0.0{step:02}\n")
        sniffer.sniff_alone(server, [tmp_path])
        sniffer.sniff(log, [tmp_path])

    assert read.count("server.log") == 1
    assert read.count("train.log") < 12
