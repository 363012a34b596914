"""Which jobs' processes are known to hold the same plain parameters; all others are compared with themselves only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grpo_watch.probe.pieces import pieces, replicated


class Tensor:
    """A parameter of which nothing is marked."""

    shape, requires_grad = (4,), True

    def detach(self) -> Tensor:
        return self


class Module:
    """A model of one layer norm."""

    def __init__(self, *children: Any, **attributes: Any) -> None:
        self.__dict__ |= attributes
        self.children = children

    def modules(self) -> Iterator[Any]:
        yield self
        yield from self.children

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        yield "decoder.layers.0.input_layernorm.weight", Tensor()


def wrapper(name: str, module: str = "deepspeed.runtime.engine") -> type[Module]:
    return type(name, (Module,), {"__module__": module})


def accelerate(monkeypatch: pytest.MonkeyPatch, **state: Any) -> None:
    module = ModuleType("accelerate.state")
    module.AcceleratorState = SimpleNamespace(_shared_state=state)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accelerate.state", module)


@pytest.fixture(autouse=True)
def no_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "accelerate.state", raising=False)


def test_plain_modules_of_unknown_processes_are_not_compared() -> None:
    """Two stages of a pipeline name their first layer alike."""
    reported = [next(pieces(Module(), rank, 2)) for rank in (0, 1)]
    assert [(piece.copy, piece.parts) for piece in reported] == [(0, 0), (0, 0)]
    (alone,) = pieces(Module(), 0, 1)
    assert (alone.copy, alone.parts) == (0, 1)


@pytest.mark.parametrize(("size", "same"), [(4, True), (2, False)])
def test_ddp_over_all_processes(size: int, same: bool) -> None:  # noqa: FBT001  a table
    """One that spans two of four processes says nothing of the others."""
    kind = wrapper("DistributedDataParallel", "torch.nn.parallel.distributed")
    model = kind(process_group=SimpleNamespace(size=lambda: size))
    assert replicated(model, 4) is same
    if same:
        assert [(piece.copy, piece.parts) for rank in (0, 3) for piece in pieces(model, rank, 4)] == [(0, 1), (3, 1)]


def test_megatron_wraps_one_stage_in_a_class_of_the_same_name() -> None:
    kind = wrapper("DistributedDataParallel", "megatron.core.distributed.distributed_data_parallel")
    assert not replicated(kind(process_group=SimpleNamespace(size=lambda: 2)), 2)


@pytest.mark.parametrize(("stage", "size", "same"), [(0, 2, True), (2, 2, True), (3, 2, False), (1, 1, False)])
def test_deepspeed(stage: int, size: int, same: bool) -> None:  # noqa: FBT001  a table
    model = wrapper("DeepSpeedEngine")(zero_optimization_stage=lambda: stage, dp_world_size=size)
    assert replicated(model, 2) is same


@pytest.mark.parametrize(
    "stage",
    [Module(pre_process=True, post_process=False), wrapper("PipelineModule")(), wrapper("PipelineEngine")()],
)
def test_a_pipeline_is_none_with_any_other_state(monkeypatch: pytest.MonkeyPatch, stage: Module) -> None:
    accelerate(monkeypatch, distributed_type="MULTI_GPU")
    kind = wrapper("DistributedDataParallel", "torch.nn.parallel.distributed")
    assert not replicated(stage, 2)
    assert not replicated(kind(stage, process_group=SimpleNamespace(size=lambda: 2)), 2)


def test_a_job_of_megatron_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has only imported it is as any other."""
    accelerate(monkeypatch, distributed_type="MULTI_GPU")
    state = ModuleType("parallel_state")
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert not replicated(Module(), 2)
    state.model_parallel_is_initialized = lambda: False  # type: ignore[attr-defined]
    assert replicated(Module(), 2)
    state.model_parallel_is_initialized = lambda: True  # type: ignore[attr-defined]
    assert not replicated(Module(), 2)


@pytest.mark.parametrize(
    ("state", "same"),
    [
        ({"distributed_type": SimpleNamespace(value="MULTI_GPU")}, True),
        ({"distributed_type": "MULTI_CPU"}, True),
        ({"distributed_type": "NO"}, False),  # several processes of which each trains alone
        ({"distributed_type": "FSDP"}, False),
        ({"distributed_type": "MEGATRON_LM"}, False),
        ({"distributed_type": "MULTI_GPU", "parallelism_config": SimpleNamespace(tp_size=2)}, False),
        ({"distributed_type": "MULTI_GPU", "parallelism_config": SimpleNamespace(tp_size=1)}, True),
        ({"distributed_type": "DEEPSPEED", "deepspeed_plugins": SimpleNamespace(zero_stage=2)}, True),
        ({"distributed_type": "DEEPSPEED", "deepspeed_plugins": SimpleNamespace(zero_stage=3)}, False),
        (
            {
                "distributed_type": "DEEPSPEED",
                "deepspeed_plugins": {"a": SimpleNamespace(zero_stage=1, selected=True)},
            },
            True,
        ),
        ({"distributed_type": "DEEPSPEED"}, False),
        ({}, False),
    ],
)
def test_what_accelerate_says(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], same: bool) -> None:  # noqa: FBT001  a table
    accelerate(monkeypatch, **state)
    assert replicated(Module(), 2) is same
