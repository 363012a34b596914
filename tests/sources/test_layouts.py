"""Trees as real jobs leave them, files nearly empty: which channels belong together, and what appears later."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_watch.sources.discovery import look
from grpo_watch.sources.discovery.discover import ChannelContent, Discoverer, FoundRun, discover

CONSOLE = "\r  1%|          | 1/100 [00:00<00:32,  3.05it/s]\r    \r{'loss': '-0.1877', 'reward': '0.49'}\n"
VERL = "(TaskRunner pid=7) step:1 - actor/kl_loss:0.0013 - actor/grad_norm:0.41 - critic/rewards/mean:0.45\n" * 3
VERL += "verl: training\n"
NEMO = (Path(__file__).parents[1] / "frameworks/lines/nemo-rl.log").read_text("utf-8")
FILE_LOGGER = '{"step":1,"data":{"actor/kl_loss":0.0013,"critic/rewards/mean":0.45,"actor/grad_norm":0.4}}\n'
EVENTS = "events.out.tfevents.{}.vm.{}.0"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


def held(run: FoundRun) -> dict[str, tuple[ChannelContent, int]]:
    return {
        found.name: (found.what, found.segment) for found in run.channels if found.what is not ChannelContent.RUN_CONFIG
    }


def test_verl_in_its_launch_folder(tmp_path: Path) -> None:
    """Hydra's folder, the file logger, events and checkpoints each lie under project and experiment."""
    files = {
        "train.log": VERL,
        "outputs/2026-11-21/08-14-08/.hydra/config.yaml": "trainer: {}\n",
        "outputs/2026-11-21/08-14-08/main_ppo.log": "",
        "checkpoints/gsm8k/qwen_grpo/global_step_20/actor/model_world_size_1_rank_0.pt": "",
        "checkpoints/gsm8k/qwen_grpo/global_step_20/data.pt": "",
        "checkpoints/gsm8k/qwen_grpo/latest_checkpointed_iteration.txt": "20",
        f"tensorboard_log/gsm8k/qwen_grpo/{EVENTS.format(1795248848, 1)}": "",
        "gsm8k/qwen_grpo.jsonl": FILE_LOGGER,
    }
    (run,) = discover(tree(tmp_path / "job", files))
    assert run.name == "job"
    rows = {name: what for name, (what, _) in held(run).items() if what is not ChannelContent.CHECKPOINTS}
    assert rows == {
        "train.log": ChannelContent.CONSOLE,
        "gsm8k/qwen_grpo.jsonl": ChannelContent.JSONL,
        f"tensorboard_log/gsm8k/qwen_grpo/{EVENTS.format(1795248848, 1)}": ChannelContent.TFEVENTS,
    }


def test_nemo_rl_makes_a_new_log_folder_on_every_start(tmp_path: Path) -> None:
    """One console, two numbered folders: one run, the second folder another attempt."""
    files = {
        "slurm-7.out": NEMO,
        f"logs/exp_001/tensorboard/{EVENTS.format(1795248848, 1)}": "",
        f"logs/exp_002/tensorboard/{EVENTS.format(1795249474, 2)}": "",
        "results/grpo/step_10/training_info.json": "{}",
        "results/grpo/step_10/policy/weights/model.pt": "",
    }
    (run,) = discover(tree(tmp_path / "job", files))
    events = {name: segment for name, (what, segment) in held(run).items() if what is ChannelContent.TFEVENTS}
    assert events == {
        f"logs/exp_001/tensorboard/{EVENTS.format(1795248848, 1)}": 0,
        f"logs/exp_002/tensorboard/{EVENTS.format(1795249474, 2)}": 1,
    }


def test_experiments_side_by_side_stay_apart(tmp_path: Path) -> None:
    """Numbered by a person, each with a console; a launcher's log beside folders of one kind adopts none."""
    files = {f"exp_{number:03}/train.log": CONSOLE for number in range(1, 4)}
    assert [run.name for run in discover(tree(tmp_path / "all", files))] == ["exp_001", "exp_002", "exp_003"]
    sweep = {f"{name}/{EVENTS.format(1795248848, 1)}": "" for name in ("lr-1e-6", "lr-1e-5")}
    found = discover(tree(tmp_path / "sweep", {"launcher.log": CONSOLE, **sweep}))
    assert sorted(run.name for run in found) == ["lr-1e-5", "lr-1e-6", "sweep"]


def test_hydra_jobs_of_one_day_are_runs(tmp_path: Path) -> None:
    times = [f"outputs/2026-11-2{day}/0{hour}-14-08" for day in (0, 1) for hour in (8, 9)]
    files = {f"{place}/train.log": CONSOLE for place in times}
    files |= {f"{place}/ckpt/checkpoint-20/trainer_state.json": "{}" for place in times}
    found = discover(tree(tmp_path, files))
    assert [run.root for run in found] == [tmp_path / place for place in times]
    assert all("ckpt/checkpoint-*" in held(run) for run in found)


