"""Turns two checkpoints on disk into how far weights saved in 16 bits moved between them, by size, on a sample."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.movement import FRACTION, Movement
from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import ChangedWhileReadError, SourceError, TensorFileError
from grpo_watch.sources.checkpoints.extents import opened
from grpo_watch.sources.checkpoints.tensor_layout import read_layout
from grpo_watch.sources.checkpoints.weight_files import WHOLE, WeightFile, choose, names_in
from grpo_watch.sources.checkpoints.weights import files_of_index

if TYPE_CHECKING:
    from grpo_watch.sources.checkpoints.extents import Extent

TENSORS, PART = 8, 1 << 20
"""Tensors of the sample, and bytes of each: 16 MiB are read in all, which is 4 million weights of each checkpoint."""
LEAST_ELEMENTS = 4096
LEFT_OUT = ("embed", "wte", "lm_head")
"""Parts of names: rows of tokens that did not occur get no gradient."""


def movement(
    before: Path, checksums: Mapping[str, str], after: Path, tensors: Mapping[str, TensorDigest], roots: Sequence[Path]
) -> Movement | None:
    """How many weights of each binary exponent changed; None where nothing is saved in 16 bits, or no longer there.

    Args:
        before: the earlier checkpoint's folder.
        checksums: of its tensors: those that did not change at all are left out (they may be frozen on purpose).
        after: the later one's.
        tensors: its digests.
        roots: folders that links may not lead out of.
    """
    moved = [
        name
        for name, one in tensors.items()
        if one.dtype in FRACTION
        and len(one.shape) > 1
        and one.elements >= LEAST_ELEMENTS
        and checksums.get(name, one.checksum) != one.checksum
        and not any(part in name for part in LEFT_OUT)
    ]
    if not moved:
        return None
    moved.sort()
    chosen = [moved[index * len(moved) // TENSORS] for index in range(min(TENSORS, len(moved)))]
    dtype = tensors[chosen[0]].dtype
    try:
        places = _locate(before, roots), _locate(after, roots)
        pairs = [
            (_part(*places[0][name], roots), _part(*places[1][name], roots))
            for name in chosen
            if tensors[name].dtype == dtype and name in places[0] and name in places[1]
        ]
    except (SourceError, TensorFileError, ChangedWhileReadError, OSError):
        return None  # rotation may have deleted the earlier one
    return _movement(dtype, [pair for pair in pairs if len(pair[0]) == len(pair[1]) > 0])


def _part(path: Path, extent: Extent, roots: Sequence[Path]) -> bytes:
    with opened(path, roots) as descriptor:
        return os.pread(descriptor, min(PART, extent.end - extent.start) // 2 * 2, extent.start)


def _movement(dtype: str, pairs: Sequence[tuple[bytes, bytes]]) -> Movement | None:
    import numpy as np  # noqa: PLC0415  stays out of the daemon

    if not pairs:
        return None
    old, new = (np.frombuffer(b"".join(side), np.uint16) for side in zip(*pairs, strict=True))
    fraction = FRACTION[dtype]
    exponents: Any = (old & 0x7FFF) >> fraction
    bias = 127 if dtype == "BF16" else 15
    highest = 1 << (15 - fraction)
    elements = np.bincount(exponents, minlength=highest)
    changed = np.bincount(exponents[old != new], minlength=highest)
    counts = tuple(
        (index - bias, int(elements[index]), int(changed[index]))
        for index in range(1, highest - 1)  # neither zeros and denormal numbers, nor what is not finite
        if elements[index]
    )
    return Movement(dtype, len(pairs), counts)


def _locate(folder: Path, roots: Sequence[Path]) -> Mapping[str, tuple[Path, Extent]]:
    """Where each tensor of a checkpoint folder lies, by the name that its digest has."""
    names: Mapping[str, os.stat_result] = names_in(folder)
    found = choose(names)
    if found is None:
        return {}
    files: Sequence[WeightFile] = files_of_index(folder, found, names, roots)[0] if found.index else found.files
    placed: dict[str, tuple[Path, Extent]] = {}
    for file in files:
        with opened(folder / file.name, roots) as descriptor:
            for extent in () if WHOLE.fullmatch(file.name) else read_layout(descriptor, file.name):
                plain = found.plain_name(extent.name)
                if plain is not None:
                    placed[plain + file.label] = folder / file.name, extent
    return placed
