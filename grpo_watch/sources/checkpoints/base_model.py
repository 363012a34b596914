"""Finds the base model of a checkpoint, if it is on this disk, and decides whether the weights are still the base's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import CheckpointKind, TensorDigest
from grpo_watch.errors import SourceError
from grpo_watch.sources.checkpoints.extents import read_small
from grpo_watch.sources.checkpoints.weights import CheckpointWeights, WeightReading, digest_checkpoint
from grpo_watch.sources.files.reading import inside

NAMES: Mapping[str, str] = {"adapter_config.json": "base_model_name_or_path", "config.json": "_name_or_path"}
"""Files of a checkpoint and the key in which PEFT and transformers keep where the base came from."""
LIMIT = 4_000_000


def base_folder(checkpoint: Path, roots: Sequence[Path]) -> Path | None:
    """The folder of the base model that a checkpoint names; None where it names none, or one outside ``roots``.

    A name of a hub is no path, and nothing is ever downloaded.
    """
    for name, key in NAMES.items():
        try:
            config: Any = json.loads(read_small(checkpoint / name, roots, LIMIT))
        except (SourceError, OSError, ValueError, RecursionError):
            continue
        named = config.get(key) if isinstance(config, dict) else None
        if isinstance(named, str) and named and "\0" not in named:
            folder = Path(os.path.realpath(checkpoint / named))
            if folder.is_dir() and inside(folder, roots) and folder != Path(os.path.realpath(checkpoint)):
                return folder
    return None


def still_base(checkpoint: Path, weights: CheckpointWeights, roots: Sequence[Path], how: WeightReading) -> str:
    """The base model's folder where every tensor of a full checkpoint is still the base's, byte by byte; else empty."""
    found = beside_base(checkpoint, weights, roots, how)
    return str(found.folder) if found is not None and not found.changed else ""


@dataclass(frozen=True, slots=True)
class BesideBase:
    """A checkpoint and its base model: tensors that both hold, and how many of them changed."""

    folder: Path
    shared: int
    changed: int


def beside_base(
    checkpoint: Path, weights: CheckpointWeights, roots: Sequence[Path], how: WeightReading
) -> BesideBase | None:
    """None where the base is not on this disk, or most tensors are not in it (another type, an adapter, shards)."""
    if weights.kind is not CheckpointKind.FULL or weights.problems or not weights.tensors:
        return None
    folder = base_folder(checkpoint, roots)
    if folder is None:
        return None
    try:
        base = digest_checkpoint(folder, roots, how)
    except (SourceError, OSError):
        return None
    found, known = weights.tensors, {} if base is None else base.tensors
    shared = [name for name in found.keys() & known.keys() if _form(found[name]) == _form(known[name])]
    if 2 * len(shared) <= len(found):  # a tied head that only one of both saves does not matter
        return None
    return BesideBase(folder, len(shared), sum(found[name].checksum != known[name].checksum for name in shared))


def _form(tensor: TensorDigest) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, tensor.shape
