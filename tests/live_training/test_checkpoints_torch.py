"""Checkpoints that real torch writes: their digests are those of what torch reads back, and nothing in them is run."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from grpo_watch.errors import TensorFileError
from grpo_watch.sources.checkpoints.weights import digest_checkpoint
from tests.support.tensors import digest

pytestmark = pytest.mark.frameworks
torch = pytest.importorskip("torch")

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
SHARDS = Path(__file__).with_name("save_fsdp_shards.py")


def checksum(tensor: Any) -> str:
    """Of the elements' bytes, in the order of their indices."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return str(xxhash.xxh3_128_hexdigest(flat.numpy().tobytes()))


def a_model() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 50)]
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_state_dict(tmp_path: Path, dtype: str) -> None:
    torch.save(a_model().to(getattr(torch, dtype)).state_dict(), tmp_path / "pytorch_model.bin")
    loaded = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    found = digest(tmp_path / "pytorch_model.bin")
    assert {name: one.checksum for name, one in found.items()} == {name: checksum(one) for name, one in loaded.items()}
    assert {name: one.shape for name, one in found.items()} == {name: tuple(one.shape) for name, one in loaded.items()}


def test_every_type_and_form(tmp_path: Path) -> None:
    matrix = torch.randn(6, 8)
    saved: dict[str, Any] = {
        **{
            f"{kind}": torch.arange(12).to(getattr(torch, kind))
            for kind in ("int8", "int16", "int32", "int64", "uint8")
        },
        **{f"{kind}": torch.randn(12).to(getattr(torch, kind)) for kind in ("float8_e4m3fn", "float8_e5m2")},
        **{f"{kind}": torch.arange(12).to(getattr(torch, kind)) for kind in ("uint16", "uint32", "uint64", "bool")},
        "complex": torch.randn(3, dtype=torch.complex64),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "row": matrix[2],
        "parameter": torch.nn.Parameter(matrix),
        "frozen": torch.nn.Parameter(matrix.clone(), requires_grad=False),
        "nested": {
            "list": [torch.ones(2), {"deep": torch.zeros(3)}],
            "size": torch.Size([1, 2]),
            "type": torch.bfloat16,
        },
        "other": {
            "text": "x",
            "number": 1 << 80,
            "bytes": b"x",
            "none": None,
            "set": {1, 2},
            "at": torch.device("cpu"),
        },
    }
    torch.save(saved, tmp_path / "m.pt")
    found = digest(tmp_path / "m.pt")
    plain = {name: one for name, one in saved.items() if isinstance(one, torch.Tensor)}
    plain |= {"nested.list.0": torch.ones(2), "nested.list.1.deep": torch.zeros(3)}
    assert {name: one.checksum for name, one in found.items()} == {name: checksum(one) for name, one in plain.items()}


def test_views_with_strides_change_with_their_elements(tmp_path: Path) -> None:
    matrix = torch.randn(6, 8)
    for name in ("a.pt", "b.pt"):
        torch.save({"t": matrix.t()}, tmp_path / name)
    matrix[0, 0] += 1
    torch.save({"t": matrix.t()}, tmp_path / "c.pt")
    first, same, other = (digest(tmp_path / name)["t"] for name in ("a.pt", "b.pt", "c.pt"))
    assert first == same
    assert first.shape == (8, 6)
    assert first.checksum != other.checksum


def test_the_same_weights_as_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415  only with torch

    weights = a_model().bfloat16().state_dict()
    torch.save(weights, tmp_path / "m.bin")
    save_file(weights, tmp_path / "m.safetensors")
    assert digest(tmp_path / "m.bin") == digest(tmp_path / "m.safetensors")