@pytest.mark.parametrize("folder", ["checkpoints", "ckpt", "models/qwen-grpo"])
@pytest.mark.parametrize("log", ["train.log", "logs/train.log"])
def test_logs_and_checkpoints_in_different_folders(tmp_path: Path, folder: str, log: str) -> None:
    """With events in a third one."""
    files = {
        log: CONSOLE,
        f"tb/{EVENTS.format(1795248848, 1)}": "",
        f"{folder}/checkpoint-20/trainer_state.json": "{}",
    }
    (run,) = discover(tree(tmp_path / "job", files))
    assert set(held(run)) >= {log, f"{folder}/checkpoint-*", f"tb/{EVENTS.format(1795248848, 1)}"}


def test_runs_that_appear_later_are_found_and_the_old_ones_keep_their_names(tmp_path: Path) -> None:
    finder = Discoverer()
    assert finder.discover(tmp_path) == []
    tree(tmp_path / "a/one", {"train.log": CONSOLE})
    assert [run.name for run in finder.discover(tmp_path)] == ["one"]
    tree(tmp_path / "a/two", {"train.log": CONSOLE})
    tree(tmp_path / "a/one", {"output/checkpoint-20/trainer_state.json": "{}"})
    one, two = finder.discover(tmp_path)
    assert (one.name, two.name) == ("one", "two")
    assert "output/checkpoint-*" in held(one)


def test_a_rotated_log_is_one_channel(tmp_path: Path) -> None:
    """Found before or after it was rotated, and while the new file is still empty."""
    log = tree(tmp_path, {"train.log": CONSOLE}) / "train.log"
    finder = Discoverer()
    finder.discover(tmp_path)
    log.rename(tmp_path / "train.log.1")
    log.write_text("")
    for found_by in (finder.discover, finder.discover, discover):
        (run,) = found_by(tmp_path)
        assert set(held(run)) == {"train.log"}
    log.write_text(CONSOLE)
    assert set(held(finder.discover(tmp_path)[0])) == {"train.log"}
    os.utime(tmp_path / "train.log.1", (1e9, 1e9))
    assert set(held(discover(tmp_path)[0])) == {"train.log"}


def test_numbered_logs_of_ranks_are_channels_of_their_own(tmp_path: Path) -> None:
    """Written side by side, so none is the past of another."""
    tree(tmp_path, dict.fromkeys(("train.log", "train.log.1", "train.log.2"), CONSOLE))
    (run,) = discover(tmp_path)
    assert set(held(run)) == {"train.log", "train.log.1", "train.log.2"}


def test_a_look_costs_one_visit_per_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of 50 runs: every folder is listed once, checkpoints and their weights never."""
    for number in range(50):
        files = {f"checkpoint-{step}/model.safetensors": "" for step in (10, 20, 30)}
        rows = json.dumps({"loss": 0.1, "reward": 0.4, "global_step/max_steps": "1/80"}) + "\n"
        tree(tmp_path / f"run-{number}/output", {**files, "logging.jsonl": rows})
    listed: list[str] = []
    real = os.scandir
    monkeypatch.setattr(look.os, "scandir", lambda path: (listed.append(str(path)), real(path))[1])
    assert len(discover(tmp_path)) == 50
    assert len(listed) == len(set(listed)) == 1 + 50 + 50


@pytest.mark.parametrize(
    ("files", "channels"),
    [
        (["ckpt/_actor/global_step5/mp_rank_00_model_states.pt", "ckpt/_actor/latest"], ["ckpt/_actor/checkpoint-*"]),
        (["ckpt/global_step5_hf/model.safetensors"], ["ckpt/checkpoint-*"]),
        (
            ["results/grpo/step_10/training_info.json", "results/grpo/tmp_step_20/training_info.json"],
            ["results/grpo/checkpoint-*"],
        ),
        (["results/grpo/tmp_step_20/training_info.json"], []),
        (
            ["checkpoints/step_10/STABLE", "rollouts/step_1/STABLE", "broadcasts/step_2/STABLE"],
            ["checkpoints/checkpoint-*"],
        ),
        (["images/step_10/a.png", "images/step_20/a.png"], []),
    ],
    ids=["openrlhf", "openrlhf's export", "nemo-rl", "nemo-rl, unfinished", "prime-rl", "anybody's"],
)
def test_checkpoints_are_found_where_each_framework_puts_them(
    files: list[str], channels: list[str], tmp_path: Path
) -> None:
    tree(tmp_path, {"train.log": CONSOLE, **dict.fromkeys(files, "")})
    (run,) = discover(tmp_path)
    assert [channel.name for channel in run.channels if channel.what is ChannelContent.CHECKPOINTS] == channels
