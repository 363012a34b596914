"""Kinds of real torch parameters: types, layouts, devices, wrappers; what can't be read is reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.callback import probe
from grpo_watch.probe import checksum as arithmetic
from grpo_watch.probe.checksum import Hasher
from grpo_watch.probe.pieces import pieces
from grpo_watch.probe.writing import checksums
from tests.live_training.test_probe_torch import by_definition, bytes_of, checksum

pytestmark = pytest.mark.frameworks
torch = pytest.importorskip("torch")


def taken(model: Any, most: int = 2048) -> tuple[dict[str, str], str]:
    found, unread = checksums(list(pieces(model, 0, 1)), most)
    return {name: entry[2] for name, entry in found.items()}, unread


def holding(**tensors: Any) -> Any:
    """A module with these parameters, none of which needs a gradient."""
    model = torch.nn.Module()
    for name, tensor in tensors.items():
        model.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    return model


@pytest.mark.parametrize("kind", ["complex64", "complex128", "bool", "uint8", "float8_e5m2", "int64"])
def test_every_type_has_bytes(kind: str) -> None:
    """Quantised weights lie as bytes (bitsandbytes' 4 bits in uint8), and masks as booleans."""
    torch.manual_seed(0)
    tensor = (torch.randn(33, 5) * 3).to(getattr(torch, kind))
    assert checksum(tensor) == by_definition(bytes_of(tensor))


def test_what_can_not_be_read_is_reported_and_the_rest_is_read() -> None:
    """A parameter without values, one that is sparse, one that is quantised."""
    model = holding(
        good=torch.ones(4),
        away=torch.empty(4, device="meta"),
        thin=torch.eye(4).to_sparse(),
        small=torch.ones(4),
    )
    found, unread = taken(model)
    assert sorted(found) == ["good", "small"]
    assert unread.startswith("2 of 4 tensors, first away: RuntimeError: it has no values (device meta)")


QUANTISED = """
import sys, torch
from grpo_watch.probe.pieces import pieces
from grpo_watch.probe.writing import checksums
model = torch.nn.Linear(2, 2)
quantised = torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 0, torch.qint8)
model.register_parameter("small", torch.nn.Parameter(quantised, requires_grad=False))
found, unread = checksums(list(pieces(model, 0, 1)))
print(sorted(found), unread)
"""


def test_a_parameter_that_torch_quantised_does_not_end_the_process() -> None:
    """Its bytes, seen as such, are a segmentation fault of torch 2.13, which nothing can catch."""
    command = [sys.executable, "-W", "ignore", "-c", QUANTISED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "torch exposes no bytes of torch.qint8, torch.strided"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"['bias', 'weight'] 1 of 3 tensors, first small: RuntimeError: {said}\n"


class Wrapped(torch.Tensor):  # type: ignore[misc]  torch is not here where types are checked
    """As torchao's: a tensor without bytes, whose values are in others."""

    @staticmethod
    def __new__(cls: Any, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        made = function(*(one.inner if isinstance(one, cls) else one for one in arguments), **(named or {}))
        return cls(made) if isinstance(made, torch.Tensor) else made


def test_a_tensor_around_others_is_reported_and_not_taken_for_zeros() -> None:
    found, unread = taken(holding(good=torch.ones(4), around=Wrapped(torch.ones(4))))
    assert list(found) == ["good"]
    said = "a tensor of the class Wrapped is not understood"
    assert unread == f"1 of 2 tensors, first around: RuntimeError: {said}"


def test_a_module_called_like_a_wrapper_hides_no_other() -> None:
    inner = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2)})
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "module": inner})
    names = ["a.bias", "a.weight", "module.a.bias", "module.a.weight"]
    assert sorted(taken(model)[0]) == names
    assert sorted(taken(torch.nn.ModuleDict({"module": model["a"]}))[0]) == ["bias", "weight"]


def test_running_out_of_memory_is_no_fault_of_a_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends the probe of this step as an error that says so, and is not raised into training."""

    def exhausted(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Hasher, "sum", exhausted)
    assert not probe(torch.nn.Linear(2, 2), 1, tmp_path)
    (line,) = (tmp_path / "grpo-watch-probe-0.jsonl").read_text().splitlines()
    assert json.loads(line)["text"] == "OutOfMemoryError: CUDA out of memory"


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4))
    assert taken(torch.compile(plain, backend="eager")) == taken(plain)


@pytest.mark.parametrize("way", [(0, 2, 1), (2, 1, 0), (1, 0, 2)])
def test_strided_tensors(way: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows larger than a chunk are read in parts."""
    tensor = torch.arange(5 * 32 * 17, dtype=torch.int16).view(5, 32, 17).permute(way)
    for chunk in (16, 1 << 8, 1 << 15):
        monkeypatch.setattr(arithmetic, "CHUNK_CPU", chunk)
        for offset in (0, 2, 4):
            assert checksum(tensor, offset) == by_definition(bytes_of(tensor), offset)


def test_the_sum_wraps_as_on_any_device() -> None:
    """Products and sums beyond 64 bits: torch's integers wrap around, as two's complement does everywhere."""
    tensor = torch.full((10_000,), -1, dtype=torch.int32)
    assert checksum(tensor) == by_definition(bytes_of(tensor))


def test_neighbours_are_put_together() -> None:
    """The sum of a stack of contiguous tensors is that of the tensors, whatever their strides."""
    torch.manual_seed(0)
    experts = torch.nn.ModuleList(torch.nn.Linear(6, 4, bias=False) for _ in range(5))
    stack = torch.stack([each.weight.detach() for each in experts])
    assert taken(torch.nn.ModuleDict({"experts": experts}), 1)[0] == {
        "experts.0.weight and 4 more": f"{checksum(stack):016x}"
    }


MEMORY = """
import resource, sys, torch
from grpo_watch.callback import probe
torch.set_num_threads(1)
bytes_each = 200 << 20
model = torch.nn.Module()
model.register_parameter("flat", torch.nn.Parameter(torch.ones(bytes_each // 4)))
model.register_parameter("odd", torch.nn.Parameter(torch.ones(bytes_each // 2 + 1, dtype=torch.bfloat16)))
model.register_parameter("strided", torch.nn.Parameter(torch.ones(1, 1 << 13, bytes_each >> 15).permute(0, 2, 1)))
small = torch.nn.Linear(8, 8)
assert probe(small, 1, sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert probe(model, 2, sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_a_large_tensor_is_not_copied(tmp_path: Path) -> None:
    """Three tensors of 200 MiB, one of an odd size and one strided: a tenth of one of them at most is taken besides."""
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20
