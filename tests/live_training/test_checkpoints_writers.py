"""Checkpoints that real accelerate, torch's distributed ones and safetensors write are read as what they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import xxhash

from grpo_watch.engine.records import CheckpointDigest, TensorDigest
from grpo_watch.sources.checkpoints.source import CheckpointSource
from grpo_watch.sources.checkpoints.weights import digest_checkpoint
from tests.support.detecting import Watched

pytestmark = pytest.mark.frameworks
torch = pytest.importorskip("torch")

FSDP = Path(__file__).with_name("save_fsdp_full.py")


def a_model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 5))


def checksums(state: Mapping[str, Any]) -> dict[str, str]:
    """Of the elements' bytes, in the order of their indices."""
    return {
        name: str(xxhash.xxh3_128_hexdigest(one.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()))
        for name, one in state.items()
    }


def found_in(tensors: Mapping[str, TensorDigest]) -> dict[str, str]:
    return {name: one.checksum for name, one in tensors.items()}


@pytest.mark.parametrize("safe", [True, False])
def test_state_that_accelerate_saves(tmp_path: Path, safe: bool) -> None:  # noqa: FBT001
    """``model.safetensors`` or ``pytorch_model.bin``, and ``optimizer.bin`` beside it."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = a_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    accelerator.backward(model(torch.ones(2, 16)).square().mean())
    optimizer.step()
    accelerator.save_state(str(tmp_path), safe_serialization=safe)
    assert (tmp_path / ("model.safetensors" if safe else "pytorch_model.bin")).exists()
    found = digest_checkpoint(tmp_path, [tmp_path])
    assert found is not None
    assert found.problems == ()
    assert found_in(found.tensors) == checksums(accelerator.unwrap_model(model).state_dict())
    assert found.optimizer["moment_tensors"] == 12, "two of each of six parameters"
    assert found.optimizer["moments_zero"] is False


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes save of one model."""
    folder = tmp_path_factory.mktemp("fsdp")
    command = [sys.executable, str(FSDP), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_full_state_of_fsdp(fsdp: Path) -> None:
    """Two processes gather it as accelerate and TRL do (FULL_STATE_DICT), one saves ``pytorch_model_fsdp.bin``."""
    found = digest_checkpoint(fsdp, [fsdp])
    assert found is not None
    expected = torch.load(fsdp / "expected.pt", weights_only=True)
    assert found_in(found.tensors) == checksums(expected)
    assert found.replicas == ()


def test_sharded_state_of_fsdp(fsdp: Path) -> None:
    """SHARDED_STATE_DICT: a file per process. The same weights give the same files, which proves a freeze."""
    one = CheckpointSource("checkpoint-*", fsdp / "sharded", [fsdp])
    digests = [item for item in [*one.poll(None), *one.finish()] if isinstance(item, CheckpointDigest)]
    assert [list(digest.tensors) for digest in digests] == [["__0_0.distcp", "__1_0.distcp"]] * 3
    first, same, moved = (found_in(digest.tensors) for digest in digests)
    assert first == same
    assert first != moved
    watcher = Watched("parameters-unchanged").feed(*digests)
    assert watcher.changes == [("firing", 20, "critical")]
    assert "files that differ prove nothing" in watcher.blind_reason


def test_distributed_checkpoints_of_torch(tmp_path: Path) -> None:
    """Written by ``torch.distributed.checkpoint``: hashed file by file; its metadata is no weight."""
    from torch.distributed import checkpoint  # noqa: PLC0415  only with torch

    folder = tmp_path / "checkpoint-20"
    with pytest.warns(UserWarning, match="single process"):
        checkpoint.save(a_model().state_dict(), checkpoint_id=str(folder / "pytorch_model_fsdp_0"), no_dist=True)
    (folder / "trainer_state.json").write_text("{\n}\n")
    assert (folder / "pytorch_model_fsdp_0" / ".metadata").exists()
    one = CheckpointSource("checkpoint-*", tmp_path, [tmp_path])
    (digest,) = [item for item in [*one.poll(None), *one.finish()] if isinstance(item, CheckpointDigest)]
    assert {found.dtype for found in digest.tensors.values()} == {"FILE"}
    raw = {path.name: path.read_bytes() for path in folder.rglob("*.distcp")}
    assert found_in(digest.tensors) == {name: str(xxhash.xxh3_128_hexdigest(data)) for name, data in raw.items()}


def test_step_folder_as_nemo_rl_saves_it(tmp_path: Path) -> None:
    """The library writes the shard; folders and marker are laid out after NeMo-RL's source."""
    from safetensors.torch import save_file  # noqa: PLC0415  only with torch

    inner = tmp_path / "step_5" / "policy" / "weights" / "model"
    inner.mkdir(parents=True)
    state = a_model().bfloat16().state_dict()
    save_file(state, inner / "shard-00001-model-00001-of-00001.safetensors")
    (tmp_path / "step_5" / "training_info.json").write_text("{}")
    one = CheckpointSource("step_*", tmp_path, [tmp_path])
    (digest,) = [item for item in [*one.poll(None), *one.finish()] if isinstance(item, CheckpointDigest)]
    assert digest.step == 5
    assert found_in(digest.tensors) == checksums(state)


def test_bf16_training_with_and_without_copies(tmp_path: Path) -> None:
    """Real AdamW: weights in bf16 lose what float32 copies collect, and the checkpoints on disk show it."""
    changed = {}
    for name in ("float32", "bfloat16"):
        torch.manual_seed(0)
        start = (torch.randn(128, 128) * 0.02).bfloat16()
        weight = torch.nn.Parameter(start.to(getattr(torch, name)))
        optimizer = torch.optim.AdamW([weight], lr=1e-6, weight_decay=0.0)
        run = tmp_path / name
        for step in range(41):
            if step in {0, 40}:
                folder = run / f"checkpoint-{step}"
                folder.mkdir(parents=True)
                torch.save({"layers.0.weight": weight.detach().bfloat16()}, folder / "pytorch_model.bin")
                os.utime(folder / "pytorch_model.bin", (step + 1, step + 1))
                (folder / "trainer_state.json").write_text("{\n}\n")
            weight.grad = torch.randn_like(weight) * 1e-4
            optimizer.step()
        one = CheckpointSource("checkpoint-*", run, [run])
        digests = [item for item in [*one.poll(None), *one.finish()] if isinstance(item, CheckpointDigest)]
        movement = digests[1].movement
        assert movement is not None
        changed[name] = movement.beyond(4e-6).changed
    assert changed["bfloat16"] == 0
    assert changed["float32"] > 50
