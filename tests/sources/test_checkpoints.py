"""Checkpoint folders become checksums once they are complete; links, half saves and resaves are distinguished."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as library

from grpo_watch.engine.record_parts import Movement
from grpo_watch.engine.records import CheckpointDigest, CheckpointKind, Cursor
from grpo_watch.sources.base import Skip
from grpo_watch.sources.checkpoints.checkpoint_folder import marker_is_whole
from grpo_watch.sources.checkpoints.source import SETTLED, CheckpointSource, judge_checkpoint
from grpo_watch.sources.checkpoints.weights import ReadLimits, Throttle, digest_checkpoint

OLD, NEW = 1_000_000_000, 2_000_000_000
"""Modification times in seconds."""


def source(folder: Path, cursor: Cursor | None = None, **more: Any) -> CheckpointSource:
    return CheckpointSource("checkpoint-*", folder, [folder], cursor=cursor, **more)


def digests(found: Any) -> list[CheckpointDigest]:
    items = list(found)
    assert all(isinstance(item, CheckpointDigest) for item in items)
    return items


def drain(one: CheckpointSource) -> list[CheckpointDigest]:
    return [*digests(one.poll(None)), *digests(one.finish())]


def weights(value: float) -> dict[str, Any]:
    return {"a": np.full((4, 2), value, np.float32), "b": np.full(3, value, np.float16)}


def save(folder: Path, step: int, value: float = 1.0, *, marker: bool = True) -> Path:
    """A checkpoint as transformers leaves it: weights first, trainer state last."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True, exist_ok=True)
    library.save_file(weights(value), path / "model.safetensors")
    os.utime(path / "model.safetensors", (OLD, OLD))
    if marker:
        state = {"global_step": step, "log_history": [{"kl": float("nan")}]}
        (path / "trainer_state.json").write_text(json.dumps(state, indent=2) + "\n")
    return path


def test_checkpoints_come_by_rising_step(tmp_path: Path) -> None:
    for step in (100, 20, 3):
        save(tmp_path, step, step / 100)
    found = drain(source(tmp_path))
    assert [(one.step, one.path, one.kind) for one in found] == [
        (3, "checkpoint-3", CheckpointKind.FULL),
        (20, "checkpoint-20", CheckpointKind.FULL),
        (100, "checkpoint-100", CheckpointKind.FULL),
    ]
    assert all(one.complete and not one.problems for one in found)
    assert len({one.tensors["a"].checksum for one in found}) == 3


def test_frozen_run_has_equal_digests(tmp_path: Path) -> None:
    save(tmp_path, 20)
    save(tmp_path, 40)
    first, second = drain(source(tmp_path))
    assert first.tensors == second.tensors


