"""The arguments that open-r1 and others print before training become settings."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.core.records import RawRow, RunConfig
from grpo_watch.sources.console import ConsoleSource

HEAD = "2026-02-03 10:00:00 - INFO - __main__ - Training parameters GRPOConfig(\n"
ARGUMENTS = "_n_gpu=8,\nbeta=0.04,\naccelerator_config={'split_batches': False, 'x': None},\nnum_generations=16,\n"
MORE = "lr_scheduler_type=SchedulerType.COSINE,\nlearning_rate=1e-06,\nuse_vllm=True,\nhub_token=<HUB_TOKEN>,\n"
ROW = "{'loss': 0.1, 'reward': 0.5, 'kl': 0.001, 'step': 5}\n"


def read(path: Path) -> tuple[list[RunConfig], list[RawRow]]:
    source = ConsoleSource(path.name, path, [path.parent])
    items = [*source.poll(None), *source.finish()]
    assert source.stats.skipped == {}
    return [item for item in items if isinstance(item, RunConfig)], [item for item in items if isinstance(item, RawRow)]


def test_they_become_settings_and_nothing_secret_does(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(HEAD + ARGUMENTS + MORE + ")\n" + ROW)
    (config,), rows = read(path)
    assert {name: setting.value for name, setting in config.settings.items()} == {
        "beta": 0.04,
        "num_generations": 16,
        "learning_rate": 1e-06,
        "use_vllm": True,
        "lr_scheduler_type": "cosine",
    }
    assert {setting.origin for setting in config.settings.values()} == {"printed in the log"}
    assert [row.step for row in rows] == [5]


def test_arguments_that_break_off_hide_nothing(tmp_path: Path) -> None:
    """A line of another kind ends them: the row behind it is read, and no half of a configuration counts."""
    path = tmp_path / "train.log"
    path.write_text(HEAD + ARGUMENTS + ROW)
    configs, rows = read(path)
    assert configs == []
    assert [row.step for row in rows] == [5]
