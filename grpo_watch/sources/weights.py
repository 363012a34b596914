"""Turns a checkpoint folder into the checksums of its weights: one file, shards with an index, or a PEFT adapter."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from grpo_watch.core.records import CheckpointKind, Scalar, TensorDigest
from grpo_watch.errors import ChangedWhileReadError, SourceError, TensorFileError
from grpo_watch.sources.adapter_config import read_adapter_config
from grpo_watch.sources.files import open_regular

MODEL, INDEX, ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"
MAX_INDEX = 100_000_000
"""Bytes of an index; one of 100,000 tensors has about 10 MB."""

SHARD = re.compile(r"model-\d{1,9}-of-\d{1,9}\.safetensors")
PICKLED = re.compile(r"(?:pytorch_model|adapter_model|model)[\w.-]{0,60}\.(?:bin|pt|pth)")

Progress: TypeAlias = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the weight files of one checkpoint hold. ``problems`` are one line each, beginning with the file's name."""

    kind: CheckpointKind
    tensors: Mapping[str, TensorDigest]
    problems: tuple[str, ...] = ()
    adapter: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The weight files of a folder, before they are read. ``expected`` maps tensors to the shard the index names."""

    kind: CheckpointKind
    files: tuple[Path, ...]
    problems: tuple[str, ...] = ()
    expected: Mapping[str, str] = field(default_factory=dict)


def digest_checkpoint(folder: Path, roots: Sequence[Path], progress: Progress | None = None) -> Weights | None:
    """Checksums of all tensors of a checkpoint folder; None when it holds no weight file.

    Raises:
        SourceError: a file can't be opened or lies outside ``roots``, or the weights are in a format not understood.
        ChangedWhileReadError: the weights were written to meanwhile.
        FileNotFoundError: folder or file vanished (rotation deletes old checkpoints).
    """
    found = find_weights(folder, roots)
    if found is None:
        return None
    tensors, problems = _digest_all(found.files, roots, progress)
    adapter: Mapping[str, Scalar] = {}
    if found.kind is CheckpointKind.ADAPTER:
        adapter, complaint = read_adapter_config(folder, roots)
        problems += complaint
    missing = sorted(found.expected.keys() - tensors.keys()) if not (problems or found.problems) else []
    if missing:
        shard = found.expected[missing[0]]
        problems.append(f"{shard}: {len(missing)} tensors of the index are not in it, {missing[0][:80]!r} first")
    return Weights(found.kind, tensors, (*found.problems, *problems), adapter)


def digest_weight_file(path: Path, roots: Sequence[Path], progress: Progress | None = None) -> Weights:
    """The same for one safetensors file that the user names.

    Raises:
        SourceError, ChangedWhileReadError, FileNotFoundError: as for a folder.
    """
    kind = CheckpointKind.ADAPTER if path.name.startswith("adapter_model") else CheckpointKind.FULL
    tensors, problems = _digest_all((path,), roots, progress)
    return Weights(kind, tensors, tuple(problems))


def find_weights(folder: Path, roots: Sequence[Path]) -> WeightFiles | None:
    """Which files hold the weights, by the names that transformers and PEFT write; None when there are none.

    An adapter goes before a full model beside it, which is then the frozen base; one file before shards, as
    ``from_pretrained`` has it.

    Raises:
        SourceError: only pickled weights are there (never loaded), or the folder or the index can't be read.
        FileNotFoundError: the folder vanished.
    """
    names = _listing(folder)
    if ADAPTER in names:
        return WeightFiles(CheckpointKind.ADAPTER, (folder / ADAPTER,))
    if MODEL in names:
        return WeightFiles(CheckpointKind.FULL, (folder / MODEL,))
    if INDEX in names:
        return _sharded(folder, names, roots)
    if shards := sorted(filter(SHARD.fullmatch, names)):
        files = tuple(folder / name for name in shards)
        return WeightFiles(CheckpointKind.FULL, files, (f"{INDEX}: missing although {len(shards)} shards are there",))
    if pickled := sorted(filter(PICKLED.fullmatch, names)):
        raise SourceError(f"{folder / pickled[0]}: not understood yet (safetensors only); save as safetensors")
    return None


def _listing(folder: Path) -> set[str]:
    try:
        return {item.name for item in folder.iterdir()}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{folder}: can't be listed: {error.strerror or error}") from None


def _sharded(folder: Path, names: set[str], roots: Sequence[Path]) -> WeightFiles:
    where, problems = _weight_map(read_small(folder / INDEX, roots, MAX_INDEX))
    shards = sorted(set(where.values()))
    refused = [
        name for name in shards if not name or name in {".", ".."} or "/" in name or "\\" in name or "\0" in name
    ]
    problems += [f"{INDEX}: names {name[:80]!r}, which is no file of this folder" for name in refused]
    inside = [name for name in shards if name not in refused]
    problems += [f"{name}: a shard that the index names is missing" for name in inside if name not in names]
    present = tuple(folder / name for name in inside if name in names)
    return WeightFiles(CheckpointKind.FULL, present, tuple(problems), where)


def _weight_map(raw: bytes) -> tuple[dict[str, str], list[str]]:
    try:
        index: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}, [f"{INDEX}: no JSON; it was not written whole"]
    where = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict) or not where or not all(isinstance(name, str) for name in where.values()):
        return {}, [f"{INDEX}: has no weight_map"]
    return where, []


def _digest_all(
    files: Iterable[Path], roots: Sequence[Path], progress: Progress | None
) -> tuple[dict[str, TensorDigest], list[str]]:
    from grpo_watch.extract.tensors import digest_file  # noqa: PLC0415  numpy stays out of the daemon

    tensors: dict[str, TensorDigest] = {}
    problems: list[str] = []
    total, done = sum(map(_size, files)), 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    for path in files:
        with opened(path, roots) as descriptor:
            try:
                found = digest_file(descriptor, path.name, count)
            except ChangedWhileReadError:
                raise
            except TensorFileError as error:
                problems.append(str(error))
                continue
        problems += [f"{path.name}: tensor {name[:80]!r} is in two shards" for name in found.keys() & tensors.keys()]
        tensors.update(found)
    return tensors, problems


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # opening it says why


def read_small(path: Path, roots: Sequence[Path], limit: int) -> bytes:
    """The whole content of a small file.

    Raises:
        SourceError: larger than ``limit`` bytes, unreadable or outside ``roots``.
        FileNotFoundError: it vanished.
    """
    with opened(path, roots) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise SourceError(f"{path}: {size} bytes, at most {limit} are read")
        return os.pread(descriptor, size, 0)


@contextmanager
def opened(path: Path, roots: Sequence[Path]) -> Iterator[int]:
    """A descriptor of a regular file under ``roots``, closed afterwards.

    Raises:
        SourceError: it can't be opened or read, or lies outside ``roots``.
        FileNotFoundError: it vanished.
    """
    try:
        descriptor = open_regular(path, roots)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror or error}") from None
