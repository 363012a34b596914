"""Writes what a run saves besides its log: tables of completions and digests of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.synthetic.signals import Signals
from grpo_watch.core.records import (
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    GroupSummary,
    Item,
    TensorDigest,
)

TENSORS = 4


def table(signals: Signals, batch: int, step: int, seen: float, segment: int) -> CompletionSummary:
    """The dumped table of one generation batch."""
    groups = tuple(_group(signals, batch, place) for place in range(signals.shape.prompts))
    return CompletionSummary("completions.jsonl", step, groups, segment=segment, seen=seen)


def _group(signals: Signals, batch: int, place: int) -> GroupSummary:
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
        rewards={name: tuple(part[batch, place].tolist()) for name, part in signals.parts.items()},
        digest=f"{batch}.{place}",
    )


def checkpoints(signals: Signals, step: int, seen: float, segment: int) -> Iterator[Item]:
    """The digests taken after a step (0 is step 1): the trainer's, of two ranks, of the engine."""
    shape, version = signals.shape, int(signals.version[step])
    names = [f"layers.{index}.{'lora_B' if shape.adapter else 'weight'}" for index in range(TENSORS)]
    yield _digest(signals, step, seen, segment, {name: f"{name}{version}" for name in names})
    if signals.ranks is not None:
        for rank in (0, 1):
            own = {name: f"{name}{version}{rank * int(signals.ranks[step])}" for name in names}
            yield _digest(signals, step, seen, segment, own, rank=rank)
    if signals.engine is not None:
        own = {name: f"{name}{int(signals.engine[step])}" for name in names}
        yield _digest(signals, step, seen, segment, own, kind=CheckpointKind.ROLLOUT_ENGINE)


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
    }
    return CheckpointDigest(tensors=tensors, seen=seen, segment=segment, **{**known, **other})
