"""Turns the arguments that a run logged to TensorBoard or wandb into settings of a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from grpo_watch.preflight.inputs.configurations import kind_of, put_trainer
from grpo_watch.preflight.inputs.draft import LaunchDraft
from grpo_watch.preflight.inputs.leaves import mapping_leaves
from grpo_watch.sources.discovery.discover import ChannelContent, FoundChannel, FoundRun
from grpo_watch.sources.files.growing_file import FileFrame, GrowingFile
from grpo_watch.sources.settings.config_files import json_object
from grpo_watch.sources.settings.logged_config import OF_TRANSFORMERS
from grpo_watch.sources.trackers import tf_event, tfrecord, wandb_log, wandb_record
from grpo_watch.sources.trackers.tfevents import ARGUMENTS

MOST_FRAMES = 200
"""This many first records of a log are looked at: arguments come before the first step."""
Reads: TypeAlias = Callable[[GrowingFile], Mapping[str, Any]]
ADAPTER = "peft_config"
"""transformers logs it to wandb where the model has an adapter."""


def read_logged(run: FoundRun, draft: LaunchDraft) -> bool:
    """Whether the run's newest attempt logged its arguments; they are then in the draft."""
    for what, read in ((ChannelContent.TFEVENTS, _tensorboard), (ChannelContent.WANDB_OFFLINE, _wandb)):
        channels = [channel for channel in run.channels if channel.what is what]
        for channel in sorted(channels, key=lambda each: (each.segment, each.name), reverse=True):
            if (raw := _opened(channel, run, read)) and _put(raw, channel.path, run, draft):
                return True
    return False


def _opened(channel: FoundChannel, run: FoundRun, read: Reads) -> Mapping[str, Any]:
    file = GrowingFile(channel.path, run.roots)
    try:
        return read(file) if file.ready(0) else {}
    finally:
        file.close()


def _tensorboard(file: GrowingFile) -> Mapping[str, Any]:
    """Transformers' text ``args``; empty where there is none."""
    for frame in _first(tfrecord.frames(file.read, 0)):
        try:
            texts = tf_event.decode(frame.payload).texts
            found = next((json_object(text) for tag, text in texts.items() if tag in ARGUMENTS), None)
        except ValueError:
            continue  # a damaged record says nothing; the arguments may be in another one
        if found is not None:
            return found
    return {}


def _wandb(file: GrowingFile) -> Mapping[str, Any]:
    """What was configured before the first row; empty where nothing was."""
    found: dict[str, Any] = {}
    if not wandb_log.is_one(file.read):
        return found
    for frame in _first(wandb_log.frames(file.read, 0)):
        try:
            record = wandb_record.decode(frame.payload)
        except ValueError:
            continue
        if isinstance(record, wandb_record.WandbConfig):
            found.update(record.update)
        elif isinstance(record, wandb_record.WandbHistory) and found:
            break
    return found


def _first(frames: Iterable[FileFrame]) -> Iterable[FileFrame]:
    return (frame for frame in islice(frames, MOST_FRAMES) if not frame.damage)


def _put(raw: Mapping[str, Any], path: Path, run: FoundRun, draft: LaunchDraft) -> bool:
    """Settings of a framework that is known; whether there were any."""
    name = draft.shown(path)
    leaves = mapping_leaves(raw, name)
    kind = kind_of(leaves, name) or ((run.framework or "trl") if raw.keys() >= OF_TRANSFORMERS else "")
    if not kind:
        return False
    draft.saw(name)
    draft.recorded = True
    if raw.get(ADAPTER):
        draft.peft = True
    put_trainer(leaves, kind, draft)
    return True
