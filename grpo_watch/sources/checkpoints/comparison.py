"""Compares checkpoints on this disk: with the base model that one names, and how far 16-bit weights moved."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum, isfinite, sqrt
from pathlib import Path
from typing import Any

from grpo_watch.engine.record_parts import FRACTION, Movement
from grpo_watch.engine.records import CheckpointKind, TensorDigest
from grpo_watch.errors import ChangedWhileReadError, SourceError, TensorFileError
from grpo_watch.sources.checkpoints.extents import Extent
from grpo_watch.sources.checkpoints.tensor_layout import read_layout
from grpo_watch.sources.checkpoints.weight_files import WHOLE, choose, names_in
from grpo_watch.sources.checkpoints.weights import CheckpointWeights, ReadLimits, digest_checkpoint, files_of
from grpo_watch.sources.files.reading import inside, opened, read_small

NAMES: Mapping[str, str] = {"adapter_config.json": "base_model_name_or_path", "config.json": "_name_or_path"}
"""Files of a checkpoint and the key of the base model's path in them (PEFT, transformers)."""
LIMIT = 4_000_000


def base_folder(checkpoint: Path, roots: Sequence[Path]) -> Path | None:
    """Return the folder of the base model that a checkpoint names; None without one, or outside ``roots``.

    Names on a hub are ignored, and nothing is ever downloaded.
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


def still_base(checkpoint: Path, weights: CheckpointWeights, roots: Sequence[Path], limits: ReadLimits) -> str:
    """Return the base model's folder if every tensor of a full checkpoint equals the base's bytes; else empty.

    Also empty if the base is not on this disk, or lacks most tensors (another type, an adapter, shards).
    """
    if weights.kind is not CheckpointKind.FULL or weights.problems or not weights.tensors:
        return ""
    folder = base_folder(checkpoint, roots)
    try:
        base = digest_checkpoint(folder, roots, limits) if folder is not None else None
    except (SourceError, OSError):
        return ""
    found, known = weights.tensors, {} if base is None else base.tensors
    shared = [name for name in found.keys() & known.keys() if _form(found[name]) == _form(known[name])]
    if 2 * len(shared) <= len(found):  # a tied head that only one of them saves does not matter
        return ""
    return str(folder) if all(found[name].checksum == known[name].checksum for name in shared) else ""


def _form(tensor: TensorDigest) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, tensor.shape


TENSORS, PART = 8, 1 << 20
"""Tensors of the sample, and bytes of each: 16 MiB are read in all, 4 million weights of each checkpoint."""
LEAST_ELEMENTS = 4096
LEFT_OUT = ("embed", "wte", "lm_head")
"""Parts of names that are left out: rows of tokens that did not occur get no gradient."""


def movement(
    before: Path, checksums: Mapping[str, str], after: Path, tensors: Mapping[str, TensorDigest], roots: Sequence[Path]
) -> Movement | None:
    """Count changed weights by binary exponent; None if nothing is saved in 16 bits, or files are gone.

    Args:
        before: the earlier checkpoint's folder.
        checksums: its tensors' checksums; unchanged tensors are left out (they may be frozen on purpose).
        after: the later checkpoint's folder.
        tensors: its digests.
        roots: folders that links may not lead out of.
    """
    moved = [
        name
        for name in _moved(checksums, tensors, LEAST_ELEMENTS)
        if tensors[name].dtype in FRACTION and not any(part in name for part in LEFT_OUT)
    ]
    chosen = _spread(moved)
    dtype = tensors[chosen[0]].dtype if chosen else ""
    same = [name for name in chosen if tensors[name].dtype == dtype]
    return _movement(dtype, list(_parts(before, after, same, PART, roots).values()))


LEAST_MATRIX, SAMPLE = 256, 1 << 14
"""Fewest elements of a compared matrix, and bytes read of it: by chance, two have a cosine of 1 / sqrt(256)."""
UNRELATED = 0.2
"""Cosine below which two matrices are unrelated; between two checkpoints of a training it is 0.9 and more."""
GROWTH = 3.0
"""Ratio of sizes reached only by a matrix that began at zero: a random walk from there to here keeps 1/3."""


def unrelated(
    before: Path, checksums: Mapping[str, str], after: Path, tensors: Mapping[str, TensorDigest], roots: Sequence[Path]
) -> tuple[int, int]:
    """Return how many sampled matrices have nothing in common with their earlier values, and the sample's size.

    Arguments as for ``movement``. Adapters begin at zero and are left out; other matrices that do so have grown much.
    """
    moved = [name for name in _moved(checksums, tensors, LEAST_MATRIX) if "lora_" not in name]
    known = [name for name in _spread(moved) if tensors[name].dtype in {"F32", *FRACTION}]
    found = [
        answer
        for name, (old, new) in _parts(before, after, known, SAMPLE, roots).items()
        if (answer := _apart(_values(old, tensors[name].dtype), _values(new, tensors[name].dtype))) is not None
    ]
    return sum(found), len(found)


def _values(data: bytes, dtype: str) -> Sequence[float]:
    if dtype == "F16":
        return [value for (value,) in struct.iter_unpack("<e", data)]
    if dtype == "BF16":
        data = b"".join([b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2)])
    return [value for (value,) in struct.iter_unpack("<f", data[: len(data) // 4 * 4])]


def _apart(one: Sequence[float], other: Sequence[float]) -> bool | None:
    """Whether two matrices of similar size have nothing in common; None if one of them is zero or not finite."""
    if not all(map(isfinite, (*one, *other))):
        return None
    small, large = sorted(sqrt(fsum(value * value for value in side)) for side in (one, other))
    if not small:
        return None
    product = fsum(left * right for left, right in zip(one, other, strict=True))
    return large <= GROWTH * small and product < UNRELATED * small * large


def _moved(checksums: Mapping[str, str], tensors: Mapping[str, TensorDigest], least: int) -> list[str]:
    """Return the names of changed matrices with at least ``least`` elements."""
    return sorted(
        name
        for name, one in tensors.items()
        if len(one.shape) > 1 and one.elements >= least and checksums.get(name, one.checksum) != one.checksum
    )


def _spread(names: Sequence[str]) -> list[str]:
    """Pick at most ``TENSORS`` of the names, evenly spread."""
    return [names[index * len(names) // TENSORS] for index in range(TENSORS)] if len(names) > TENSORS else [*names]


def _parts(
    before: Path, after: Path, names: Sequence[str], size: int, roots: Sequence[Path]
) -> dict[str, tuple[bytes, bytes]]:
    """Return the first bytes of each tensor that both checkpoints hold with the same type and shape."""
    if not names:
        return {}
    try:
        old, new = _locate(before, roots), _locate(after, roots)
        pairs = {
            name: (_part(*old[name], size, roots), _part(*new[name], size, roots))
            for name in names
            if name in old and name in new and _alike(old[name][1], new[name][1])
        }
    except (SourceError, TensorFileError, ChangedWhileReadError, OSError):
        return {}  # rotation may have deleted the earlier checkpoint
    return {name: pair for name, pair in pairs.items() if len(pair[0]) == len(pair[1]) > 0}


def _alike(one: Extent, other: Extent) -> bool:
    return (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)


def _part(path: Path, extent: Extent, size: int, roots: Sequence[Path]) -> bytes:
    with opened(path, roots) as descriptor:
        return os.pread(descriptor, min(size, extent.end - extent.start) // 2 * 2, extent.start)


def _movement(dtype: str, pairs: Sequence[tuple[bytes, bytes]]) -> Movement | None:
    if not pairs:
        return None
    old, new = (memoryview(b"".join(side)).cast("H") for side in zip(*pairs, strict=True))
    changed = Counter(before for before, after in zip(old, new, strict=True) if before != after)
    fraction = FRACTION[dtype]
    bias = 127 if dtype == "BF16" else 15
    found = _by_exponent(Counter(old), fraction), _by_exponent(changed, fraction)
    counts = tuple(
        (exponent - bias, count, found[1][exponent])
        for exponent, count in sorted(found[0].items())
        if 0 < exponent < (1 << (15 - fraction)) - 1  # neither zeros and denormal numbers, nor infinities and NaN
    )
    return Movement(dtype, len(pairs), counts)


def _by_exponent(patterns: Counter[int], fraction: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for pattern, count in patterns.items():
        found[(pattern & 0x7FFF) >> fraction] += count
    return found


def _locate(folder: Path, roots: Sequence[Path]) -> Mapping[str, tuple[Path, Extent]]:
    """Map the digested names of a checkpoint folder's tensors to their files and extents."""
    names: Mapping[str, os.stat_result] = names_in(folder)
    found = choose(names)
    if found is None:
        return {}
    placed: dict[str, tuple[Path, Extent]] = {}
    for file in files_of(folder, found, names, roots)[0]:
        with opened(folder / file.name, roots) as descriptor:
            for extent in () if WHOLE.fullmatch(file.name) else read_layout(descriptor, file.name):
                plain = found.plain_name(extent.name)
                if plain is not None:
                    placed[plain + file.label] = folder / file.name, extent
    return placed