def test_adapter_with_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    library.save_file({"x.lora_B.weight": np.zeros((4, 2), np.float32)}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "init_lora_weights": "pissa", "target_modules": ["v", "q"], "secret": "x"}
    config |= {"modules_to_save": ["score", "lm_head"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "trainer_state.json").write_text("{}")
    (found,) = drain(source(tmp_path))
    assert found.kind is CheckpointKind.ADAPTER
    assert found.tensors["x.lora_B.weight"].zero
    kept = {"peft_type": "LORA", "r": 8, "init_lora_weights": "pissa", "target_modules": "q,v"}
    assert found.adapter == {**kept, "modules_to_save": "lm_head,score"}


def shard(folder: Path, index: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in (("1-of-00002", "a"), ("2-of-00002", "b")):
        library.save_file({tensor: weights(1.0)[tensor]}, folder / f"model-0000{name}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "trainer_state.json").write_text("{}")


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_shards_give_the_same_digests_as_one_file(tmp_path: Path) -> None:
    shard(tmp_path / "checkpoint-1", {"a": ONE, "b": TWO})
    save(tmp_path, 2)
    sharded, single = drain(source(tmp_path))
    assert sharded.tensors == single.tensors
    assert sharded.problems == ()


def test_missing_shard_is_a_problem(tmp_path: Path) -> None:
    shard(tmp_path / "checkpoint-1", {"a": ONE, "b": TWO})
    (tmp_path / "checkpoint-1" / TWO).unlink()
    (found,) = drain(source(tmp_path))
    assert found.problems == (f"{TWO}: a shard that the index names is missing",)


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 3000000000\n".format("0" * 64)


@pytest.mark.parametrize("stand_in", [LFS, "/annex/objects/SHA256E-s3000--00.safetensors\n", None])
def test_weights_that_a_clone_left_out_are_no_damage(tmp_path: Path, stand_in: str | None) -> None:
    """Pointers in the place of all shards, or nothing but the index."""
    folder = tmp_path / "checkpoint-10"
    shard(folder, {"a": ONE, "b": TWO})
    for path in folder.glob("model-*.safetensors"):
        path.unlink()
        if stand_in is not None:
            path.write_text(stand_in)
    one = source(tmp_path)
    assert drain(one) == []
    assert one.stats.skipped == {Skip.NOT_READ: 1}
    assert "its weights are not here" in one.stats.first_bad


def test_a_pointer_among_weights_is_a_problem(tmp_path: Path) -> None:
    shard(tmp_path / "checkpoint-10", {"a": ONE, "b": TWO})
    (tmp_path / "checkpoint-10" / TWO).write_text(LFS)
    (found,) = drain(source(tmp_path))
    assert "a Git LFS pointer, not the weights" in found.problems[0]


def test_shard_without_its_tensor_is_a_problem(tmp_path: Path) -> None:
    shard(tmp_path / "checkpoint-1", {"a": ONE, "b": TWO, "c": TWO})
    (found,) = drain(source(tmp_path))
    assert found.problems == (f"{TWO}: 1 tensors of the index are not in it, 'c' first",)


@pytest.mark.parametrize("name", ["../../secret.safetensors", "/etc/passwd", "..", "", "a\\b", "x\0y"])
def test_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    library.save_file({"b": np.ones(3, np.float32)}, tmp_path / "secret.safetensors")
    run = tmp_path / "run"
    shard(run / "checkpoint-1", {"a": ONE, "b": name})
    (found,) = drain(source(run))
    assert found.tensors.keys() == {"a"}
    assert found.problems == (f"model.safetensors.index.json: names {name!r}, which is no file of this folder",)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "[" * 100_000])
def test_broken_index_is_a_problem(tmp_path: Path, text: str) -> None:
    shard(tmp_path / "checkpoint-1", {"a": ONE})
    (tmp_path / "checkpoint-1" / "model.safetensors.index.json").write_text(text)
    (found,) = drain(source(tmp_path))
    assert found.problems[0].startswith("model.safetensors.index.json: ")


def test_shards_without_index_are_a_problem(tmp_path: Path) -> None:
    shard(tmp_path / "checkpoint-1", {"a": ONE})
    (tmp_path / "checkpoint-1" / "model.safetensors.index.json").unlink()
    (found,) = drain(source(tmp_path))
    assert found.problems == ("model.safetensors.index.json: missing although 2 shards are there",)


def test_half_a_weight_file_in_a_complete_checkpoint_is_a_problem(tmp_path: Path) -> None:
    path = save(tmp_path, 10) / "model.safetensors"
    os.truncate(path, path.stat().st_size - 5)
    (found,) = drain(source(tmp_path))
    assert found.complete
    assert found.problems[0].startswith("model.safetensors: truncated: header says ")


def test_checkpoint_without_weights_is_not_judged(tmp_path: Path) -> None:
    """ZeRO-3 without gathering, or an optimizer-only save."""
    folder = tmp_path / "checkpoint-1"
    (folder / "global_step1").mkdir(parents=True)
    (folder / "trainer_state.json").write_text("{}")
    (folder / "optimizer.safetensors").write_bytes(b"x")
    one = source(tmp_path)
    assert drain(one) == []
    assert one.stats.skipped == {}
    assert digest_checkpoint(folder, [tmp_path]) is None


def test_pickled_weights_are_never_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (folder / "trainer_state.json").write_text("{}")
    (found,) = drain(source(tmp_path))
    assert found.tensors == {}
    assert found.problems[0].startswith("pytorch_model.bin: no file of torch.save")


def test_live_a_checkpoint_is_judged_once_its_marker_is_whole_and_it_keeps_still(tmp_path: Path) -> None:
    one = source(tmp_path)
    path = save(tmp_path, 10, marker=False)
    assert digests(one.poll(1.0)) == []
    (path / "trainer_state.json").write_text('{\n  "global_step": 10,\n  "log_history": [\n    {\n    }')
    assert digests(one.poll(2.0)) == digests(one.poll(3.0)) == []
    (path / "trainer_state.json").write_text('{\n  "global_step": 10\n}\n')
    assert digests(one.poll(4.0)) == [], "seen like this for the first time"
    (found,) = digests(one.poll(5.0))
    assert (found.step, found.seen) == (10, 5.0)
    assert digests(one.poll(6.0)) == drain(one) == []


def test_live_weights_newer_than_the_marker_are_a_save_under_way(tmp_path: Path) -> None:
    """A resumed run saves step 10 again: the marker of the first save still lies beside half of the new weights."""
    path = save(tmp_path, 10)
    one = source(tmp_path)
    assert [len(digests(one.poll(now))) for now in (1.0, 2.0)] == [0, 1]
    (path / "model.safetensors").write_bytes(b"half")
    os.utime(path / "trainer_state.json", (OLD, OLD))
    os.utime(path / "model.safetensors", (NEW, NEW))
    assert [digests(one.poll(now)) for now in (3.0, 4.0, 5.0)] == [[], [], []]
    os.utime(save(tmp_path, 10, 2.0) / "model.safetensors", (OLD + 1, OLD + 1))
    assert [len(digests(one.poll(now))) for now in (6.0, 7.0)] == [0, 1]


def test_live_copied_files_without_order_are_judged_after_a_while(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    os.utime(path / "trainer_state.json", (OLD - 1, OLD - 1))
    one = source(tmp_path)
    assert [(len(digests(one.poll(now))), one.settling) for now in (1.0, SETTLED, SETTLED + 1.0)] == [
        (0, True),
        (0, True),
        (1, False),
    ]


def test_sentinel_of_an_interrupted_save(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    (path / "checkpoint-is-incomplete.txt").write_text("")
    one = source(tmp_path)
    assert drain(one) == []
    assert one.stats.skipped == {Skip.TRUNCATED: 1}


def test_save_that_was_cut_short_is_counted_and_not_judged(tmp_path: Path) -> None:
    save(tmp_path, 10)
    save(tmp_path, 20, marker=False)
    one = source(tmp_path)
    assert [found.step for found in drain(one)] == [10]
    assert one.stats.skipped == {Skip.TRUNCATED: 1}
    assert "checkpoint-20" in one.stats.first_bad


def test_run_packed_without_markers_is_judged_at_its_end(tmp_path: Path) -> None:
    save(tmp_path, 10, marker=False)
    path = save(tmp_path, 20, marker=False) / "model.safetensors"
    os.truncate(path, 50)
    one = source(tmp_path)
    assert digests(one.poll(1.0)) == digests(one.poll(1000.0)) == []
    assert [found.step for found in digests(one.finish())] == [10]
    assert one.stats.skipped == {Skip.TRUNCATED: 1}


def test_same_step_saved_again_with_the_same_bytes_is_not_emitted_again(tmp_path: Path) -> None:
    save(tmp_path, 10)
    one = source(tmp_path)
    assert len(digests(one.poll(None))) == 1
    os.utime(save(tmp_path, 10) / "model.safetensors", (NEW, NEW))
    assert digests(one.poll(None)) == []
    assert one.stats.skipped == {Skip.DUPLICATE: 1}


def test_links_to_checkpoints_already_seen_are_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (tmp_path / "last-checkpoint").symlink_to("checkpoint-10")
    (tmp_path / "checkpoint-11").symlink_to("checkpoint-10")
    (tmp_path / "checkpoint-12").symlink_to("nowhere")
    (tmp_path / "checkpoint-13").symlink_to("checkpoint-13")
    one = source(tmp_path)
    assert [found.step for found in drain(one)] == [10]
    assert one.stats.problem == ""


def test_links_out_of_the_run_are_refused(tmp_path: Path) -> None:
    outside = save(tmp_path / "other", 10)
    run = tmp_path / "run"
    save(run, 1)
    (run / "checkpoint-10").symlink_to(outside)
    linked = save(run, 20)
    (linked / "model.safetensors").unlink()
    (linked / "model.safetensors").symlink_to(outside / "model.safetensors")
    one = source(run)
    assert [found.step for found in drain(one)] == [1]
    assert one.stats.skipped == {Skip.OUTSIDE: 2}
    assert "out of the run folder" in one.stats.problem
    allowed = CheckpointSource("checkpoint-*", run, [run, tmp_path / "other"])
    assert [found.step for found in drain(allowed)] == [1, 10, 20]


def test_checkpoint_that_vanishes_while_it_is_read_is_normal(tmp_path: Path) -> None:
    first, second = save(tmp_path, 10), save(tmp_path, 20)

    def rotate(function: Callable[..., Any], *arguments: Any) -> Any:
        shutil.rmtree(first, ignore_errors=True)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function, *arguments)

    one = source(tmp_path, submit=rotate)
    assert [found.path for found in drain(one)] == [second.name]
    assert one.stats.skipped == {}
    assert one.stats.problem == ""


def test_a_shard_that_rotation_deleted_before_the_others_is_no_fault(tmp_path: Path) -> None:
    """The folder is half gone when its files are opened; it was whole when it was listed."""
    first, second = tmp_path / "checkpoint-10", tmp_path / "checkpoint-20"
    shard(first, {"a": ONE, "b": TWO})
    shard(second, {"a": ONE, "b": TWO})

    def rotate(function: Callable[..., Any], *arguments: Any) -> Any:
        (first / TWO).unlink(missing_ok=True)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function, *arguments)

    one = source(tmp_path, submit=rotate)
    assert [(found.path, found.problems) for found in digests(one.poll(None))] == [(second.name, ())]
    assert one.stats.problem == ""
    ((kept, problems),) = [(found.path, found.problems) for found in drain(one)]
    assert kept == first.name, "it is still there: a shard is really missing"
    assert problems == (f"{TWO}: a shard that the index names is missing",)


def test_vanished_between_planning_and_reading(tmp_path: Path) -> None:
    """One piece of work at a time: step 20 is planned while step 10 is read, and gone when its turn comes."""
    save(tmp_path, 10)
    second = save(tmp_path, 20)
    pool = ThreadPoolExecutor(1)
    one = source(tmp_path, submit=pool.submit)
    found = digests(one.poll(None))
    shutil.rmtree(second)
    found += drain(one)
    pool.shutdown()
    assert found[0].step == 10
    assert one.stats.skipped == {}


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_restart_between_any_two_checkpoints_loses_and_repeats_nothing(tmp_path: Path, taken: int) -> None:
    for step in (1, 2, 3):
        os.utime(save(tmp_path, step, float(step)) / "model.safetensors", (OLD + step, OLD + step))
    first = source(tmp_path)
    got = [item for _, item in zip(range(taken), first.poll(None), strict=False)]
    cursor = first.cursor()
    os.utime(save(tmp_path, 4) / "model.safetensors", (OLD + 4, OLD + 4))
    rest = drain(source(tmp_path, cursor))
    assert [item.step for item in digests(got)] + [item.step for item in rest] == [1, 2, 3, 4]


def test_folder_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = source(tmp_path / "file")
    assert drain(one) == []
    assert "can't be listed" in one.stats.problem
    missing = source(tmp_path / "missing")
    assert drain(missing) == []
    assert missing.stats.problem == ""


def test_directory_in_place_of_the_weights(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    one = source(tmp_path)
    assert drain(one) == []
    assert one.stats.skipped == {Skip.UNREADABLE: 1}


def test_judging_never_raises(tmp_path: Path) -> None:
    assert judge_checkpoint(tmp_path / "missing", [tmp_path]).gone
    assert judge_checkpoint(tmp_path, [tmp_path]).gone, "no weights"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{\n  "a": {\n    "b": NaN\n  }\n}', True),
        ('{"a": [1, {}]}', True),
        ('{\n  "a": {\n    "b": 1\n  }', False),
        ('{"a": {}', False),
        ("", False),
        ("[]", False),
        ("x\n}", False),
    ],
)
def test_marker_is_whole(tmp_path: Path, text: str, whole: bool) -> None:  # noqa: FBT001  a table
    path = tmp_path / "trainer_state.json"
    path.write_text(text)
    assert marker_is_whole(path, [tmp_path]) is whole


