"""Probes one model in two processes, sharded in each way that torch knows, and writes what each process said.

``probe_shards.py FOLDER``: a subfolder per way. The weights are those of ``a_model()`` in every one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from ranks import WORLD, on_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from grpo_watch.callback import GrpoWatchCallback, probe
from grpo_watch.probe import writing


def a_model() -> torch.nn.Module:
    """Rows that two ranks can't share equally, a bias of one element, two bytes per element."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 1)).to(torch.bfloat16)


def placed(model: torch.nn.Module, *placement: Shard | Replicate) -> torch.nn.Module:
    """The model with its matrices distributed so, and its vectors on all."""
    mesh = init_device_mesh("cpu", (WORLD,))
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            how = placement if parameter.ndim > 1 else (Replicate(),)
            module.register_parameter(name, torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, how)))
    return model


def ways() -> dict[str, torch.nn.Module]:
    """The same weights, held in different ways."""
    return {
        "whole": DistributedDataParallel(a_model()),
        "fsdp2": fully_shard(a_model(), mesh=init_device_mesh("cpu", (WORLD,))),
        "rows": placed(a_model(), Shard(0)),
        "columns": placed(a_model(), Shard(1)),
        "replicas": placed(a_model(), Replicate()),
        "fsdp": FullyShardedDataParallel(a_model(), use_orig_params=True, device_id=torch.device("cpu")),
    }


def run(rank: int, folder: str) -> None:
    """Probe each of them."""
    for name, model in ways().items():
        assert probe(model, 10, Path(folder, name)), name
    writing.FILE_MB = 0
    for name, model in ways().items():
        assert probe(model, 10, Path(folder, "together", name)), name
    stop(rank, Path(folder, "stop"))


class Stale:
    """A file of a network file system that has lost it."""

    def exists(self) -> bool:
        """Raise as the kernel would."""
        raise OSError(116, "Stale file handle")


class LostSight(GrpoWatchCallback):
    """One that can't look for the stop file."""

    def _stop_files(self, args: Any) -> list[Any]:  # noqa: ARG002  the callback's
        return [Stale()]


def stop(rank: int, folder: Path) -> None:
    """Ask both to stop where only the second can see the file; each leaves a file if it would."""
    folder.mkdir(exist_ok=True)
    (folder / "please").touch()
    callback = (LostSight if rank == 0 else GrpoWatchCallback)(path=folder, every=1, stop_file="please")
    args, control = SimpleNamespace(device="cpu", output_dir=str(folder)), SimpleNamespace(should_training_stop=False)
    callback.on_step_end(args, SimpleNamespace(global_step=1, max_steps=9), control, model=a_model())
    if control.should_training_stop:
        (folder / f"stopped-{rank}").touch()


if __name__ == "__main__":
    on_ranks(run, sys.argv[1])
