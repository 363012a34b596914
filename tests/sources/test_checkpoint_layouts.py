"""Checkpoints of each framework, laid out by hand as their sources write them, end to end through the source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from safetensors import numpy as library

from grpo_watch.engine.records import CheckpointDigest, CheckpointKind
from grpo_watch.sources.base import Skip
from grpo_watch.sources.checkpoints.checkpoint_folder import list_checkpoints
from grpo_watch.sources.checkpoints.source import CheckpointSource
from grpo_watch.sources.checkpoints.weight_files import choose
from grpo_watch.sources.checkpoints.weights import digest_checkpoint, digest_weight_file
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from tests.support import torch_file as torch
from tests.support.detecting import Watched

OLD = 1_000_000_000
"""A modification time in seconds: before any marker that a test writes."""


def full(value: float, *shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape or (4,), value, np.float32)


def age(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (OLD, OLD))


def state_dicts(folder: Path, files: Mapping[str, Mapping[str, Any]], placements: tuple[str, ...] = ()) -> None:
    for name, tensors in files.items():
        torch.state_dict(folder / name, tensors, placements)
    age(folder)


def watched(folder: Path) -> tuple[list[CheckpointDigest], CheckpointSource]:
    one = CheckpointSource("checkpoint-*", folder, [folder])
    items = [*one.poll(None), *one.finish()]
    return [item for item in items if isinstance(item, CheckpointDigest)], one


def checksum(value: float, *shape: int) -> str:
    return str(xxhash.xxh3_128_hexdigest(full(value, *shape).tobytes()))


def moments(array: np.ndarray[Any, Any]) -> bytes:
    """Adam's state of one tensor, in storage 0."""
    of_one = torch.mapping({"exp_avg": torch.tensor("0", array)})
    return torch.mapping({"state": torch.mapping({"0": of_one})})


def verl(folder: Path, step: int, value: float = 1.0, world: int = 2) -> Path:
    """Shards of FSDP2: one tensor in parts, one that every rank holds, one too small for the second rank."""
    actor = folder / f"global_step_{step}" / "actor"
    for rank in range(world):
        arrays = {"w": full(value + rank), "norm": full(value), "small": full(value, 0 if rank else 1)}
        placed = {"w": "Shard", "norm": "Replicate", "small": "Shard"}
        parts = {name: torch.sharded(torch.tensor(name, array), placed[name]) for name, array in arrays.items()}
        storages = {name: array.tobytes() for name, array in arrays.items()}
        end = f"world_size_{world}_rank_{rank}.pt"
        torch.archive(actor / f"model_{end}", torch.whole(torch.ordered(parts)), storages)
        torch.archive(actor / f"optim_{end}", torch.whole(moments(full(value))), {"0": full(value).tobytes()})
        (actor / f"extra_state_{end}").write_bytes(b"never read")
    (actor / "huggingface").mkdir()
    (actor / "huggingface" / "config.json").write_text("{}")
    age(folder)
    return actor


def test_verl_shards_are_joined(tmp_path: Path) -> None:
    verl(tmp_path, 10)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    (found,), one = watched(tmp_path)
    assert found.path == "global_step_10/actor"
    assert {name: digest.checksum for name, digest in found.tensors.items()} == {
        "w@0/2": checksum(1.0),
        "w@1/2": checksum(2.0),
        "norm@0/2": checksum(1.0),
        "norm@1/2": checksum(1.0),
        "small@0/2": checksum(1.0, 1),
    }
    assert found.replicas == (("norm@0/2", "norm@1/2"),)
    assert found.optimizer["moment_tensors"] == 2
    assert found.problems == ()
    assert one.stats.skipped == {}


def test_verl_on_one_rank_has_plain_names(tmp_path: Path) -> None:
    verl(tmp_path, 10, world=1)
    (found,), _ = watched(tmp_path)
    assert found.tensors.keys() == {"w", "norm", "small"}
    assert found.replicas == ()


def test_verl_frozen_and_moving(tmp_path: Path) -> None:
    for step, value in ((10, 1.0), (20, 1.0), (30, 2.0)):
        verl(tmp_path, step, value)
    first, second, third = watched(tmp_path)[0]
    assert first.tensors == second.tensors
    assert first.optimizer == second.optimizer
    assert not first.tensors.keys() - third.tensors.keys()
    assert first.tensors != third.tensors
    assert first.optimizer["moments"] != third.optimizer["moments"]


