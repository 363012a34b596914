"""verl's checkpoints: complete once the tracker names their step; what its folders may hold."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from safetensors import numpy as library

from grpo_watch.engine.records import CheckpointDigest, CheckpointKind
from grpo_watch.sources.base import Skip
from grpo_watch.sources.checkpoints.source import CheckpointSource
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover

OLD = 1_000_000_000
"""A modification time in seconds."""


def source(folder: Path) -> CheckpointSource:
    return CheckpointSource("checkpoint-*", folder, [folder])


def save(folder: Path, step: int, inner: str = "actor/huggingface", name: str = "model.safetensors") -> None:
    path = folder / f"global_step_{step}" / inner
    path.mkdir(parents=True)
    library.save_file({"a": np.full(4, step, np.float32)}, path / name)
    os.utime(path / name, (OLD, OLD))
    (folder / f"global_step_{step}" / "data.pt").write_bytes(b"")


def track(folder: Path, step: int) -> None:
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))


def digests(one: CheckpointSource, *, end: bool = True) -> list[CheckpointDigest]:
    items = [*one.poll(None), *(one.finish() if end else ())]
    return [item for item in items if isinstance(item, CheckpointDigest)]


def test_what_the_tracker_has_reached_is_complete(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    track(tmp_path, 20)
    one = source(tmp_path)
    assert [(found.step, found.path) for found in digests(one)] == [
        (10, "global_step_10/actor/huggingface"),
        (20, "global_step_20/actor/huggingface"),
    ]
    assert one.stats.skipped == {Skip.TRUNCATED: 1}


def test_a_save_that_completes_later(tmp_path: Path) -> None:
    save(tmp_path, 10)
    track(tmp_path, 5)
    one = source(tmp_path)
    assert digests(one, end=False) == []
    track(tmp_path, 10)
    assert [found.step for found in digests(one, end=False)] == [10]


def test_copied_without_the_tracker(tmp_path: Path) -> None:
    save(tmp_path, 10)
    assert [found.step for found in digests(source(tmp_path))] == [10]


def test_an_adapter_is_preferred_to_the_model(tmp_path: Path) -> None:
    save(tmp_path, 10, "actor/lora_adapter", "adapter_model.safetensors")
    (tmp_path / "global_step_10/actor/lora_adapter/adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}')
    track(tmp_path, 10)
    (found,) = digests(source(tmp_path))
    assert found.kind is CheckpointKind.ADAPTER


def test_another_layout_under_the_same_names_is_reported(tmp_path: Path) -> None:
    """SkyRL's folders are called like verl's."""
    (tmp_path / "global_step_10" / "policy").mkdir(parents=True)
    one = source(tmp_path)
    assert digests(one) == []
    assert one.stats.skipped == {Skip.NOT_READ: 1}


def test_the_folder_that_a_deleted_checkpoint_leaves(tmp_path: Path) -> None:
    (tmp_path / "global_step_10").mkdir()
    (tmp_path / "global_step_10" / "data.pt").write_bytes(b"")
    track(tmp_path, 20)
    one = source(tmp_path)
    assert digests(one) == []
    assert one.stats.skipped == {}


def test_it_is_found_in_a_folder(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints", 10)
    (tmp_path / "train.log").write_text("step:1 - actor/pg_loss:0.1 - critic/score/mean:0.5\n")
    (run,) = discover(tmp_path)
    found = {channel.what for channel in run.channels}
    assert found == {ChannelContent.CONSOLE, ChannelContent.CHECKPOINTS, ChannelContent.RUN_CONFIG}
