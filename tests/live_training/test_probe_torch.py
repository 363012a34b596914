"""Checksums of real torch tensors: exact, the same however the weights are held, and cheap to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.callback import probe
from grpo_watch.engine.records import CheckpointDigest, CheckpointKind
from grpo_watch.probe.checksum import RADIX, Hasher
from grpo_watch.probe.pieces import pieces
from grpo_watch.probe.writing import checksums
from grpo_watch.sources.checkpoints.probe_source import ProbeSource

pytestmark = pytest.mark.frameworks
torch = pytest.importorskip("torch")

CPU = torch.device("cpu")
SHARDS = Path(__file__).with_name("probe_shards.py")
TYPES = ("float32", "bfloat16", "float16", "float64", "int8", "uint8", "bool", "float8_e4m3fn")


def checksum(tensor: Any, offset: int = 0) -> int:
    return int(Hasher(torch, CPU).sum(tensor, offset)) % (1 << 64)


def by_definition(data: bytes, offset: int = 0) -> int:
    """The sum that the module's documentation states, in Python's integers."""
    data = bytes(offset % 4) + data
    words = [int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, len(data) - 3, 4)]
    if len(data) % 4:
        words.append(int.from_bytes(data[len(data) // 4 * 4 :], "little"))
    return sum(word * pow(RADIX, offset // 4 + k, 1 << 64) for k, word in enumerate(words)) % (1 << 64)


def bytes_of(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def digests(folder: Path) -> list[CheckpointDigest]:
    source = ProbeSource("probe", folder, [folder])
    return [item for item in (*source.poll(None), *source.finish()) if isinstance(item, CheckpointDigest)]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (33, 65), (3, 5, 7), (0, 4)])
def test_it_is_the_sum_that_is_documented(kind: str, shape: tuple[int, ...]) -> None:
    """Any type and shape, at any place, in any layout."""
    torch.manual_seed(1)
    tensor = (torch.randn(shape) * 3).to(getattr(torch, kind))
    for offset in (0, 1, 2, 4, 6, 1000):
        assert checksum(tensor, offset) == by_definition(bytes_of(tensor), offset)
    if len(shape) > 1:
        assert checksum(tensor.transpose(0, 1)) == by_definition(bytes_of(tensor.transpose(0, 1)))
        assert checksum(tensor[1:]) == by_definition(bytes_of(tensor[1:]))


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of several chunks, aligned or not."""
    tensor = torch.arange(5_000, dtype=torch.int16)
    whole = {offset: checksum(tensor, offset) for offset in (0, 2)}
    monkeypatch.setattr("grpo_watch.probe.checksum.CHUNK_CPU", 64)
    assert {offset: checksum(tensor, offset) for offset in (0, 2)} == whole
    assert whole[0] == by_definition(bytes_of(tensor))


@given(st.sampled_from(TYPES[:-2]), st.integers(0, 2**20), st.integers(0, 7))
def test_one_bit_changes_it(kind: str, place: int, bit: int) -> None:
    """Any bit of any element, the sign of zero too."""
    tensor = torch.zeros(777).to(getattr(torch, kind))
    before = checksum(tensor)
    flat = tensor.view(torch.uint8)
    flat[place % len(flat)] ^= 1 << bit
    assert checksum(tensor) != before


@given(st.sampled_from(["float32", "bfloat16"]), st.integers(0, 999), st.integers(0, 999))
def test_an_exchange_of_two_values_changes_it(kind: str, one: int, other: int) -> None:
    """Position counts; a value and its negative differ by one bit, the hardest case."""
    tensor = torch.ones(1000, dtype=getattr(torch, kind))
    tensor[one] = -1
    before = checksum(tensor)
    tensor[one], tensor[other] = tensor[other].clone(), tensor[one].clone()
    assert (checksum(tensor) != before) == (one != other)


def test_the_order_of_parameters_and_tied_ones(tmp_path: Path) -> None:
    """Names carry the checksums; a tied parameter comes once."""
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    one = torch.nn.ModuleDict({"a": first, "b": second})
    other = torch.nn.ModuleDict({"b": second, "a": first})
    assert checksums(list(pieces(one, 0, 1))) == checksums(list(pieces(other, 0, 1)))
    second.weight = first.weight
    assert {piece.name for piece in pieces(one, 0, 1)} == {"a.weight", "a.bias", "b.bias"}
    assert probe(one, 1, tmp_path)


