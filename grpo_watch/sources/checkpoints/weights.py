"""Turns a checkpoint folder into the checksums of its weights: one file, shards with an index, or a PEFT adapter."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import xxhash

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import CheckpointKind, Scalar, TensorDigest
from grpo_watch.errors import ChangedWhileReadError, SourceError, TensorFileError
from grpo_watch.sources.checkpoints.extents import WHOLE_FILE
from grpo_watch.sources.checkpoints.tensor_layout import read_layout, whole_file
from grpo_watch.sources.checkpoints.weight_files import (
    RANKED,
    WHOLE,
    FoundWeights,
    WeightFile,
    choose,
    known_by_name,
    names_in,
)
from grpo_watch.sources.files.reading import opened, read_small

MAX_INDEX = 100_000_000
"""Most bytes of an index; one of 100,000 tensors has about 10 MB."""


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """The content of one checkpoint's weight files. ``problems`` are one line each, beginning with the file's name.

    ``replicas``: names of tensors that must hold the same bytes, group by group. ``optimizer``: the optimizer's state
    (see ``optimizer_state``), empty if it was not saved or not requested. ``remarks``: one line per intact part that is
    not understood: left out, or hashed file by file.
    """

    kind: CheckpointKind
    tensors: Mapping[str, TensorDigest]
    problems: tuple[str, ...] = ()
    adapter: Mapping[str, Scalar] = field(default_factory=dict)
    replicas: tuple[tuple[str, ...], ...] = ()
    optimizer: Mapping[str, Scalar] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits reading of weights to this many bytes per second (0: no limit).

    ``progress`` is called with the number of bytes just read.
    """

    io_limit: float = 0.0
    progress: Callable[[int], object] | None = None

    def account(self) -> Callable[[int], None]:
        """Return a function that takes numbers of bytes read, and waits if reading is too fast."""
        slow = Throttle(self.io_limit) if self.io_limit else None

        def read(count: int) -> None:
            if slow is not None:
                slow.take(count)
            if self.progress is not None:
                self.progress(count)

        return read


UNLIMITED = ReadLimits()
"""No limit on speed."""


def digest_checkpoint(folder: Path, roots: Sequence[Path], limits: ReadLimits = UNLIMITED) -> CheckpointWeights | None:
    """Return checksums of all tensors of a checkpoint folder; None if it holds no weight file.

    Raises:
        SourceError: a file can't be opened or lies outside ``roots``.
        ChangedWhileReadError: the weights were written to meanwhile.
        FileNotFoundError: folder or file vanished (rotation deletes old checkpoints).
    """
    names = _listing(folder)
    found = choose(names)
    if found is None:
        return None
    files, missing, expected = files_of(folder, found, names, roots)
    read = _digest_all(folder, found, files, roots, limits)
    problems = [*missing, *read.problems]
    problems += _nothing_in(files, read, problems)
    adapter: Mapping[str, Scalar] = {}
    if found.kind is CheckpointKind.ADAPTER:
        problems += _base_beside(folder, names, found, read, roots, limits)
        adapter, complaint = read_adapter_config((folder / files[0].name).parent, roots)
        problems += complaint
    absent = sorted(expected.keys() - read.tensors.keys()) if not problems else []
    if absent:
        shard = expected[absent[0]]
        problems.append(f"{shard}: {len(absent)} tensors of the index are not in it, {absent[0][:80]!r} first")
    state = optimizer_state([folder / name for name in found.optimizer], roots)
    return CheckpointWeights(
        found.kind, read.tensors, tuple(problems), adapter, read.replicas(), state, tuple(read.remarks)
    )


def _nothing_in(files: Sequence[WeightFile], read: _Read, problems: Collection[str]) -> list[str]:
    """Report intact files that hold no tensor at all (a rank saved without the gathered weights)."""
    return [f"{files[0].name}: holds no tensors"] if files and not read.tensors and not problems else []


