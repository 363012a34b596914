"""Unsloth: TRL's rules over a batch that its patch may have changed."""

from __future__ import annotations

from dataclasses import replace

from grpo_watch.frameworks.launch_batch import LaunchBatch
from grpo_watch.frameworks.trl.launch import RULES


def _patched(batch: LaunchBatch) -> LaunchBatch:
    """Unsloth replaces a per-device batch that does not fit by the group's size, and only prints that it did."""
    if batch.global_batch * batch.accumulation % batch.group == 0:
        return batch
    return replace(batch, per_device=batch.group, configured_per_device=batch.per_device)


LAUNCHES = {"unsloth": replace(RULES, patched=_patched)}