def test_verl_shard_of_a_rank_is_missing(tmp_path: Path) -> None:
    (verl(tmp_path, 10) / "model_world_size_2_rank_1.pt").unlink()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    (found,), _ = watched(tmp_path)
    assert found.problems == ("model_world_size_2_rank_1.pt: the shard of rank 1 is missing",)


def test_verl_step_beyond_the_tracker_is_unfinished(tmp_path: Path) -> None:
    verl(tmp_path, 10)
    verl(tmp_path, 20)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    found, one = watched(tmp_path)
    assert [digest.step for digest in found] == [10]
    assert one.stats.skipped == {Skip.TRUNCATED: 1}
    assert "latest_checkpointed_iteration.txt" in one.stats.first_bad


def test_verl_lora_is_read_with_its_base(tmp_path: Path) -> None:
    """The adapter in a folder of its own, and shards with both; laid out after verl's checkpoint manager."""
    for step in (10, 20):
        actor = tmp_path / f"global_step_{step}" / "actor"
        (actor / "lora_adapter").mkdir(parents=True)
        library.save_file({"q.lora_B.weight": full(step)}, actor / "lora_adapter" / "adapter_model.safetensors")
        for rank in range(2):
            arrays = {"q.base_layer.weight": full(7.0 + rank), "q.lora_B.default.weight": full(step + rank)}
            torch.state_dict(actor / f"model_world_size_2_rank_{rank}.pt", arrays, ("Shard",))
    age(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20")
    first, second = watched(tmp_path)[0]
    assert first.kind is CheckpointKind.ADAPTER
    assert first.tensors.keys() == {
        "q.lora_B.weight",
        *(f"q.{part}.weight@{rank}/2" for part in ("base_layer", "lora_B.default") for rank in (0, 1)),
    }
    moved = {name for name, one in second.tensors.items() if one != first.tensors[name]}
    assert moved == {name for name in first.tensors if "lora_B" in name}
    watcher = Watched("base-weights-drift").feed(first, second)
    assert watcher.changes == []
    drifted = replace(first.tensors["q.base_layer.weight@1/2"], checksum="another")
    third = replace(second, step=30, tensors={**second.tensors, "q.base_layer.weight@1/2": drifted})
    assert watcher.feed(third).changes == [("firing", 30, "warning")]


@pytest.mark.parametrize(("other", "severity"), [(False, "info"), (True, "warning")])
def test_base_beside_an_adapter_that_drifts(tmp_path: Path, severity: str, *, other: bool) -> None:
    """A trainer's checkpoint that holds the whole model next to the adapter; merged into it, only ``q`` changes."""
    for step in (10, 20):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        library.save_file({"base_model.model.q.lora_B.weight": full(step)}, folder / "adapter_model.safetensors")
        model = {"q.weight": full(step), "k.weight": full(step if other else 1), "v.weight": full(1)}
        library.save_file(model, folder / "model.safetensors")
        (folder / "trainer_state.json").write_text("{\n}\n")
    watcher = Watched("base-weights-drift").feed(*watched(tmp_path)[0])
    assert watcher.changes == [("firing", 20, severity)]
    assert watcher.said[-1].reading.evidence["changed"] == 1 + other


ADAPTER, TOWER = "base_model.model.q.lora_B.weight", "base_model.model.visual.blocks.0.weight"


def with_tower(folder: Path, steps: Mapping[int, tuple[float, float]], base: bool = False) -> None:  # noqa: FBT001, FBT002
    """ms-swift's ``lora_llm``: an adapter of the language model, and the vision tower, which is trained as a whole."""
    for step, (adapter, tower) in steps.items():
        path = folder / f"checkpoint-{step}"
        path.mkdir()
        library.save_file({ADAPTER: full(adapter)}, path / "adapter_model.safetensors")
        library.save_file({TOWER: full(tower)}, path / "vit.safetensors")
        if base:
            library.save_file({"q.weight": full(1)}, path / "model.safetensors")
        library.save_file({"state.0.exp_avg": full(step)}, path / "optimizer.safetensors")
        (path / "trainer_state.json").write_text("{\n}\n")


@pytest.mark.parametrize("base", [False, True])
def test_what_is_trained_in_full_beside_an_adapter_is_no_base(tmp_path: Path, base: bool) -> None:  # noqa: FBT001
    """It is read as a part of the run's weights, and moves as it likes."""
    with_tower(tmp_path, {10: (1.0, 1.0), 20: (2.0, 2.0)}, base)
    found = watched(tmp_path)[0]
    names = {ADAPTER, f"{TOWER}@vit.safetensors"} | ({"q.weight"} if base else set())
    assert [one.tensors.keys() for one in found] == [names] * 2
    assert Watched("base-weights-drift").feed(*found).changes == []
    assert Watched("parameters-unchanged").feed(*found).changes == []


def test_a_part_beside_an_adapter_that_alone_moves_is_training(tmp_path: Path) -> None:
    with_tower(tmp_path, {10: (1.0, 1.0), 20: (1.0, 2.0), 30: (1.0, 2.0)})
    watcher = Watched("parameters-unchanged").feed(*watched(tmp_path)[0])
    assert watcher.changes == [("firing", 30, "critical")]
    assert watcher.said[-1].reading.evidence["identical_tensors"] == 2


def test_a_part_beside_an_adapter_that_is_written_late_is_waited_for(tmp_path: Path) -> None:
    """Its file counts where a folder is asked whether it still changes."""
    with_tower(tmp_path, {10: (1.0, 1.0)})
    (found,) = list_checkpoints(tmp_path, (tmp_path,)).folders
    assert [name for name, _, _ in found.weights] == ["adapter_model.safetensors", "vit.safetensors"]


def test_skyrl(tmp_path: Path) -> None:
    verl(tmp_path, 10).rename(tmp_path / "global_step_10" / "policy")
    (tmp_path / "latest_ckpt_global_step.txt").write_text("10")
    (found,), _ = watched(tmp_path)
    assert found.path == "global_step_10/policy"
    assert "w@1/2" in found.tensors


def module(value: float) -> bytes:
    weights = torch.ordered({"w": torch.tensor("0", full(value))})
    return torch.whole(torch.mapping({"module": weights, "global_steps": torch.number(7)}))


def partitions(path: Path, group: str, value: float) -> None:
    part = b"]" + torch.tensor("0", full(value)) + b"a"
    state = torch.mapping({group: part, "base_optimizer_state": moments(full(value))})
    body = torch.mapping({"optimizer_state_dict": state})
    torch.archive(path, torch.whole(body), {"0": full(value).tobytes()})


def openrlhf(folder: Path, step: int, value: float = 1.0) -> Path:
    """DeepSpeed ZeRO-2 on two ranks: one module, two halves of the optimizer."""
    path = folder / f"global_step{step}"
    torch.archive(path / "mp_rank_00_model_states.pt", module(value), {"0": full(value).tobytes()})
    for rank in range(2):
        name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        partitions(path / name, "single_partition_of_fp32_groups", value + rank)
    age(folder)
    return path


def test_openrlhf(tmp_path: Path) -> None:
    actor = tmp_path / "_actor"
    openrlhf(actor, 20)
    openrlhf(actor, 40)
    (actor / "latest").write_text("global_step20")
    (found,), one = watched(actor)
    assert (found.step, found.path) == (20, "global_step20")
    assert {name: digest.checksum for name, digest in found.tensors.items()} == {"w": checksum(1.0)}
    assert found.optimizer["moment_tensors"] == 2
    assert "masters" in found.optimizer
    assert one.stats.skipped == {Skip.TRUNCATED: 1}


def test_zero_3_has_its_weights_in_the_partitions(tmp_path: Path) -> None:
    path = tmp_path / "global_step20"
    for rank in range(2):
        placeholder = torch.whole(torch.mapping({"module": torch.ordered({"w": torch.tensor("0", full(0.0, 0))})}))
        torch.archive(path / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt", placeholder, {"0": b""})
        partitions(path / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", "fp32_flat_groups", 1.0 + rank)
    (found,), _ = watched(tmp_path)
    assert {name: digest.checksum for name, digest in found.tensors.items()} == {
        "0@0/2": checksum(1.0),
        "0@1/2": checksum(2.0),
    }
    assert found.problems == ()


def test_zero_3_in_a_checkpoint_of_transformers(tmp_path: Path) -> None:
    """Without gathering nothing but DeepSpeed's folder holds weights."""
    inner = tmp_path / "checkpoint-20" / "global_step20"
    torch.archive(inner / "zero_pp_rank_0_mp_rank_00_model_states.pt", torch.whole(torch.mapping({})), {})
    partitions(inner / "zero_pp_rank_0_mp_rank_00_optim_states.pt", "fp32_flat_groups", 1.0)
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text("{\n}\n")
    (found,), _ = watched(tmp_path)
    assert found.tensors["0"].checksum == checksum(1.0)


def test_safetensors_go_before_what_deepspeed_leaves_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-20"
    openrlhf(path, 20)
    library.save_file({"w": full(3.0)}, path / "model.safetensors")
    (found,), _ = watched(tmp_path)
    assert found.tensors["w"].checksum == checksum(3.0)
    assert found.optimizer["moment_tensors"] == 2


def test_trainer_with_torch_files(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-20"
    state_dicts(path, {"pytorch_model.bin": {"w": full(1.0)}})
    torch.archive(path / "optimizer.pt", torch.whole(moments(full(0.0))), {"0": full(0.0).tobytes()})
    (path / "training_args.bin").write_bytes(b"never read")
    (path / "trainer_state.json").write_text("{\n}\n")
    (found,), _ = watched(tmp_path)
    assert found.tensors["w"].checksum == checksum(1.0)
    assert found.optimizer["moments_zero"] is True


def test_torch_shards_with_their_index(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-20"
    one, two = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
    state_dicts(path, {one: {"a": full(1.0)}, two: {"b": full(2.0)}})
    (path / "pytorch_model.bin.index.json").write_text(f'{{"weight_map": {{"a": "{one}", "b": "{two}"}}}}')
    (found,), _ = watched(tmp_path)
    assert found.tensors.keys() == {"a", "b"}
    assert found.problems == ()


def test_adapter_as_torch_file(tmp_path: Path) -> None:
    state_dicts(tmp_path / "checkpoint-20", {"adapter_model.bin": {"x.lora_B.weight": full(0.0)}})
    (found,), _ = watched(tmp_path)
    assert found.kind is CheckpointKind.ADAPTER
    assert found.tensors["x.lora_B.weight"].zero


def test_adapters_with_names_of_their_own(tmp_path: Path) -> None:
    """PEFT saves all but ``default`` in folders of their names: which of them is trained the files don't say."""
    for step, moved in ((20, 1.0), (40, 2.0)):
        path = tmp_path / f"checkpoint-{step}"
        state_dicts(path, {"adapter_model.bin": {"x.lora_B.weight": full(5.0)}})
        (path / "grpo").mkdir()
        library.save_file({"x.lora_B.weight": full(moved)}, path / "grpo" / "adapter_model.safetensors")
        age(path)
    found, _ = watched(tmp_path)
    assert [one.tensors["x.lora_B.weight@grpo"].checksum for one in found] == [checksum(1.0), checksum(2.0)]
    assert found[0].tensors["x.lora_B.weight"].checksum == checksum(5.0)
    assert Watched("parameters-unchanged").feed(*found).changes == []


def test_an_adapter_that_is_there_under_its_name_alone(tmp_path: Path) -> None:
    for step in (20, 40):
        inner = tmp_path / f"checkpoint-{step}" / "policy"
        inner.mkdir(parents=True)
        library.save_file({"x.lora_B.weight": full(1.0)}, inner / "adapter_model.safetensors")
        (inner / "adapter_config.json").write_text('{"r": 8}')
    found, _ = watched(tmp_path)
    assert [(one.kind, one.adapter) for one in found] == [(CheckpointKind.ADAPTER, {"r": 8})] * 2
    assert Watched("parameters-unchanged").feed(*found).changes == [("firing", 40, "critical")]


def test_a_run_folder_holds_checkpoints_and_no_adapters_of_their_names(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "checkpoint-20", tmp_path / "global_step_20"):
        folder.mkdir(exist_ok=True)
        library.save_file({"x.lora_B.weight": full(1.0)}, folder / "adapter_model.safetensors")
    found = digest_checkpoint(tmp_path, [tmp_path])
    assert found is not None
    assert found.tensors.keys() == {"x.lora_B.weight"}


def test_the_whole_model_saved_by_each_rank(tmp_path: Path) -> None:
    """Plain data parallelism: what the ranks saved must be the same."""
    state_dicts(
        tmp_path / "checkpoint-20", {f"pytorch_model_rank_{rank}.bin": {"w": full(1.0 + rank)} for rank in range(2)}
    )
    (found,), _ = watched(tmp_path)
    assert found.replicas == (("w@0/2", "w@1/2"),)
    assert found.tensors["w@0/2"].checksum != found.tensors["w@1/2"].checksum


@pytest.mark.parametrize("marker", ["training_info.json", "STABLE"])
def test_step_folders_are_complete_with_their_marker(tmp_path: Path, marker: str) -> None:
    """NeMo-RL's and prime-rl's."""
    for step in (5, 10):
        inner = tmp_path / f"step_{step}" / "policy" / "weights" / "model"
        inner.mkdir(parents=True)
        library.save_file({"w": full(step)}, inner / "shard-00001-model-00001-of-00001.safetensors")
    age(tmp_path)
    (tmp_path / "step_5" / marker).write_text("{}")
    found, one = watched(tmp_path)
    assert [(digest.step, list(digest.tensors)) for digest in found] == [(5, ["w"])]
    assert one.stats.skipped == {Skip.TRUNCATED: 1}


def test_distributed_checkpoints_are_hashed_file_by_file(tmp_path: Path) -> None:
    inner = tmp_path / "checkpoint-20" / "pytorch_model_fsdp_0"
    inner.mkdir(parents=True)
    for rank in range(2):
        (inner / f"__{rank}_0.distcp").write_bytes(b"x" * (rank + 1))
    (found,), _ = watched(tmp_path)
    assert {name: (one.dtype, one.checksum) for name, one in found.tensors.items()} == {
        "__0_0.distcp": ("FILE", xxhash.xxh3_128_hexdigest(b"x")),
        "__1_0.distcp": ("FILE", xxhash.xxh3_128_hexdigest(b"xx")),
    }


def test_megatron(tmp_path: Path) -> None:
    path = tmp_path / "iter_0000040" / "mp_rank_00"
    path.mkdir(parents=True)
    (path / "model_optim_rng.pt").write_bytes(b"any bytes")
    age(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("40")
    (found,), _ = watched(tmp_path)
    assert (found.step, [one.dtype for one in found.tensors.values()]) == (40, ["FILE"])


def test_link_out_of_the_run_folder_is_refused(tmp_path: Path) -> None:
    outside = torch.state_dict(tmp_path / "secret" / "pytorch_model.bin", {"w": full(1.0)})
    folder = tmp_path / "run" / "checkpoint-20"
    folder.mkdir(parents=True)
    (folder / "pytorch_model.bin").symlink_to(outside)
    found, one = watched(tmp_path / "run")
    assert found == []
    assert one.stats.skipped == {Skip.OUTSIDE: 1}
    assert "a link leads out of the run folder" in one.stats.problem


def test_malicious_pickle_is_a_problem_of_the_checkpoint(tmp_path: Path) -> None:
    canary = tmp_path / "it-was-run"
    run = torch.called("os.system", torch.text(f"touch {canary}"))
    torch.archive(tmp_path / "checkpoint-20" / "pytorch_model.bin", torch.whole(run), {})
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text("{\n}\n")
    (found,), _ = watched(tmp_path)
    assert found.tensors == {}
    assert "os.system" in found.problems[0]
    assert not canary.exists()


def test_nothing_to_choose() -> None:
    assert choose(["config.json", "training_args.bin", "rng_state.pth", "optimizer.pt", "scheduler.pt"]) is None


def test_a_folder_without_weights_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(b"x")
    assert digest_checkpoint(tmp_path, [tmp_path]) is None


def test_checkpoints_below_actor_are_found(tmp_path: Path) -> None:
    actor = tmp_path / "ckpt" / "_actor"
    openrlhf(actor, 20)
    (actor / "latest").write_text("global_step20")
    (tmp_path / "train.log").write_text("step:1 - actor/pg_loss:0.1 - critic/score/mean:0.5\n")
    (run,) = discover(tmp_path)
    assert ChannelContent.CHECKPOINTS in {channel.what for channel in run.channels}


def test_arguments_beside_the_module_are_a_note_of_the_channel(tmp_path: Path) -> None:
    """DeepSpeed's client state holds what the trainer likes: the module is read, the rest is reported."""
    folder = tmp_path / "checkpoint-10" / "global_step10"
    args = torch.named("argparse.Namespace") + b")\x81" + torch.mapping({}) + b"b"
    body = torch.mapping({"module": torch.ordered({"w": torch.tensor("0", full(1.0))}), "args": args})
    torch.archive(folder / "mp_rank_00_model_states.pt", torch.whole(body), {"0": full(1.0).tobytes()})
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text("{}")
    age(tmp_path)
    (found,), source = watched(tmp_path)
    assert (found.tensors.keys(), found.problems) == ({"w"}, ())
    assert source.stats.problem.endswith("holds more than tensors, left out: argparse.Namespace")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "adapter_model.bin"])
def test_weights_without_a_tensor_are_a_problem(tmp_path: Path, name: str) -> None:
    """What a rank saves that does not hold the gathered weights: whole, and empty."""
    if name.endswith("bin"):
        torch.archive(tmp_path / name, torch.whole(torch.ordered({})), {})
    else:
        library.save_file({}, tmp_path / name)
    weights = digest_checkpoint(tmp_path, [tmp_path])
    assert weights is not None
    assert f"{name}: holds no tensors" in weights.problems
    assert digest_weight_file(tmp_path / name, [tmp_path]).problems == (f"{name}: holds no tensors",)