def _base_beside(
    folder: Path, names: Collection[str], adapter: FoundWeights, read: _Read, roots: Sequence[Path], limits: ReadLimits
) -> list[str]:
    """Add the frozen base saved with an adapter (verl's shards of a LoRA run); returns its problems.

    Files under other names next to it are trained parts (ms-swift's ``vit.safetensors``).
    """
    own = {file.name for file in adapter.files}
    base = known_by_name([name for name in names if name not in own])
    if base is None or base.kind is not CheckpointKind.FULL:
        return []
    files, missing, _ = files_of(folder, base, names, roots)
    found = _digest_all(folder, base, files, roots, limits)
    read.tensors.update((name, one) for name, one in found.tensors.items() if name not in read.tensors)
    read.shared.update(found.shared)
    read.remarks += found.remarks
    absent = base.index and not files  # a clone without its large files
    return [*(() if absent else missing), *found.problems]


def digest_weight_file(path: Path, roots: Sequence[Path], limits: ReadLimits = UNLIMITED) -> CheckpointWeights:
    """Return checksums of all tensors of one weight file that the user names.

    Raises:
        SourceError, ChangedWhileReadError, FileNotFoundError: as for a folder.
    """
    kind = CheckpointKind.ADAPTER if path.name.startswith("adapter_model") else CheckpointKind.FULL
    found = FoundWeights(kind, (WeightFile(path.name),))
    read = _digest_all(path.parent, found, found.files, roots, limits)
    problems = [*read.problems, *_nothing_in(found.files, read, read.problems)]
    return CheckpointWeights(kind, read.tensors, tuple(problems), remarks=tuple(read.remarks))


def _listing(folder: Path) -> Mapping[str, os.stat_result]:
    try:
        return names_in(folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{folder}: can't be listed: {error.strerror or error}") from None


def files_of(
    folder: Path, found: FoundWeights, names: Collection[str], roots: Sequence[Path]
) -> tuple[list[WeightFile], list[str], dict[str, str]]:
    """Return the present weight files, missing or faulty ones, and the file of each tensor in an index."""
    if not found.index:
        return list(found.files), list(found.missing), {}
    where, problems = _weight_map(found.index, read_small(folder / found.index, roots, MAX_INDEX))
    shards = sorted(set(where.values()))
    refused = [
        name for name in shards if not name or name in {".", ".."} or "/" in name or "\\" in name or "\0" in name
    ]
    problems += [f"{found.index}: names {name[:80]!r}, which is no file of this folder" for name in refused]
    inside = [name for name in shards if name not in refused]
    problems += [f"{name}: a shard that the index names is missing" for name in inside if name not in names]
    return [WeightFile(name) for name in inside if name in names], problems, where


def _weight_map(name: str, raw: bytes) -> tuple[dict[str, str], list[str]]:
    try:
        index: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}, [f"{name}: no JSON; it was not written whole"]
    where = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict) or not where or not all(isinstance(shard, str) for shard in where.values()):
        return {}, [f"{name}: has no weight_map"]
    return where, []


@dataclass(slots=True)
class _Read:
    """The content of one checkpoint's files; ``shared``: labelled names of tensors that must be equal on every rank."""

    tensors: dict[str, TensorDigest] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    shared: dict[str, list[str]] = field(default_factory=dict)
    empty: dict[str, TensorDigest] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def replicas(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(names) for names in self.shared.values() if len(names) > 1)

    def add_file(
        self, file: WeightFile, found: FoundWeights, digests: Mapping[str, TensorDigest], shared: Collection[str]
    ) -> None:
        for full, digest in digests.items():
            plain = full if digest.dtype == WHOLE_FILE else found.plain_name(full)
            if plain is None:
                continue
            name = plain + file.label
            if name in self.tensors:
                self.problems.append(f"{file.name}: tensor {full[:80]!r} is in two shards")
            if file.label and not digest.elements:
                self.empty[plain] = digest  # a small tensor has no part on the last ranks
                continue
            self.tensors[name] = digest
            if file.label and (found.replicas or full in shared):
                self.shared.setdefault(plain, []).append(name)

    def end(self) -> None:
        """Keep the tensors of which no rank holds an element."""
        held = {name.rpartition("@")[0] for name in self.tensors}
        self.tensors.update((name, digest) for name, digest in self.empty.items() if name not in held)


