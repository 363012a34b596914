"""Finds the part of each parameter that this process writes: in plain, FSDP, FSDP2, tensor-parallel and ZeRO models.

If several processes hold the same part, the first one writes it: replicas are not compared.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod|module)\.")
"""Parts that FSDP, activation checkpointing, torch.compile and DDP insert into parameters' names."""
OWN_OF_RANK = ("tensor_model_parallel", "group_name", "is_expert", "expert_parallel")
"""Attributes by which Megatron and DeepSpeed mark parameters that differ between processes."""
MEGATRON = ("megatron.core.parallel_state", "megatron.mpu")
"""Modules of jobs whose processes may be pipeline stages."""
PIPELINES = frozenset({"PipelineModule", "PipelineEngine", "PipelineStage"})


@dataclass(frozen=True, slots=True)
class ParameterPiece:
    """The part of one parameter that this process writes.

    ``parts`` counts the pieces of the whole; 0: their place in it is unknown. ``offset``: bytes of the whole before
    this piece. ``unread``: why its values are not in memory now. ``mesh``: the device mesh on which it is placed, and
    how.
    """

    name: str
    tensor: Any
    shape: tuple[int, ...]
    trainable: bool
    parts: int = 1
    offset: int = 0
    unread: str = ""
    mesh: str = ""


def pieces(model: Any, rank: int, ranks: int) -> Iterator[ParameterPiece]:
    """The parameters of a model, tied ones once, in the order of its modules.

    Args:
        model: a torch module.
        rank: of this process.
        ranks: number of processes that train together.
    """
    flattened = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
    apart = flattened or (getattr(model, "_tp_size", None) or 1) > 1 or (ranks > 1 and _in_stages(model))
    named = list(model.named_parameters())
    short = Counter(WRAPPERS.sub("", raw) for raw, _ in named)
    for raw, parameter in named:
        name = WRAPPERS.sub("", raw)
        if short[name] > 1:  # one of the model's own modules is named like a wrapper
            name = raw
        if hasattr(parameter, "ds_tensor"):
            yield _of_zero3(name, parameter, rank, ranks)
        elif hasattr(parameter, "device_mesh") and hasattr(parameter, "placements"):
            yield from _of_mesh(name, parameter)
        elif (own := ranks > 1 and (apart or _own(parameter))) or rank == 0:
            tensor = parameter.detach()
            yield ParameterPiece(name, tensor, tuple(tensor.shape), parameter.requires_grad, 0 if own else 1)


def _in_stages(model: Any) -> bool:
    """Whether processes may be pipeline stages, which give different layers the same local name.

    Megatron is asked whether it has divided the processes: where it is installed, accelerate imports it in any job.
    """
    for state in filter(None, map(sys.modules.get, MEGATRON)):
        initialized = getattr(state, "model_parallel_is_initialized", None)
        if initialized is None or initialized():
            return True
    return any(
        any(kind.__name__ in PIPELINES for kind in type(module).__mro__)
        or (hasattr(module, "pre_process") and hasattr(module, "post_process"))  # Megatron's models
        for module in model.modules()
    )


def _own(parameter: Any) -> bool:
    """Whether each process holds a different part of a plain parameter, or its own expert."""
    if getattr(parameter, "allreduce", True) is False:  # DeepSpeed's experts
        return True
    return any(getattr(parameter, mark, False) for mark in OWN_OF_RANK)


def _of_zero3(name: str, parameter: Any, rank: int, ranks: int) -> ParameterPiece:
    """The piece of a ZeRO-3 parameter, which DeepSpeed flattens, pads and cuts into equal pieces."""
    own, shape = parameter.ds_tensor.detach().reshape(-1), tuple(parameter.ds_shape)
    group: Any = getattr(parameter, "ds_process_group", None)
    parts, at = (ranks, rank) if group is None else (group.size(), group.rank())
    start, unread = at * own.numel(), _offloaded(parameter.ds_tensor, -(-prod(shape) // parts))
    own = own[: max(0, prod(shape) - start)]
    return ParameterPiece(name, own, shape, parameter.requires_grad, parts, start * own.element_size(), unread=unread)


def _offloaded(partition: Any, expected: int) -> str:
    """Why a partition is not in memory: swapped out to NVMe, or on its way (its buffer is then undefined)."""
    status = getattr(partition, "status", None)
    state = str(getattr(status, "name", status))
    if status is not None and state != "AVAILABLE":
        return f"its partition is {state}"
    elements = partition.numel()
    return "" if elements == expected else f"its partition has {elements} elements, {expected} are expected"


def _of_mesh(name: str, parameter: Any) -> Iterator[ParameterPiece]:
    """The piece of a DTensor, sharded over some dimensions of the device mesh; the first of equal replicas writes."""
    local, shape = parameter.to_local().detach(), tuple(parameter.shape)
    mesh, where = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    parts, offsets, extents = 1, [0] * len(shape), list(shape)
    known = where is not None
    for size, at, placement in zip(mesh.shape, where or (), parameter.placements, strict=known):
        kind = type(placement).__name__
        if kind == "Replicate" and at:
            return
        if kind == "Shard":
            parts *= size
            offsets[placement.dim], extents[placement.dim] = _chunk(
                offsets[placement.dim], extents[placement.dim], size, at
            )
        known = known and kind in {"Replicate", "Shard"}
    lies = _place(local, shape, offsets) if known and tuple(local.shape) == tuple(extents) else None
    placed, at_all = f"{tuple(mesh.shape)} {parameter.placements}", lies is not None
    yield ParameterPiece(name, local, shape, parameter.requires_grad, parts * at_all, lies or 0, mesh=placed)


def _chunk(offset: int, extent: int, size: int, at: int) -> tuple[int, int]:
    """Offset and length of a piece cut by ``torch.chunk``."""
    most = -(-extent // size)
    start = min(at * most, extent)
    return offset + start, min(most, extent - start)


def _place(local: Any, shape: tuple[int, ...], offsets: list[int]) -> int | None:
    """Bytes of the whole before a block of rows; None for other blocks, which are not contiguous."""
    if any(size != whole for size, whole in zip(local.shape[1:], shape[1:], strict=True)):
        return None
    return offsets[0] * prod(shape[1:]) * local.element_size() if shape else 0
