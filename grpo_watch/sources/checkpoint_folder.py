"""Lists the checkpoint folders of a run with what decides whether each is complete; reads no weights."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.sources.files import inside
from grpo_watch.sources.weights import INDEX, PICKLED, opened

CHECKPOINT = re.compile(r"(?:checkpoint-|global_step_)(\d{1,12})")
"""``checkpoint-N`` of transformers and ms-swift, ``global_step_N`` of verl."""
OF_VERL = "global_step_"
WITHIN = ("actor/lora_adapter", "actor/huggingface", "actor/model/huggingface")
"""Where verl keeps weights as safetensors: the adapter, and the model if ``checkpoint.save_contents`` has hf_model."""
TRACKER = "latest_checkpointed_iteration.txt"
"""Beside verl's folders: the newest step whose save was completed, one number, written last."""
WEIGHTS = re.compile(rf"(?:adapter_model|model)(?:-\d{{1,9}}-of-\d{{1,9}})?\.safetensors|{re.escape(INDEX)}")
MARKER, SENTINEL = "trainer_state.json", "checkpoint-is-incomplete.txt"
SMALL_MARKER = 16_000_000
"""Bytes of a marker that is parsed whole when its end does not tell."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """One folder as listed. ``weights`` are (name, size, mtime in ns) of its weight files, sorted by name.

    ``marker`` is the mtime in ns of its ``trainer_state.json`` (0: none), ``unfinished`` whether the sentinel of an
    interrupted save lies there (transformers ≥ 5.0). ``tracked``: verl's tracker beside it says that it is complete
    (``marker`` is then the tracker's mtime), or not (``unfinished``).
    """

    step: int
    path: Path
    weights: tuple[tuple[str, int, int], ...]
    marker: int = 0
    unfinished: bool = False
    tracked: bool = False

    @property
    def newest(self) -> int:
        """Newest modification time of the weight files, in nanoseconds."""
        return max(modified for _, _, modified in self.weights)


@dataclass(slots=True)
class Listing:
    """The checkpoints of a folder that hold weights; and one line per link refused or format not understood.

    ``not_read``: in a format that is read nowhere yet, which is no fault of the run.
    """

    folders: list[CheckpointFolder] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)


def list_checkpoints(folder: Path, roots: Sequence[Path]) -> Listing:
    """The checkpoint folders directly under ``folder``. A folder that does not exist has none.

    Raises:
        OSError: the folder can't be listed.
    """
    listing = Listing()
    tracker = _tracker(folder / TRACKER, roots)
    for path, step in _named(folder):
        if path.is_symlink():
            if not inside(path, roots):
                listing.refused.append(f"{path}: a link leads out of the run folder; list its target under allow_roots")
                continue
            target = Path(os.path.realpath(path))
            if target.parent == Path(os.path.realpath(folder)) and CHECKPOINT.fullmatch(target.name):
                continue
        try:
            if path.name.startswith(OF_VERL):
                _add_of_verl(listing, path, step, tracker)
            else:
                _add(listing, path, step)
        except OSError:
            continue  # rotation deletes old checkpoints at any time
    return listing


def marker_is_whole(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a ``trainer_state.json`` was written to its end.

    transformers writes it with an indent, so that only the very last brace stands at the beginning of a line; other
    writers' are parsed.
    """
    try:
        with opened(path, roots) as descriptor:
            size = os.fstat(descriptor).st_size
            if os.pread(descriptor, 16, max(0, size - 16)).rstrip().endswith(b"\n}"):
                return os.pread(descriptor, 1, 0) == b"{"
            return size <= SMALL_MARKER and isinstance(json.loads(os.pread(descriptor, size, 0)), dict)
    except (OSError, SourceError, ValueError, RecursionError):
        return False


def _named(folder: Path) -> list[tuple[Path, int]]:
    try:
        with os.scandir(folder) as items:
            return sorted(
                (Path(item.path), int(found[1])) for item in items if (found := CHECKPOINT.fullmatch(item.name))
            )
    except FileNotFoundError:
        return []


def _add(listing: Listing, path: Path, step: int) -> None:
    weights: list[tuple[str, int, int]] = []
    marker, unfinished, pickled = 0, False, False
    if not path.is_dir():
        return
    with os.scandir(path) as items:
        for item in items:
            if WEIGHTS.fullmatch(item.name):
                info = item.stat()
                weights.append((item.name, info.st_size, info.st_mtime_ns))
            elif item.name == MARKER:
                marker = item.stat().st_mtime_ns
            unfinished = unfinished or item.name == SENTINEL
            pickled = pickled or PICKLED.fullmatch(item.name) is not None
    if weights:
        listing.folders.append(CheckpointFolder(step, path, tuple(sorted(weights)), marker, unfinished))
    elif pickled:
        listing.not_understood.append(f"{path}: not understood yet (safetensors only); save as safetensors")


def _tracker(path: Path, roots: Sequence[Path]) -> tuple[int, int] | None:
    """Step and mtime in ns of verl's tracker; None where there is none that can be read."""
    try:
        with opened(path, roots) as descriptor:
            text = os.pread(descriptor, 20, 0).strip()
            return (int(text), os.fstat(descriptor).st_mtime_ns) if text.isdigit() else None
    except (OSError, SourceError):
        return None


def _add_of_verl(listing: Listing, path: Path, step: int, tracker: tuple[int, int] | None) -> None:
    for inner in WITHIN:
        found = _weights_in(path / inner)
        if not found:
            continue
        newest = max(modified for _, _, modified in found)
        done = tracker is not None and tracker[0] >= step
        written = 0 if tracker is None or not done else tracker[1] if tracker[0] == step else newest
        unfinished = tracker is not None and not done
        listing.folders.append(CheckpointFolder(step, path / inner, found, written, unfinished, done))
        return
    if (path / "actor").is_dir():  # a deleted checkpoint leaves its folder without this one
        listing.not_read.append(
            f"{path.name}: PyTorch shards are not read yet; add hf_model to checkpoint.save_contents for safetensors"
        )
    elif (path / "policy").is_dir():  # SkyRL
        listing.not_read.append(f"{path.name}: not read yet: no safetensors under {', '.join(WITHIN)}")


def _weights_in(folder: Path) -> tuple[tuple[str, int, int], ...]:
    try:
        with os.scandir(folder) as items:
            held = [(item.name, item.stat()) for item in items if WEIGHTS.fullmatch(item.name)]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted((name, info.st_size, info.st_mtime_ns) for name, info in held))
