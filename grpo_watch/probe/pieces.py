"""Finds which part of each parameter this process holds: of plain, FSDP, FSDP2, tensor-parallel and ZeRO models."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

MEGATRON = ("megatron.core.parallel_state", "megatron.mpu")
"""Modules of jobs whose processes may be stages of a pipeline; Megatron's DDP spans one stage only."""
PIPELINES = frozenset({"PipelineModule", "PipelineEngine", "PipelineStage"})
REPLICATED = "MULTI_"
"""How accelerate's types of DDP begin (``MULTI_GPU``, ``MULTI_CPU``, ``MULTI_NPU``, …)."""
ZERO_REPLICATES = frozenset({0, 1, 2})
"""Stages of ZeRO that leave the parameters whole (DeepSpeed's documentation)."""


def replicated(model: Any, ranks: int) -> bool:
    """Whether each of ``ranks`` processes certainly holds the plain parameters of the whole model.

    Stages of a pipeline give different layers the same local name, and a framework may shard without a mark. So a plain
    parameter is a replica only under DDP, DeepSpeed's ZeRO-1 and 2, or a Trainer whose accelerate state names one.

    Args:
        model: a torch module, wrapped or not.
        ranks: processes that train together.
    """
    if ranks == 1:
        return True
    if any(_divided(sys.modules.get(name)) for name in MEGATRON) or any(
        _of_pipeline(module) for module in model.modules()
    ):
        return False
    return _wrapped(model, ranks) or _by_accelerate()


def _divided(state: Any) -> bool:
    """Whether Megatron has divided the processes; being installed, accelerate imports it in any job."""
    initialized = getattr(state, "model_parallel_is_initialized", None)
    return state is not None and (initialized is None or bool(initialized()))


def _of_pipeline(module: Any) -> bool:
    """A stage: DeepSpeed's by its class, Megatron's by the pipeline attributes of its models."""
    if any(kind.__name__ in PIPELINES for kind in type(module).__mro__):
        return True
    return hasattr(module, "pre_process") and hasattr(module, "post_process")


def _wrapped(model: Any, ranks: int) -> bool:
    """DDP over all processes, or DeepSpeed's engine with one model in all of them."""
    for kind in type(model).__mro__:
        if kind.__name__ == "DistributedDataParallel" and kind.__module__.startswith("torch.nn.parallel"):
            return bool(model.process_group.size() == ranks)
        if kind.__name__ == "DeepSpeedEngine":
            return model.zero_optimization_stage() in ZERO_REPLICATES and model.dp_world_size == ranks
    return False


def _by_accelerate() -> bool:
    """What the Trainer has set up: it gives its callbacks the model without the wrapper."""
    module = sys.modules.get("accelerate.state")
    state: dict[str, Any] = dict(getattr(getattr(module, "AcceleratorState", None), "_shared_state", None) or {})
    layout = state.get("parallelism_config")
    if layout is not None and any((getattr(layout, f"{way}_size", 1) or 1) > 1 for way in ("tp", "pp", "ep")):
        return False
    kind = state.get("distributed_type")
    name = str(getattr(kind, "value", kind))
    if name == "DEEPSPEED":
        return getattr(_chosen(state.get("deepspeed_plugins")), "zero_stage", None) in ZERO_REPLICATES
    return name.startswith(REPLICATED)


def _chosen(plugins: Any) -> Any:
    """The configuration in use; accelerate has one, or several by name."""
    if not isinstance(plugins, dict):
        return plugins
    return next((plugin for plugin in plugins.values() if getattr(plugin, "selected", False)), None)


WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod|module)\.")
"""Names that FSDP, activation checkpointing, torch.compile and DDP put into those of parameters."""
OWN_OF_RANK = ("tensor_model_parallel", "group_name", "is_expert", "expert_parallel")
"""What Megatron and DeepSpeed mark parameters with of which each process holds another part."""


@dataclass(frozen=True, slots=True)
class ParameterPiece:
    """What this process holds of one parameter.

    ``copy`` numbers the replicas of the whole and ``parts`` counts the pieces that make one up; 0: their place
    in it is unknown. ``offset``: bytes of the whole before it. ``unread``: why its values are not in memory now.
    ``mesh``: the mesh of devices over which it is placed, and how.
    """

    name: str
    tensor: Any
    shape: tuple[int, ...]
    trainable: bool
    copy: int = 0
    parts: int = 1
    offset: int = 0
    unread: str = ""
    mesh: str = ""


