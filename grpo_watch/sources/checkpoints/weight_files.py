"""Recognises by name a checkpoint folder's weight files and optimizer state."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import CheckpointKind
from grpo_watch.frameworks.framework_tables import layout_of

FULL, ADAPTER = CheckpointKind.FULL, CheckpointKind.ADAPTER
BELOW = re.compile(
    r"global_step\d{1,12}|pytorch_model_fsdp_\d{1,3}|dist_ckpt|model|iter_\d{7}|lora_adapter|mp_rank_\d{2,5}(?:_\d{3})?"
)
"""Subfolders of a checkpoint that are searched: DeepSpeed's, torch's distributed ones, Megatron's."""
NAMED_ADAPTER = re.compile(r"(?P<name>(?!lora_adapter/)[^/]{1,100})/adapter_model\.(?:safetensors|bin)")
"""PEFT saves every adapter except ``default`` in a folder of its name."""
MOST_FILES = 20_000
"""Most files of a checkpoint folder that are listed; 512 ranks leave about 2,000."""
SHARD = re.compile(r"(?:model|pytorch_model)-\d{1,9}-of-\d{1,9}\.(?:safetensors|bin)")
RANKED = re.compile(r"model_world_size_(?P<of>\d{1,5})_rank_(?P<rank>\d{1,5})\.pt")
"""verl's and SkyRL's shards, one per rank."""
OPTIMIZER_RANKED = re.compile(r"optim_world_size_\d{1,5}_rank_\d{1,5}\.pt")
REPLICA = re.compile(r"(?:pytorch_model|model|adapter_model)[_.-]rank_?(?P<rank>\d{1,5})\.(?:bin|pt|pth|safetensors)")
"""Files of scripts with plain data parallelism: the whole model, saved by each rank."""
STATES = re.compile(
    r"(?:.*/)?(?P<zero3>zero_pp_rank_(?P<rank>\d{1,5})_)?mp_rank_(?P<part>\d{1,5})(?:_\d{1,5})?_model_states\.pt"
)
"""DeepSpeed: the module (ZeRO-0 to 2), or placeholders of it, with ``zero_pp_rank_`` (ZeRO-3)."""
OPTIMIZER_STATES = re.compile(
    r"(?:.*/)?(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d{1,5})_mp_rank_\d{1,5}_optim_states\.pt"
)
WHOLE = re.compile(r"(?:.*/)?(?:[\w.-]+\.distcp|mp_rank_\d{2,5}(?:_\d{3})?/[\w.-]+\.pt)")
"""torch's and Megatron's distributed checkpoints: hashed file by file."""
SHARDED_SAFETENSORS = re.compile(r"(?:model/)?(?!optim)[\w.-]{1,100}\.safetensors")
BESIDE_ADAPTER = re.compile(r"(?!adapter_model|model[-_.]|pytorch_model|optim)[\w-]{1,100}\.safetensors")
"""Fully trained parts beside an adapter, in their own file: ms-swift's ``vit.safetensors``."""

_SINGLE: tuple[tuple[str, CheckpointKind], ...] = (
    ("adapter_model.safetensors", ADAPTER),
    ("lora_adapter/adapter_model.safetensors", ADAPTER),
    ("model.safetensors", FULL),
)
_INDEXED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE_TORCH: tuple[tuple[str, CheckpointKind], ...] = (
    ("adapter_model.bin", ADAPTER),
    ("pytorch_model.bin", FULL),
    ("pytorch_model_fsdp.bin", FULL),
    ("model.pt", FULL),
    ("model.pth", FULL),
)
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file; ``label`` is appended to its tensors' names if several ranks saved the same names, or for a part."""

    name: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class FoundWeights:
    """The files of a checkpoint, before they are read; names are relative to its folder.

    ``index`` maps tensors to files, if there is one. ``below``: the prefix of weights' names, which is removed; other
    tensors are no weights. ``replicas``: each file holds the whole model, and all must agree. ``missing``: one line per
    missing file.
    """

    kind: CheckpointKind
    files: tuple[WeightFile, ...]
    index: str = ""
    below: tuple[str, ...] = ()
    replicas: bool = False
    missing: tuple[str, ...] = ()
    optimizer: tuple[str, ...] = ()

    def plain_name(self, full: str) -> str | None:
        """Return a tensor's name without the prefix of all weights in the file; None if it is no weight."""
        if not self.below:
            return full
        return next((full.removeprefix(start) for start in self.below if full.startswith(start)), None)


def names_in(folder: Path) -> dict[str, os.stat_result]:
    """Return the files of a checkpoint folder and its subfolders that may hold weights, by relative name.

    Raises:
        OSError: the folder can't be listed.
    """
    found: dict[str, os.stat_result] = {}
    inner: list[str] = []
    with os.scandir(folder) as items:
        for item in items:
            if len(found) >= MOST_FILES:
                break
            below = item.is_dir(follow_symlinks=False)
            if below and BELOW.fullmatch(item.name):
                inner.append(item.name)
                continue
            with suppress(OSError):  # a dangling link, or rotation
                found[item.name] = item.stat()
            if below:
                found.update(_named_adapter(folder, item.name))
    for name in inner:
        with suppress(OSError), os.scandir(folder / name) as items:
            found.update((f"{name}/{item.name}", item.stat()) for item in items if item.is_file())
    return found


def _named_adapter(folder: Path, name: str) -> dict[str, os.stat_result]:
    """Return the adapter in a folder of its name; a checkpoint in its run's folder is no such adapter."""
    if name.startswith("checkpoint") or layout_of(name) is not None:
        return {}
    for file in (f"{name}/adapter_model.safetensors", f"{name}/adapter_model.bin"):
        with suppress(OSError):
            return {file: (folder / file).stat()}
    return {}