def test_trainable_and_frozen_are_distinguished(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    model.weight.requires_grad_(requires_grad=False)
    assert probe(model, 1, tmp_path, frozen=True)
    found = {digest.kind: sorted(digest.tensors) for digest in digests(tmp_path)}
    assert found == {CheckpointKind.PROBE: ["bias"], CheckpointKind.FROZEN: ["weight"]}


def test_an_error_is_a_line(tmp_path: Path) -> None:
    """What can't be read ends the probing and says why; nothing is raised."""
    model = torch.nn.Linear(4, 4, device="meta")
    assert not probe(model, 3, tmp_path)
    line = json.loads((tmp_path / "grpo-watch-probe-0.jsonl").read_text())
    assert (line["kind"], line["step"]) == ("error", 3)
    assert line["text"]
    source = ProbeSource("probe", tmp_path, [tmp_path])
    assert list(source.poll(None)) == []
    assert "stopped after step 3" in source.stats.problem


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not probe(torch.nn.Linear(2, 2), 1, tmp_path / "file")


def test_zero_3_partitions_add_up(tmp_path: Path) -> None:
    """Built after DeepSpeed's documentation of ``ds_tensor`` (a flat share per rank, the last one filled up)."""
    torch.manual_seed(0)
    whole = torch.randn(5, 3).to(torch.bfloat16)
    expected = f"{checksum(whole):016x}"
    share = torch.cat([whole.reshape(-1), torch.ones(1, dtype=torch.bfloat16)]).chunk(2)
    said = []
    for rank in (0, 1):
        empty = torch.nn.Parameter(torch.empty(0, dtype=torch.bfloat16))
        group = SimpleNamespace(size=lambda: 2, rank=lambda rank=rank: rank)
        empty.ds_tensor, empty.ds_shape, empty.ds_process_group = share[rank], (5, 3), group
        model = torch.nn.Module()
        model.weight = empty
        said.append(checksums(list(pieces(model, rank, 2)))[0]["weight"])
        line = {"of": "policy", "step": 1, "rank": rank, "ranks": 2, "writers": 2, "tensors": {"weight": said[-1]}}
        path = tmp_path / f"grpo-watch-probe-{rank}.jsonl"
        path.write_text(json.dumps({"grpo_watch": "probe/1", "kind": "weights", **line}) + "\n")
    assert [one[3:] for one in said] == [(0, 2), (0, 2)]
    (digest,) = digests(tmp_path)
    assert digest.tensors["weight"].checksum == expected


def test_sharding_does_not_show(tmp_path: Path) -> None:
    """FSDP2, DTensors by rows, replicas: one answer; FSDP's flat shards and blocks of columns go by their ranks."""
    subprocess.run([sys.executable, str(SHARDS), str(tmp_path)], check=True, timeout=600)
    found = {folder.name: digests(folder)[0] for folder in tmp_path.iterdir() if folder.name != "together"}
    whole = {name: one.checksum for name, one in found["whole"].tensors.items()}
    assert len(whole) == 6
    for way in ("fsdp2", "rows", "replicas"):
        assert {name: one.checksum for name, one in found[way].tensors.items()} == whole, way
    columns = {name: one.checksum for name, one in found["columns"].tensors.items()}
    assert {name: columns[name] for name in whole if name.endswith("bias")}.items() <= whole.items()
    assert {name for name in columns if "@" in name} == {f"{at}.weight@{rank}/2" for at in (0, 2) for rank in (0, 1)}
    assert all("@" in name for name in found["fsdp"].tensors)
    assert {file.name for file in (tmp_path / "stop").glob("stopped-*")} == {"stopped-0", "stopped-1"}
    together = {folder.name: digests(folder)[0] for folder in (tmp_path / "together").iterdir()}
    (one,), (other,) = together["whole"].tensors.items(), together["fsdp2"].tensors.items()
    assert (one[0], one[1].checksum) == (other[0], other[1].checksum)  # all six in one, from whole tensors and shards
    assert len(together["rows"].tensors) == 2  # matrices in shards, vectors whole
    assert together["replicas"].tensors[one[0]].checksum == one[1].checksum