@pytest.mark.slow
def test_hashing_in_a_worker_process_gives_the_same(tmp_path: Path) -> None:
    """Function, arguments and outcome can be sent to another process and back."""
    save(tmp_path, 10)
    save(tmp_path, 20, 2.0)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        elsewhere = drain(source(tmp_path, submit=pool.submit))
    assert elsewhere == drain(source(tmp_path))
    assert [found.step for found in elsewhere] == [10, 20]


def bf16(values: Any) -> np.ndarray[Any, Any]:
    """The upper halves of float32 values, as raw numbers."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def save_bf16(folder: Path, step: int, **tensors: np.ndarray[Any, Any]) -> None:
    """A checkpoint whose tensors are named bf16 in a header written by hand; numpy has no such type."""
    header: dict[str, Any] = {}
    at = 0
    for name, one in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(one.shape), "data_offsets": [at, at := at + one.nbytes]}
    text = json.dumps(header).encode()
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    raw = b"".join(one.tobytes() for one in tensors.values())
    (path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw)
    (path / "trainer_state.json").write_text("{}")


def test_how_far_bf16_weights_moved(tmp_path: Path) -> None:
    """4096 weights of 1.5 (exponent 0) and of 0.02 (exponent -6): 5 and 7 of them change; frozen ones are left out."""
    first = bf16([[1.5] * 4096, [0.02] * 4096])
    second = first.copy()
    second[0, :5] += 1
    second[1, 10:17] += 1
    frozen, tokens = bf16([[1.0] * 4096] * 2), bf16([[1.0] * 4096] * 2)
    save_bf16(tmp_path, 10, w=first, frozen=frozen, embed_tokens=tokens)
    save_bf16(tmp_path, 20, w=second, frozen=frozen, embed_tokens=tokens + 1)
    one, two = drain(source(tmp_path))
    assert one.movement is None
    assert two.movement == Movement("BF16", 1, ((-6, 4096, 7), (0, 4096, 5)))


def test_movement_needs_the_earlier_checkpoint(tmp_path: Path) -> None:
    """Rotation deleted it before the later one was read."""
    roots = (tmp_path,)
    save_bf16(tmp_path, 10, w=bf16([[1.5] * 4096] * 2))
    earlier = digest_checkpoint(tmp_path / "checkpoint-10", roots)
    save_bf16(tmp_path, 20, w=bf16([[1.25] * 4096] * 2))
    assert earlier is not None
    sums = {name: digest.checksum for name, digest in earlier.tensors.items()}
    shutil.rmtree(tmp_path / "checkpoint-10")
    outcome = judge_checkpoint(tmp_path / "checkpoint-20", roots, before=(tmp_path / "checkpoint-10", sums))
    assert outcome.weights is not None
    assert outcome.movement is None


def test_matrices_unrelated_to_the_checkpoint_before(tmp_path: Path) -> None:
    """A model that training moved by a tenth of its size, then a new one; zeros and adapters say nothing."""
    rng = np.random.default_rng(1)
    first = {f"layer.{at}.weight": rng.normal(0.0, 0.05, (32, 32)).astype(np.float32) for at in range(20)}
    moved = {name: value + rng.normal(0.0, 0.005, value.shape).astype(np.float32) for name, value in first.items()}
    fresh = {name: rng.normal(0.0, 0.05, value.shape).astype(np.float32) for name, value in first.items()}
    for step, weights in ((10, first), (20, moved), (30, fresh)):
        beside = {
            "lora_A.weight": rng.normal(size=(32, 32)).astype(np.float32),
            "head": np.full((32, 32), step // 20, np.float32),
            "scale": rng.normal(size=400).astype(np.float32),
        }
        library.save_file({**weights, **beside}, save(tmp_path, step) / "model.safetensors")
    assert [digest.unrelated for digest in drain(source(tmp_path))] == [(0, 0), (0, 7), (8, 8)]


def test_16_bit_matrices_are_compared_too(tmp_path: Path) -> None:
    """Turned round in bf16, and hardly changed in fp16."""
    first = np.random.default_rng(1).normal(0.0, 0.05, (64, 64)).astype(np.float32)
    for step, weights in ((10, first), (20, -first)):
        save_bf16(tmp_path, step, w=(weights.view(np.uint32) >> 16).astype(np.uint16))
    for step, weights in ((30, first), (40, 1.1 * first)):
        library.save_file({"w": weights.astype(np.float16)}, save(tmp_path, step) / "model.safetensors")
    assert [digest.unrelated for digest in drain(source(tmp_path))] == [(0, 0), (1, 1), (0, 0), (0, 1)]


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_matrices_that_are_not_finite_are_digested_all_the_same(tmp_path: Path, bad: float) -> None:
    """Of both signs, so that the products hold both infinities; the other matrices are compared."""
    first = {f"layer.{at}": np.random.default_rng(at).normal(size=(32, 32)).astype(np.float32) for at in range(5)}
    broken = {**first, "layer.0": np.full((32, 32), bad, np.float32), "layer.1": 1.1 * first["layer.1"]}
    for step, weights in ((10, first), (20, broken)):
        library.save_file(weights, save(tmp_path, step) / "model.safetensors")
    found = drain(source(tmp_path))[-1]
    assert (found.tensors["layer.0"].nonfinite, found.unrelated) == (1024, (0, 1))


def test_a_comparison_that_fails_loses_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_watch.sources.checkpoints.source.unrelated", lambda *_: 1 / 0)
    save(tmp_path, 10)
    save(tmp_path, 20, 2.0)
    assert [found.step for found in drain(source(tmp_path))] == [10, 20]


@pytest.mark.parametrize(
    ("file", "sampled"), [("model.safetensors", (0, 6)), ("adapter_model.safetensors", (0, 0))], ids=["gates", "OFT"]
)
def test_what_began_at_zero_is_no_other_model(tmp_path: Path, file: str, sampled: tuple[int, int]) -> None:
    """Ten steps behind zero and then fifty times as many: hardly anything in common, and seven times as large."""
    rng = np.random.default_rng(1)
    early = {f"layer.{at}.oft_R": rng.normal(0.0, 1e-5, (32, 32)).astype(np.float32) for at in range(6)}
    late = {name: value + rng.normal(0.0, 7e-5, value.shape).astype(np.float32) for name, value in early.items()}
    for step, weights in ((10, early), (20, late)):
        folder = save(tmp_path, step)
        (folder / "model.safetensors").unlink()
        library.save_file(weights, folder / file)
        os.utime(folder / file, (OLD, OLD))
    assert [found.unrelated for found in drain(source(tmp_path))] == [(0, 0), sampled]


def test_the_first_checkpoint_beside_its_base(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    shutil.copy(save(tmp_path, 10) / "model.safetensors", base)
    for step in (10, 20):
        (save(tmp_path, step) / "config.json").write_text('{"_name_or_path": "../base"}')
    first, second = drain(source(tmp_path))
    assert first.base == str(base)
    assert second.base == "", "reported once; then the pair speaks"


def test_reading_is_slow_where_the_watch_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """5 MB at 50 MB/s take a tenth of a second."""
    caplog.set_level("INFO")
    waited: list[float] = []
    slow = partial(Throttle, clock=lambda: 0.0, wait=waited.append)
    monkeypatch.setattr("grpo_watch.sources.checkpoints.weights.Throttle", slow)
    run = tmp_path / "run"
    run.mkdir()
    library.save_file({"a": np.ones(1_250_000, np.float32)}, save(run, 10) / "model.safetensors")
    assert len(drain(source(run, limits=ReadLimits(50e6)))) == 1
    assert waited[-1] == pytest.approx(0.1, rel=0.1)
    assert [record.fields for record in caplog.records if record.name == "grpo_watch.checkpoints"] == [
        {"checkpoint": "checkpoint-10", "size": "5 MB", "seconds": "0"}
    ]
