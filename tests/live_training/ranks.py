"""Two processes of torch beside each other: how they meet, and how they end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

WORLD = 2


def on_ranks(work: Callable[[int, str], None], folder: str) -> None:
    """Call ``work(rank, folder)`` in each process, all of them in one group of gloo; what one raises is raised here.

    They meet at a file: a free port might be somebody else's by then.
    """
    with tempfile.TemporaryDirectory() as place:
        processes.spawn(_rank, (work, folder, f"file://{place}/meeting"), nprocs=WORLD)


def _rank(rank: int, work: Callable[[int, str], None], folder: str, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)
    work(rank, folder)
    leave()


def leave() -> None:
    """End this process once all of them are done, without the interpreter's teardown.

    On a busy machine threads of gloo are still joinable then, which aborts a process that has written everything
    ("terminate called without an active exception").
    """
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
