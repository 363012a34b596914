"""Measures what the callback costs: seconds per gigabyte of weights, beside a copy of them, and per tensor.

``benchmarks/run.py --only callback`` runs it and puts the figures into its table; by itself, after ``scripts/setup
frameworks``: ``.venv-frameworks/bin/python benchmarks/probe_cost.py [--device cuda --layers 169]``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from grpo_watch.callback import probe

GIGABYTE = 1e9
LAYERS, WIDTH, ROWS = 4, 4096, 11_008
"""Matrices of the size that a model of 7 billion parameters has; 169 of them have as many parameters as it."""
MIXTURE_LAYERS, EXPERTS = 16, 128
"""Experts of three tiny matrices each: what a tensor of any size costs."""


def model(dtype: Any, device: str, layers: int) -> Any:
    """A stack of matrices, 0.09 GB each in two-byte types."""
    stack = [torch.nn.Linear(WIDTH, ROWS, bias=True, dtype=dtype, device=device) for _ in range(layers)]
    return torch.nn.Sequential(*stack)


def best(work: Callable[[], object], clock: Callable[[], float], times: int = 5) -> float:
    """The quickest of several, in seconds: what others do on the machine only adds."""
    taken = []
    for _ in range(times):
        begun = clock()
        work()
        taken.append(clock() - begun)
    return min(taken)


def mixture(device: str) -> Any:
    """6,144 tensors of 32 elements, by the names of a mixture of experts."""

    def layer() -> Any:
        experts = [
            torch.nn.ModuleDict({name: torch.nn.Linear(4, 8, bias=False) for name in "abc"}) for _ in range(EXPERTS)
        ]
        return torch.nn.ModuleDict({"experts": torch.nn.ModuleList(experts)})

    return torch.nn.ModuleDict({"layers": torch.nn.ModuleList([layer() for _ in range(MIXTURE_LAYERS)])}).to(device)


def main() -> None:
    """Print the table, or with ``--json`` the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=LAYERS, help="matrices of 45 million parameters each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [per_gigabyte(name, options.device, options.layers) for name in ("bfloat16", "float32")]
    tensors, seconds = per_tensor(options.device)
    if options.json:
        print(json.dumps({"device": options.device, "rows": rows, "tensors": tensors, "seconds": seconds}))
        return
    print(f"torch {torch.__version__}, {options.device}, one thread, best of 5")
    print("| type | GB | probe: s/GB | of processor time | copying the same: s/GB |")
    print("|---|---|---|---|---|")
    for row in rows:
        print("| {type} | {gb:.2f} | {wall:.3f} | {cpu:.3f} | {copy:.3f} |".format(**row))
    print(f"\n{tensors:,} tensors: {seconds:.2f} s of processor time, {1e6 * seconds / tensors:.0f} µs each")


def probing(model: Any, folder: str) -> Callable[[], None]:
    """A probe of the model, done once already."""

    def work() -> None:
        if not probe(model, 1, folder):
            raise SystemExit("the probe failed")

    work()
    return work


def per_tensor(device: str) -> tuple[int, float]:
    """How many tensors, and seconds of processor time for all of them."""
    model = mixture(device)
    with tempfile.TemporaryDirectory() as folder:
        return sum(1 for _ in model.parameters()), best(probing(model, folder), time.process_time)


def per_gigabyte(name: str, device: str, layers: int) -> dict[str, Any]:
    """Of one data type: size in GB; seconds per GB of the probe by clock and processor, of a copy by the processor.

    On an accelerator the copy is timed by the clock, for the processor only waits.
    """
    stack = model(getattr(torch, name), device, layers)
    size = sum(one.numel() * one.element_size() for one in stack.parameters()) / GIGABYTE
    with tempfile.TemporaryDirectory() as folder:
        work = probing(stack, folder)
        clock, processor = best(work, time.perf_counter) / size, best(work, time.process_time) / size
    flat = torch.cat([one.detach().reshape(-1) for one in stack.parameters()])
    target = torch.empty_like(flat)

    def copy() -> None:
        target.copy_(flat)
        if device != "cpu":
            torch.cuda.synchronize()

    alike = time.process_time if device == "cpu" else time.perf_counter
    return {"type": name, "gb": size, "wall": clock, "cpu": processor, "copy": best(copy, alike) / size}


if __name__ == "__main__":
    main()
