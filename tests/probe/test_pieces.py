"""Partitions of ZeRO-3 that were offloaded: what is not in memory has no checksum, and the line says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_watch.callback import probe
from grpo_watch.engine.records import CheckpointDigest
from grpo_watch.probe.pieces import pieces
from grpo_watch.sources.checkpoints.probe_source import ProbeSource
from tests.support.detecting import Watched


class Partition:
    """DeepSpeed's ``ds_tensor``: a flat share, here of bytes that are not read."""

    dtype = "bfloat16"

    def __init__(self, elements: int, status: str | None) -> None:
        self.elements = elements
        if status is not None:
            self.status = SimpleNamespace(name=status)

    def detach(self) -> Partition:
        return self

    def reshape(self, _: int) -> Partition:
        return self

    def numel(self) -> int:
        return self.elements

    def element_size(self) -> int:
        return 2

    def __getitem__(self, cut: slice) -> Partition:
        return Partition(len(range(self.elements)[cut]), None)


def model(elements: int, status: str | None) -> Any:
    """One parameter of 5 x 3 elements, of which each of two processes holds 8."""
    parameter = SimpleNamespace(ds_tensor=Partition(elements, status), ds_shape=(5, 3), requires_grad=True)

    def named_parameters() -> Iterator[tuple[str, Any]]:
        yield "weight", parameter

    return SimpleNamespace(named_parameters=named_parameters, modules=lambda: iter(()))


@pytest.mark.parametrize(
    ("elements", "status", "why"),
    [
        (8, "AVAILABLE", ""),
        (8, None, ""),
        (8, "NOT_AVAILABLE", "its partition is NOT_AVAILABLE"),
        (8, "INFLIGHT", "its partition is INFLIGHT"),
        (1, "AVAILABLE", "its partition has 1 elements, 8 are expected"),
    ],
)
def test_what_is_not_in_memory_is_not_read(elements: int, status: str | None, why: str) -> None:
    (piece,) = pieces(model(elements, status), 0, 2)
    assert piece.unread == why


def test_a_line_says_what_it_could_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe after probe without a checksum: the channel has a problem, and no policy is called frozen."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(no_grad=nullcontext))
    monkeypatch.setenv("WORLD_SIZE", "1")
    for step in (10, 20, 30):
        assert probe(model(8, "NOT_AVAILABLE"), step, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "grpo-watch-probe-0.jsonl").read_text().splitlines()]
    assert [line["tensors"] for line in lines] == [{}, {}, {}]
    assert lines[0]["unread"] == "1 of 1 tensors, first weight: its partition is NOT_AVAILABLE"
    source = ProbeSource("probe", tmp_path, [tmp_path])
    found = [item for item in source.poll(None) if isinstance(item, CheckpointDigest)]
    assert found == []
    reason = "1 of 1 tensors, first weight: its partition is NOT_AVAILABLE"
    assert source.stats.problem == f"grpo-watch-probe-0.jsonl: step 30 could not be read: {reason}"
    assert Watched("parameters-unchanged").feed(*found).changes == []


class Plain:
    """A plain parameter."""

    shape, requires_grad = (2, 2), True

    def detach(self) -> Plain:
        return self


class PipelineModule:
    """A stage as DeepSpeed names it: the first of several processes does not hold its layer."""

    def __init__(self, layer: int) -> None:
        self.layer = layer

    def modules(self) -> list[Any]:
        return [self]

    def named_parameters(self) -> list[tuple[str, Any]]:
        return [(f"layers.{self.layer}.weight", Plain())]


def test_each_stage_of_a_pipeline_writes_its_layers() -> None:
    found = [[(piece.name, piece.parts) for piece in pieces(PipelineModule(rank), rank, 2)] for rank in (0, 1)]
    assert found == [[("layers.0.weight", 0)], [("layers.1.weight", 0)]]
