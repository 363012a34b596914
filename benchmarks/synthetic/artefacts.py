"""Writes what a run saves besides its log: tables of completions and digests of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.synthetic.signals import Floats, Signals, total_of
from grpo_watch.engine.records import (
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    GroupSummary,
    Item,
    TensorDigest,
)

TENSORS = 4
MARKS = 16
"""Texts of a group whose hashes are kept (``GroupSummary.marks``)."""


def table(signals: Signals, batch: int, step: int, seen: float, segment: int) -> CompletionSummary:
    """The dumped table of one generation batch."""
    dumped = _advantages(signals, batch)
    groups = tuple(_group(signals, batch, place, dumped[place]) for place in range(signals.shape.prompts))
    return CompletionSummary("completions.jsonl", step, groups, segment=segment, seen=seen)


def _advantages(signals: Signals, batch: int) -> Floats:
    """As TRL computes them (prompts, group), so many rows off."""
    total = total_of({name: part[batch : batch + 1] for name, part in signals.parts.items()}, signals.weights)[0]
    centred = total - total.mean(axis=1, keepdims=True)
    scaled = signals.settings.get("scale_rewards") != "none"
    right = centred / (total.std(axis=1, ddof=1, keepdims=True) + 1e-4) if scaled else centred
    right[0, 0] *= signals.stretch[batch]
    return np.asarray(np.roll(right.ravel(), int(signals.shift[batch])).reshape(right.shape))


def _marks(signals: Signals, batch: int, place: int, unique: int) -> tuple[int, ...]:
    prompt, again = int(signals.prompt_ids[batch, place]), int(signals.again[batch, place])
    texts = (f"{prompt}.{number}" if number < again else f"{prompt}.{batch}.{number}" for number in range(unique))
    return tuple(crc32(text.encode()) for text in texts)[:MARKS]


def _group(signals: Signals, batch: int, place: int, advantages: Floats) -> GroupSummary:
    pattern = signals.pattern[batch, place].tolist()
    size, unique = len(pattern), len(set(pattern))
    prompt = int(signals.prompt_ids[batch, place])
    return GroupSummary(
        prompt_id=f"p{prompt}",
        size=size,
        pattern=tuple(pattern),
        unique=unique,
        lengths=tuple((4 * signals.lengths[batch, place]).astype(int).tolist()),
        empty=int(signals.empty[batch, place]),
        prompts=int(signals.mixed[batch, place]),
        near_unique=min(unique, int(signals.near[batch, place])),
        judged=size,
        looping=int(signals.looping[batch, place]),
        rewards={name: tuple(part[batch, place].tolist()) for name, part in signals.parts.items()}
        | {"advantage": (None,) * (masked := int(signals.masked[batch])) + tuple(advantages.tolist())[masked:]},
        marks=_marks(signals, batch, place, unique),
        digest=f"{batch}.{place}",
    )


def checkpoints(signals: Signals, step: int, seen: float, segment: int) -> Iterator[Item]:
    """The digests taken after a step (0 is step 1): the trainer's, of two ranks where they differ."""
    shape, version = signals.shape, int(signals.version[step])
    names = [f"layers.{index}.{'lora_B' if shape.adapter else 'weight'}" for index in range(TENSORS)]
    if signals.ranks is None:
        yield _digest(signals, step, seen, segment, {name: f"{name}{version}" for name in names})
    else:
        apart = int(signals.ranks[step])
        own = {f"{name}@{rank}/2": f"{name}{version}{rank * apart}" for name in names for rank in (0, 1)}
        both = tuple((f"{name}@0/2", f"{name}@1/2") for name in names)
        yield _digest(signals, step, seen, segment, own, replicas=both)


def _digest(
    signals: Signals, step: int, seen: float, segment: int, sums: dict[str, str], **other: Any
) -> CheckpointDigest:
    shape, broken = signals.shape, signals.broken_checkpoints
    if signals.base is not None:
        sums = sums | {f"base.{index}.weight": f"base{int(signals.base[step])}" for index in range(TENSORS)}
    tensors = {
        name: TensorDigest(
            "BF16",
            (0,) if broken == "empty" else (8, 8),
            checksum,
            nonfinite=3 if broken == "nan" else 0,
            zero=signals.zero_adapter and "lora_B" in name,
        )
        for name, checksum in sums.items()
    }
    known = {
        "channel": "checkpoints",
        "step": step + 1,
        "path": f"checkpoint-{step + 1}",
        "complete": True,
        "kind": CheckpointKind.ADAPTER if shape.adapter and signals.base is None else CheckpointKind.FULL,
        "problems": ("model.safetensors: cut off",) if broken == "cut" else (),
        "unrelated": (TENSORS, TENSORS) if broken == "other" else (0, TENSORS),
    }
    return CheckpointDigest(tensors=tensors, seen=seen, segment=segment, **{**known, **other})
