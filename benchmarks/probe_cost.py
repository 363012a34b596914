"""Measures what the callback costs: seconds per gigabyte of weights, beside a copy of them.

``.venv-frameworks/bin/python benchmarks/probe_cost.py [--device cuda]``, after ``scripts/setup frameworks``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from grpo_watch.callback import probe

GIGABYTE = 1e9
LAYERS, WIDTH, ROWS = 4, 4096, 11_008
"""Matrices of the size that a model of 7 billion parameters has."""


def model(dtype: Any, device: str) -> Any:
    """A stack of matrices, about 0.4 GB in two-byte types."""
    layers = [torch.nn.Linear(WIDTH, ROWS, bias=True, dtype=dtype, device=device) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def best(work: Callable[[], object], clock: Callable[[], float], times: int = 5) -> float:
    """The quickest of several, in seconds: what others do on the machine only adds."""
    taken = []
    for _ in range(times):
        begun = clock()
        work()
        taken.append(clock() - begun)
    return min(taken)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {options.device}, one thread, best of 5")
    print("| type | GB | probe: s/GB | of processor time | copying the same: s/GB |")
    print("|---|---|---|---|---|")
    for name in ("bfloat16", "float32"):
        print(row(name, options.device))


def row(name: str, device: str) -> str:
    """One data type."""
    stack = model(getattr(torch, name), device)
    size = sum(one.numel() * one.element_size() for one in stack.parameters()) / GIGABYTE
    with tempfile.TemporaryDirectory() as folder:

        def work() -> None:
            if not probe(stack, 1, folder):
                raise SystemExit("the probe failed")

        work()
        clock, processor = best(work, time.perf_counter) / size, best(work, time.process_time) / size
    flat = torch.cat([one.detach().reshape(-1) for one in stack.parameters()])
    target = torch.empty_like(flat)

    def copy() -> None:
        target.copy_(flat)
        if device != "cpu":
            torch.cuda.synchronize()

    return f"| {name} | {size:.2f} | {clock:.3f} | {processor:.3f} | {best(copy, time.perf_counter) / size:.3f} |"


if __name__ == "__main__":
    main()
