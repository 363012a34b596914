"""Has real megatron-core save a distributed checkpoint three times; between the last two nothing changes."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist


def save(folder: Path) -> None:
    """``iter_N`` and the tracker beside them, as Megatron-LM lays them out."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.cuda.synchronize = lambda *_: None  # asked for wherever the weights lie
    torch.cuda.current_device = lambda: "cpu"
    from megatron.core import dist_checkpointing  # noqa: PLC0415  slow

    torch.manual_seed(0)
    weight = torch.randn(16, 16)
    for step in (1, 2, 3):
        weight += 1 if step == 2 else 0
        path = folder / f"iter_{step:07d}"
        path.mkdir()
        sharded = dist_checkpointing.ShardedTensor.from_rank_offsets("model.weight", weight, replica_id=0)
        dist_checkpointing.save({"model.weight": sharded, "args": {"lr": 1e-6}}, str(path))
    (folder / "latest_checkpointed_iteration.txt").write_text("3")
    dist.destroy_process_group()  # and no os._exit(): it has started a process that only an interpreter's end ends


if __name__ == "__main__":
    save(Path(sys.argv[1]))
