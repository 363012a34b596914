"""What lies beside the weights: the scalars of PEFT's settings that say what they can prove, and the optimizer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import xxhash

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import SourceError, TensorFileError
from grpo_watch.sources.checkpoints.extents import WHOLE_FILE, opened, read_small
from grpo_watch.sources.checkpoints.tensor_layout import read_layout

NAME = "adapter_config.json"
LIMIT = 4_000_000
"""Bytes; target modules written out for a large model are well below this."""
KEPT = ("peft_type", "r", "lora_alpha", "init_lora_weights", "use_rslora", "use_dora", "bias")
MODULES = ("target_modules", "modules_to_save")


def read_adapter_config(folder: Path, roots: Sequence[Path]) -> tuple[dict[str, Scalar], list[str]]:
    """Scalars of the adapter's configuration and what is wrong with it (one line each).

    ``target_modules`` and ``modules_to_save`` become one comma-separated text each. A folder without the file gives
    nothing: what can't be decided without it stays undecided.

    Raises:
        SourceError: it is refused: outside ``roots``, or no regular file.
    """
    try:
        raw = read_small(folder / NAME, roots, LIMIT)
    except FileNotFoundError:
        return {}, []
    try:
        config: Any = json.loads(raw)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return {}, [f"{NAME}: no JSON object; it was not written whole"]
    kept = {name: config[name] for name in KEPT if isinstance(config.get(name), (str, int, float, bool))}
    for name in MODULES:
        modules = config.get(name)
        if isinstance(modules, list):
            kept[name] = ",".join(sorted(str(module) for module in modules))[:1000]
        elif isinstance(modules, str):
            kept[name] = modules[:1000]
    return kept, []


SAMPLE = 1 << 16
"""Bytes read of each tensor. Adam's moments decay by a factor at every step, so their first 64 KiB change as soon as
any gradient ever reached them; reading all would take four to six times as long as the weights themselves."""
MASTERS = re.compile(r".*(?:single_partition_of_fp32_groups|fp32_flat_groups|fp32_groups|master_param)\b.*")
"""DeepSpeed's and Megatron's float32 copies of the weights."""
MOMENTS = re.compile(r"(?:.*\.)?state\..+")
WEIGHTS = "module."
"""What the names of weights begin with in DeepSpeed's files, of which one may hold the optimizer as well (ZeRO-0)."""


def optimizer_state(files: Sequence[Path], roots: Sequence[Path]) -> dict[str, Scalar]:
    """``moments`` and ``masters`` (checksums over samples), ``moment_tensors`` (their number), ``moments_zero``.

    Empty where nothing was saved, or it is in a format that is not read; the weights are judged without it.

    Raises:
        FileNotFoundError: a file vanished.
    """
    sums = {"moments": xxhash.xxh3_128(), "masters": xxhash.xxh3_128()}
    counts = dict.fromkeys(sums, 0)
    blank = True
    for name, sample in (pair for path in files for pair in _samples(path, roots)):
        kind = "masters" if MASTERS.fullmatch(name) else "moments" if MOMENTS.fullmatch(name) else ""
        if kind:
            sums[kind].update(name.encode("utf-8", "surrogatepass") + b"\0" + sample)
            counts[kind] += 1
            blank = blank and (kind == "masters" or not any(sample))
    state: dict[str, Scalar] = {kind: sums[kind].hexdigest() for kind in sums if counts[kind]}
    if counts["moments"]:
        state |= {"moment_tensors": counts["moments"], "moments_zero": blank}
    return state


def _samples(path: Path, roots: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Names and beginnings of the tensors with more than one element (step counters change in any case), by name."""
    try:
        with opened(path, roots) as descriptor:
            for extent in sorted(read_layout(descriptor, path.name), key=lambda extent: extent.name):
                if extent.dtype == WHOLE_FILE or extent.name.startswith(WEIGHTS):
                    continue
                if any(size > 1 for size in extent.shape):
                    yield extent.name, os.pread(descriptor, min(SAMPLE, extent.end - extent.start), extent.start)
    except FileNotFoundError:
        raise
    except (SourceError, TensorFileError):
        return
