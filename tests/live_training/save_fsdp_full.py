"""Saves a tiny model that FSDP spreads over two processes, whole and in shards, as accelerate does for either kind."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from ranks import WORLD, on_ranks
from save_fsdp_shards import Tiny
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def save(rank: int, folder: str) -> None:
    """Gather all shards on the first rank and save them there, beside the same state of an unsharded model.

    In ``sharded/checkpoint-N`` each rank saves its own part: twice the same, then another.
    """
    torch.manual_seed(0)
    plain = Tiny().state_dict()
    torch.manual_seed(0)
    model = fully_shard(Tiny(), mesh=init_device_mesh("cpu", (WORLD,), mesh_dim_names=("fsdp",)))
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, Path(folder) / "pytorch_model_fsdp.bin")
        torch.save(plain, Path(folder) / "expected.pt")
    for step in (10, 20, 30):
        if step == 30:
            with torch.no_grad():
                model[0].weight.add_(1.0)
        path = Path(folder) / "sharded" / f"checkpoint-{step}"
        checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=str(path / "pytorch_model_fsdp_0"))
        (path / "trainer_state.json").write_text("{\n}\n")


if __name__ == "__main__":
    on_ranks(save, sys.argv[1])
