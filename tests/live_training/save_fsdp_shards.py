"""Saves the shards of a tiny model that FSDP2 spreads over two processes, as verl's checkpoint manager does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from ranks import WORLD, on_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class Tiny(torch.nn.Sequential):
    """Two linear layers, a bias of one element, and a buffer that is not sharded."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(8, 6), torch.nn.Linear(6, 1))
        self.register_buffer("steps", torch.tensor([7.0, 8.0]))


def save(rank: int, folder: str) -> None:
    """Train one step and save this rank's part, and the plain local tensors beside it for the test."""
    torch.manual_seed(0)
    model = fully_shard(Tiny(), mesh=init_device_mesh("cpu", (WORLD,), mesh_dim_names=("fsdp",)))
    state: dict[str, Any] = model.state_dict()
    torch.save(state, Path(folder) / f"model_world_size_{WORLD}_rank_{rank}.pt")
    local = {name: one.to_local() if isinstance(one, DTensor) else one for name, one in state.items()}
    torch.save(local, Path(folder) / f"local_{rank}.pt")


if __name__ == "__main__":
    on_ranks(save, sys.argv[1])