def pieces(model: Any, rank: int, ranks: int) -> Iterator[ParameterPiece]:
    """The parameters of a model, tied ones once, in the order of its modules.

    Args:
        model: a torch module.
        rank: of this process.
        ranks: processes that train together.
    """
    same = replicated(model, ranks)
    flattened = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
    apart = flattened or (getattr(model, "_tp_size", None) or 1) > 1
    named = list(model.named_parameters())
    short = Counter(WRAPPERS.sub("", raw) for raw, _ in named)
    for raw, parameter in named:
        name = WRAPPERS.sub("", raw)
        if short[name] > 1:  # a module of the model's own is called like a wrapper
            name = raw
        if hasattr(parameter, "ds_tensor"):
            yield _of_zero3(name, parameter, rank, ranks)
        elif hasattr(parameter, "device_mesh") and hasattr(parameter, "placements"):
            yield _of_mesh(name, parameter)
        else:
            tensor, whole = parameter.detach(), ranks == 1 or (same and not (apart or _own(parameter)))
            yield ParameterPiece(name, tensor, tuple(tensor.shape), parameter.requires_grad, rank * whole, int(whole))


def _own(parameter: Any) -> bool:
    """Whether each process holds another part of a plain parameter, or an expert of its own."""
    if getattr(parameter, "allreduce", True) is False:  # DeepSpeed's experts
        return True
    return any(getattr(parameter, mark, False) for mark in OWN_OF_RANK)


def _of_zero3(name: str, parameter: Any, rank: int, ranks: int) -> ParameterPiece:
    """DeepSpeed cuts the flat parameter into equal pieces and fills up the last."""
    own, shape = parameter.ds_tensor.detach().reshape(-1), tuple(parameter.ds_shape)
    group: Any = getattr(parameter, "ds_process_group", None)
    parts, at = (ranks, rank) if group is None else (group.size(), group.rank())
    start, unread = at * own.numel(), _offloaded(parameter.ds_tensor, -(-prod(shape) // parts))
    own = own[: max(0, prod(shape) - start)]
    return ParameterPiece(
        name, own, shape, parameter.requires_grad, 0, parts, start * own.element_size(), unread=unread
    )


def _offloaded(partition: Any, expected: int) -> str:
    """Why a partition is not in memory: swapped out to NVMe, or on its way; its buffer then holds anything."""
    status = getattr(partition, "status", None)
    state = str(getattr(status, "name", status))
    if status is not None and state != "AVAILABLE":
        return f"its partition is {state}"
    elements = partition.numel()
    return "" if elements == expected else f"its partition has {elements} elements, {expected} are expected"


def _of_mesh(name: str, parameter: Any) -> ParameterPiece:
    """A DTensor: sharded over some dimensions of the device mesh, replicated over others."""
    local, shape = parameter.to_local().detach(), tuple(parameter.shape)
    mesh, where = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    copy, parts = 0, 1
    offsets, extents = [0] * len(shape), list(shape)
    known = where is not None
    for size, at, placement in zip(mesh.shape, where or (), parameter.placements, strict=known):
        kind = type(placement).__name__
        if kind == "Replicate":
            copy = copy * size + at
        elif kind == "Shard":
            parts *= size
            offsets[placement.dim], extents[placement.dim] = _chunk(
                offsets[placement.dim], extents[placement.dim], size, at
            )
        else:
            known = False
    lies = _place(local, shape, offsets) if known and tuple(local.shape) == tuple(extents) else None
    placed = f"{tuple(mesh.shape)} {parameter.placements}"
    if lies is None:
        return ParameterPiece(name, local, shape, parameter.requires_grad, 0, 0, mesh=placed)
    return ParameterPiece(name, local, shape, parameter.requires_grad, copy, parts, lies, mesh=placed)


def _chunk(offset: int, extent: int, size: int, at: int) -> tuple[int, int]:
    """Offset and length of a piece as ``torch.chunk`` cuts."""
    most = -(-extent // size)
    start = min(at * most, extent)
    return offset + start, min(most, extent - start)


def _place(local: Any, shape: tuple[int, ...], offsets: list[int]) -> int | None:
    """Bytes of the whole before a block of rows; None for any other block, which does not lie in one piece."""
    if any(size != whole for size, whole in zip(local.shape[1:], shape[1:], strict=True)):
        return None
    return offsets[0] * prod(shape[1:]) * local.element_size() if shape else 0