def step(model: Any, optimizer: Any) -> None:
    model(torch.randint(0, 50, (4,))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(folder: Path, model: Any, optimizer: Any) -> Mapping[str, Any]:
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    weights = digest_checkpoint(folder, [folder])
    assert weights is not None
    return {"weights": weights.tensors, "optimizer": weights.optimizer}


def test_a_real_optimizer(tmp_path: Path) -> None:
    """Trained, frozen by a learning rate of 0 (moments go on), and not stepped at all."""
    model = a_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    step(model, optimizer)
    first = save(tmp_path / "1", model, optimizer)
    step(model, optimizer)
    trained = save(tmp_path / "2", model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.0
    step(model, optimizer)
    frozen = save(tmp_path / "3", model, optimizer)
    idle = save(tmp_path / "4", model, optimizer)
    assert first["optimizer"]["moment_tensors"] == 2 * len(list(model.parameters()))
    assert first["weights"] != trained["weights"]
    assert first["optimizer"]["moments"] != trained["optimizer"]["moments"]
    assert trained["weights"] == frozen["weights"]
    assert trained["optimizer"]["moments"] != frozen["optimizer"]["moments"]
    assert idle == frozen


def test_shards_of_two_ranks_as_verl_saves_them(tmp_path: Path) -> None:
    """FSDP2 on two processes: DTensors, a small one without a part for the second rank, a buffer that both hold."""
    done = subprocess.run(
        [sys.executable, str(SHARDS), str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    found = digest_checkpoint(tmp_path, [tmp_path])
    assert found is not None
    assert found.problems == ()
    for rank in range(2):
        for name, local in torch.load(tmp_path / f"local_{rank}.pt", weights_only=True).items():
            if local.numel():
                assert found.tensors[f"{name}@{rank}/2"].checksum == checksum(local), name
            else:
                assert f"{name}@{rank}/2" not in found.tensors
    assert ("steps@0/2", "steps@1/2") in found.replicas
    assert not any(name.startswith("0.weight") for group in found.replicas for name in group)
    sums = {name: one.checksum for name, one in found.tensors.items()}
    assert all(len({sums[name] for name in group}) == 1 for group in found.replicas)


def test_legacy_format_is_one_piece(tmp_path: Path) -> None:
    torch.save(a_model().state_dict(), tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    assert [one.dtype for one in digest(tmp_path / "m.pt").values()] == ["FILE"]


class Malicious:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_malicious_object_in_a_real_file(tmp_path: Path, protocol: int) -> None:
    canary = tmp_path / "it-was-run"
    path = tmp_path / "pytorch_model.bin"
    torch.save({"w": torch.ones(2), "x": Malicious(canary)}, path, pickle_protocol=protocol)
    with pytest.raises(TensorFileError, match=r"asks for posix\.system, which no tensor needs; no code was executed"):
        digest(path)
    assert not canary.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    weights = a_model().state_dict()
    torch.save(weights, tmp_path / "m.bin", pickle_protocol=protocol)
    assert {name: one.checksum for name, one in digest(tmp_path / "m.bin").items()} == {
        name: checksum(one) for name, one in weights.items()
    }


def test_what_trainers_save_beside_weights(tmp_path: Path) -> None:
    """A trainer's state of arguments, paths, numpy scalars and random generators hides no tensor."""
    weights = a_model().state_dict()
    beside = {
        "args": argparse.Namespace(lr=1e-6, out=Path("/data")),
        "loss": np.float64(0.5),
        "rng": np.random.default_rng(0).bit_generator.state,
        "old_rng": np.random.RandomState(0).get_state(),
        "meta": torch.empty(3, device="meta"),
    }
    torch.save({**weights, "client_state": beside}, tmp_path / "m.bin")
    assert {name: one.checksum for name, one in digest(tmp_path / "m.bin").items()} == {
        name: checksum(one) for name, one in weights.items()
    }


@pytest.mark.parametrize("kind", ["module", "sparse"])
def test_tensors_inside_other_objects_are_hashed_as_one_piece(tmp_path: Path, kind: str) -> None:
    torch.save(a_model() if kind == "module" else {"w": torch.eye(4).to_sparse()}, tmp_path / "m.pt")
    assert [one.dtype for one in digest(tmp_path / "m.pt").values()] == ["FILE"]