def choose(names: Collection[str]) -> FoundWeights | None:
    """Return the weight files among these, in the frameworks' loading order; None if there are none.

    An adapter is preferred to a full model next to it, which is then the frozen base; one file to shards; safetensors
    to the same weights by ``torch.save``; and all of these to formats that only their trainer can load.
    """
    optimizer = tuple(sorted(name for name in names if name in _OPTIMIZERS or OPTIMIZER_RANKED.fullmatch(name)))
    found = known_by_name(names) or _others(names)
    if found is None or found.optimizer:
        return found
    states = tuple(sorted(filter(OPTIMIZER_STATES.fullmatch, names)))
    return FoundWeights(
        found.kind, found.files, found.index, found.below, found.replicas, found.missing, optimizer or states
    )


def known_by_name(names: Collection[str]) -> FoundWeights | None:
    """Return the adapter or model under a name that its framework gives only to it."""
    found = _one_file(names, _SINGLE) or _indexed(names) or _one_file(names, _SINGLE_TORCH) or _ranked(names)
    named = _named(names)
    if found is not None and found.kind is ADAPTER:  # the files don't show which of the model's adapters is trained
        return replace(found, files=found.files + _parts(found, names) + named)
    return found or _deepspeed(names) or _replicas(names) or (FoundWeights(ADAPTER, named) if named else None)


def _parts(adapter: FoundWeights, names: Collection[str]) -> tuple[WeightFile, ...]:
    """Return the files of model parts in an adapter's folder; their tensors' names include the file's."""
    folder = adapter.files[0].name.rpartition("/")[0]
    own = {name.rpartition("/")[2]: name for name in names if name.rpartition("/")[0] == folder}
    return tuple(WeightFile(own[name], f"@{name}") for name in sorted(filter(BESIDE_ADAPTER.fullmatch, own)))


def _named(names: Collection[str]) -> tuple[WeightFile, ...]:
    found = (match for match in map(NAMED_ADAPTER.fullmatch, sorted(names)) if match)
    return tuple(WeightFile(match[0], f"@{match['name']}") for match in found)


def _one_file(names: Collection[str], known: tuple[tuple[str, CheckpointKind], ...]) -> FoundWeights | None:
    return next((FoundWeights(kind, (WeightFile(name),)) for name, kind in known if name in names), None)


def _indexed(names: Collection[str]) -> FoundWeights | None:
    for index in _INDEXED:
        ending, start = index.removesuffix(".index.json").rpartition(".")[2], index.partition(".")[0]
        shards = sorted(
            name for name in names if SHARD.fullmatch(name) and name.startswith(f"{start}-") and name.endswith(ending)
        )
        if index in names:
            return FoundWeights(FULL, tuple(map(WeightFile, shards)), index)
        if shards:
            missing = f"{index}: missing although {len(shards)} shards are there"
            return FoundWeights(FULL, tuple(map(WeightFile, shards)), missing=(missing,))
    return None


def _ranked(names: Collection[str]) -> FoundWeights | None:
    """Return one file per rank, of the largest number of ranks if a folder was saved into twice."""
    parts = {(int(match["of"]), int(match["rank"])): match[0] for match in map(RANKED.fullmatch, names) if match}
    if not parts:
        return None
    of = max(count for count, _ in parts)
    ranks = {rank: name for (count, rank), name in sorted(parts.items()) if count == of}
    lost = [rank for rank in range(of) if rank not in ranks]
    missing = [f"model_world_size_{of}_rank_{rank}.pt: the shard of rank {rank} is missing" for rank in lost[:1]]
    return FoundWeights(
        FULL, tuple(WeightFile(name, _label(rank, of)) for rank, name in ranks.items()), missing=tuple(missing)
    )


def _label(rank: int, of: int) -> str:
    return f"@{rank}/{of}" if of > 1 else ""


def _deepspeed(names: Collection[str]) -> FoundWeights | None:
    """Return the module of ZeRO-0 to 2, or ZeRO-3's float32 partitions in the optimizer's files."""
    states = sorted((match for match in map(STATES.fullmatch, names) if match), key=lambda match: match[0])
    if not states:
        return None
    optimizer = tuple(sorted(filter(OPTIMIZER_STATES.fullmatch, names)))
    if not states[0]["zero3"]:
        of = len(states)
        files = tuple(WeightFile(match[0], _label(int(match["part"]), of)) for match in states)
        beside = tuple(match[0] for match in states)  # ZeRO-0 keeps its optimizer there
        return FoundWeights(FULL, files, below=("module.",), optimizer=optimizer or beside)
    of = len(optimizer)
    files = tuple(WeightFile(name, _label(number, of)) for number, name in enumerate(optimizer))
    missing = () if optimizer else (f"{states[0][0]}: placeholders of ZeRO-3, and no file with their weights",)
    return FoundWeights(
        FULL, files, below=("optimizer_state_dict.fp32_flat_groups.",), missing=missing, optimizer=optimizer
    )


def _replicas(names: Collection[str]) -> FoundWeights | None:
    ranks = {int(match["rank"]): match[0] for match in map(REPLICA.fullmatch, names) if match}
    files = tuple(WeightFile(name, _label(rank, len(ranks))) for rank, name in sorted(ranks.items()))
    kind = ADAPTER if files and files[0].name.startswith("adapter") else FULL
    return FoundWeights(kind, files, replicas=True) if files else None


def _others(names: Collection[str]) -> FoundWeights | None:
    """Return safetensors under other names (NeMo's, each with its own tensors), and files hashed as a whole."""
    for pattern in (SHARDED_SAFETENSORS, WHOLE):
        if files := sorted(filter(pattern.fullmatch, names)):
            return FoundWeights(FULL, tuple(map(WeightFile, files)))
    return None