def _digest_all(
    folder: Path, found: FoundWeights, files: Sequence[WeightFile], roots: Sequence[Path], limits: ReadLimits
) -> _Read:
    read, account = _Read(), limits.account()
    for file in files:
        with opened(folder / file.name, roots) as descriptor:
            try:
                digests = _digest_one(descriptor, file.name, account, read.remarks)
                shared = _whole_on_each_rank(descriptor, file) if RANKED.fullmatch(file.name) else ()
            except ChangedWhileReadError:
                raise
            except TensorFileError as error:
                read.problems.append(str(error))
                continue
        read.add_file(file, found, digests, shared)
    read.end()
    return read


def _digest_one(
    descriptor: int, name: str, account: Callable[[int], None], remarks: list[str]
) -> Mapping[str, TensorDigest]:
    from grpo_watch.sources.checkpoints.tensor_hash import digest_file  # noqa: PLC0415  the daemon reads none

    layout = whole_file if WHOLE.fullmatch(name) else partial(read_layout, remarks=remarks)
    return digest_file(descriptor, name, account, layout)


def _whole_on_each_rank(descriptor: int, file: WeightFile) -> Collection[str]:
    """Return tensors of a rank's shard that are no shards themselves: replicated, or plain ones (buffers)."""
    if not file.label:
        return ()
    return {extent.name for extent in read_layout(descriptor, file.name) if extent.replicated is not False}


ADAPTER_CONFIG = "adapter_config.json"
LIMIT = 4_000_000
"""Most bytes; target modules written out for a large model are well below this."""
KEPT = ("peft_type", "r", "lora_alpha", "init_lora_weights", "use_rslora", "use_dora", "bias")
MODULES = ("target_modules", "modules_to_save")


def read_adapter_config(folder: Path, roots: Sequence[Path]) -> tuple[dict[str, Scalar], list[str]]:
    """Return the scalars of the adapter's configuration, and its problems (one line each).

    ``target_modules`` and ``modules_to_save`` become one comma-separated text each. Both are empty if the folder lacks
    the file.

    Raises:
        SourceError: the file lies outside ``roots``, or is no regular file.
    """
    try:
        raw = read_small(folder / ADAPTER_CONFIG, roots, LIMIT)
    except FileNotFoundError:
        return {}, []
    try:
        config: Any = json.loads(raw)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return {}, [f"{ADAPTER_CONFIG}: no JSON object; it was not written whole"]
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
"""Prefix of weights' names in DeepSpeed's files, one of which may also hold the optimizer (ZeRO-0)."""


def optimizer_state(files: Sequence[Path], roots: Sequence[Path]) -> dict[str, Scalar]:
    """``moments`` and ``masters`` (checksums over samples), ``moment_tensors`` (their number), ``moments_zero``.

    Empty if no optimizer was saved, or in an unsupported format; the weights are judged without it.

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
    """Yield names and first bytes of tensors with more than one element (step counters always change), by name."""
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


class Throttle:
    """Waits whenever reading is ahead of the limit.

    Args:
        limit: bytes per second, above 0.
        clock: seconds.
        wait: waits so many seconds.
    """

    def __init__(
        self, limit: float, clock: Callable[[], float] = time.monotonic, wait: Callable[[float], object] | None = None
    ) -> None:
        self._limit, self._clock = limit, clock
        self._wait = wait or Event().wait
        self._start: float | None = None
        self._taken = 0

    def take(self, count: int) -> None:
        """Account for bytes just read, and wait until they are due."""
        now = self._clock()
        if self._start is None:
            self._start = now
        self._taken += count
        early = self._taken / self._limit - (now - self._start)
        if early > 0:
            self._wait(early)
