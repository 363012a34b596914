"""Trains a tiny model with real DeepSpeed on two processes and has it save, once for each stage of ZeRO."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import torch
from ranks import WORLD, on_ranks

from grpo_watch.callback import probe

STAGES = (0, 1, 2, 3)
STEPS = (1, 2, 3)
"""After the last of them nothing was trained any more."""


def a_model() -> Any:
    """Two linear layers and a frozen norm between them."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 6))
    model[1].weight.requires_grad_(requires_grad=False)
    return model


def save(rank: int, folder: str) -> None:
    """Train and save with each stage: ``FOLDER/zeroS/global_stepN``, the whole weights beside it, the probe's lines."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_SIZE": str(WORLD)}
    import deepspeed  # noqa: PLC0415  reads the environment

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # would be compiled first, for minutes
    deepspeed.init_distributed("gloo")
    for stage in STAGES:
        model = a_model()
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-2)
        settings = {
            "train_micro_batch_size_per_gpu": 2,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        }
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        for step in STEPS:
            if step != STEPS[-1]:
                inputs = torch.arange(12.0).reshape(2, 6).bfloat16() * (rank + step)
                engine.backward(engine(inputs).square().mean())
                engine.step()
            probe(engine, step, f"{folder}/probe{stage}")
            engine.save_checkpoint(f"{folder}/zero{stage}", tag=f"global_step{step}")
            if stage == STAGES[-1]:
                (part,) = engine.optimizer.fp32_partitioned_groups_flat
                torch.save(part.detach().clone(), Path(folder) / f"flat-{step}-{rank}.pt")
            with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == STAGES[-1]):
                whole = {name: one.detach().clone() for name, one in engine.module.named_parameters()}
            if rank == 0:
                torch.save(whole, Path(folder) / f"zero{stage}-{step}.pt")


if __name__ == "__main__":
    on_ranks(save, sys.argv[1])
