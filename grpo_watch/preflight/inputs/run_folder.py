"""Reads the launch of an existing run: its arguments, a wandb or Hydra configuration, or its logged arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from grpo_watch.errors import UsageError
from grpo_watch.preflight.inputs.configurations import kind_of, put_trainer, read_document
from grpo_watch.preflight.inputs.draft import LaunchDraft
from grpo_watch.sources.discovery.discover import ChannelContent, FoundChannel, FoundRun, discover, newest_write
from grpo_watch.sources.files.reading import inside
from grpo_watch.sources.settings.config_files import OF_TRANSFORMERS
from grpo_watch.sources.settings.documents import json_object, mapping_leaves
from grpo_watch.sources.settings.run_config import hydra_folder, read_run_config
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.framing import FileFrame, GrowingFile
from grpo_watch.sources.trackers.tfevents import ARGUMENTS, decode_event
from grpo_watch.sources.trackers.wandb_offline import WandbConfig, WandbHistory, decode_record

MOST_FRAMES = 200
"""Most records of a log that are searched: arguments come before the first step."""
Reads: TypeAlias = Callable[[GrowingFile], Mapping[str, Any]]
ADAPTER = "peft_config"
"""Key that transformers logs to wandb if the model has an adapter."""


def read_logged(run: FoundRun, draft: LaunchDraft) -> bool:
    """Read the arguments that the run's newest attempt logged into the draft; returns whether there were any."""
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
    """Transformers' text ``args``; empty if there is none."""
    for frame in _first(framing.tf_frames(file.read, 0)):
        try:
            texts = decode_event(frame.payload).texts
            found = next((json_object(text) for tag, text in texts.items() if tag in ARGUMENTS), None)
        except ValueError:
            continue  # a damaged record; the arguments may be in another one
        if found is not None:
            return found
    return {}


def _wandb(file: GrowingFile) -> Mapping[str, Any]:
    """The configuration logged before the first row; empty if there is none."""
    found: dict[str, Any] = {}
    if not framing.begins(file.read, framing.WANDB):
        return found
    for frame in _first(framing.block_frames(file.read, 0)):
        try:
            record = decode_record(frame.payload)
        except ValueError:
            continue
        if isinstance(record, WandbConfig):
            found.update(record.update)
        elif isinstance(record, WandbHistory) and found:
            break
    return found


def _first(frames: Iterable[FileFrame]) -> Iterable[FileFrame]:
    return (frame for frame in islice(frames, MOST_FRAMES) if not frame.damage)


def _put(raw: Mapping[str, Any], path: Path, run: FoundRun, draft: LaunchDraft) -> bool:
    """Store the settings of a known framework; returns whether there were any."""
    name = draft.shown(path)
    leaves = mapping_leaves(raw, name)
    kind = kind_of(leaves, name) or ((run.framework or "trl") if raw.keys() >= OF_TRANSFORMERS else "")
    if not kind:
        return False
    draft.name_input(name)
    draft.recorded = True
    if raw.get(ADAPTER):
        draft.peft = True
    put_trainer(leaves, kind, draft)
    return True


KNOWN_FILES = (
    "args.json",
    ".hydra/config.yaml",
    "files/config.yaml",
    "wandb/latest-run/files/config.yaml",
    "config.yaml",
)
"""Files with a run's complete configuration, the most exact first."""


def read_run_folder(folder: Path, draft: LaunchDraft) -> None:
    """Read the configuration of an existing run into the draft; of several runs the most recently written one.

    Raises:
        UsageError: the folder has none, or it can't be read.
    """
    name = draft.shown(folder)
    draft.name_input(name)
    draft.run_folder = folder
    run = _newest(folder, name, draft)
    try:
        places = list(dict.fromkeys(_places(folder, run)))
        known = _known(folder, places)
    except OSError as error:
        raise UsageError(f"{name}: can't be listed: {error.strerror or error}") from None
    draft.folders += places
    if known is not None:
        read_document(known, draft)
    elif run is not None and read_logged(run, draft):
        for place in places:
            _release(place, draft)
    if not draft.settings:
        script = next((file.name for file in sorted(folder.glob("*.sh"))), "")
        other = f"; name the launch script: {name}/{script}" if script else ""
        raise UsageError(
            f"{name}: contains no run configuration (args.json, a wandb or Hydra config, logged arguments){other}"
        )


def _newest(folder: Path, name: str, draft: LaunchDraft) -> FoundRun | None:
    """The most recently written run in the folder; a lone log file, which has no arguments next to it, comes last."""
    found = discover(folder)
    newest = max(found, key=lambda run: (not run.files, newest_write(run), run.name), default=None)
    if newest is not None and len(found) > 1:
        draft.note(f"{name}: holds {len(found)} runs; {newest.name}, written last, is judged: name another's folder")
    return newest


def _places(folder: Path, run: FoundRun | None) -> Iterator[Path]:
    """Folders that may hold the run's configuration, those of the newest attempt first and the deepest of them."""
    if run is None:
        yield folder
        yield from sorted((child for child in folder.iterdir() if child.is_dir()), reverse=True)
        return
    newest = sorted(run.channels, key=lambda each: (-each.segment, -len(each.path.parts), each.name))
    yield from (channel.path for channel in newest if channel.what is ChannelContent.RUN_CONFIG)
    yield run.root
    # wandb's client lists the installed packages there
    yield from (channel.path.parent / "files" for channel in newest if channel.what is ChannelContent.WANDB_OFFLINE)


def _known(folder: Path, places: Sequence[Path]) -> Path | None:
    """The file with the complete configuration; a link out of the folder is ignored."""
    for place in places:
        hydra = hydra_folder(place) if place.is_dir() else None
        named = [place / known for known in KNOWN_FILES] + ([hydra / "config.yaml"] if hydra is not None else [])
        found = next((file for file in named if file.is_file() and inside(file, (folder,))), None)
        if found is not None:
            return found
    return None


def _release(place: Path, draft: LaunchDraft) -> None:
    """Add the version and the adapter from a model card and a checkpoint to logged arguments."""
    for config in read_run_config(place):
        if config.version is not None and draft.version is None:
            draft.version, draft.version_origin = config.version, draft.shown(place / "README.md")
        if "adapter" in config.settings and draft.peft is None:
            draft.peft = config.settings["adapter"].value is True
