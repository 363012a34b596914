"""Lists a run's checkpoint folders with the evidence that each is complete; reads no weights."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.frameworks.framework import CheckpointLayout
from grpo_watch.frameworks.framework_tables import STATE, layout_of, layouts
from grpo_watch.sources.checkpoints.tensor_layout import LARGEST_POINTER, pointer
from grpo_watch.sources.checkpoints.weight_files import choose, names_in
from grpo_watch.sources.files.reading import inside, opened

SENTINEL = "checkpoint-is-incomplete.txt"
"""Present while a save of transformers ≥ 5.0 is unfinished."""
ADAPTER = "lora_adapter"
"""Folder of a LoRA run's adapter in verl's folder of shards."""
SMALL_MARKER = 16_000_000
"""Bytes of a marker up to which it is parsed whole if its end is ambiguous."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """One folder as listed. ``weights`` are (name, size, mtime in ns) of its weight files, sorted by name.

    ``marker`` is the mtime in ns of the file that frameworks write last (0: none); ``state`` is that file if its
    content shows whether it is whole. ``unfinished``: the folder has the sentinel of an interrupted save, or the
    tracker next to it has not reached its step; once it has, ``marker`` is the tracker's mtime.
    """

    step: int
    path: Path
    weights: tuple[tuple[str, int, int], ...]
    marker: int = 0
    unfinished: bool = False
    state: Path | None = None

    @property
    def newest(self) -> int:
        """Newest modification time of the weight files, in nanoseconds."""
        return max(modified for _, _, modified in self.weights)


@dataclass(slots=True)
class Listing:
    """The checkpoints of a folder that hold weights, and one line per link refused.

    ``not_read``: checkpoints without weights (a clone), or in an unsupported format, which is no fault of the run.
    """

    folders: list[CheckpointFolder] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)


def list_checkpoints(folder: Path, roots: Sequence[Path]) -> Listing:
    """Return the checkpoint folders directly under ``folder``; none if it does not exist.

    Raises:
        OSError: the folder can't be listed.
    """
    listing = Listing()
    trackers = {name: _tracker(folder / name, roots) for layout in layouts() for name in layout.trackers}
    for path, layout, step in _named(folder):
        if path.is_symlink():
            if not inside(path, roots):
                listing.refused.append(f"{path}: a link leads out of the run folder; list its target under allow_roots")
                continue
            target = Path(os.path.realpath(path))
            if target.parent == Path(os.path.realpath(folder)) and layout_of(target.name) is not None:
                continue
        with suppress(OSError):  # rotation deletes old checkpoints at any time
            _add(listing, path, layout, step, (trackers, roots))
    return listing


def marker_is_whole(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a ``trainer_state.json`` was written to its end.

    transformers indents it, so only the very last brace begins a line; other writers' files are parsed.
    """
    try:
        with opened(path, roots) as descriptor:
            size = os.fstat(descriptor).st_size
            if os.pread(descriptor, 16, max(0, size - 16)).rstrip().endswith(b"\n}"):
                return os.pread(descriptor, 1, 0) == b"{"
            return size <= SMALL_MARKER and isinstance(json.loads(os.pread(descriptor, size, 0)), dict)
    except (OSError, SourceError, ValueError, RecursionError):
        return False


def _named(folder: Path) -> list[tuple[Path, CheckpointLayout, int]]:
    try:
        with os.scandir(folder) as items:
            found = [(Path(item.path), layout_of(item.name)) for item in items]
    except FileNotFoundError:
        return []
    return sorted(((path, *known) for path, known in found if known is not None), key=lambda one: one[0])


def _add(
    listing: Listing,
    path: Path,
    layout: CheckpointLayout,
    step: int,
    around: tuple[Mapping[str, tuple[int, int] | None], Sequence[Path]],
) -> None:
    for inner in layout.within:
        found = _weights_in(path / inner)
        if found and inner.endswith(f"/{ADAPTER}"):  # its base lies beside it
            inner = inner.removesuffix(f"/{ADAPTER}")  # noqa: PLW2901
            found = _weights_in(path / inner)
        sizes = {name: size for name, size, _ in found}
        if why := why_absent(path / inner, sizes, sizes, around[1]):
            listing.not_read.append(f"{path.name}: its weights are not here: {why}")
            return
        if found:
            listing.folders.append(_completed(CheckpointFolder(step, path / inner, found), path, layout, around[0]))
            return
    if any((path / name.partition("/")[0]).is_dir() for name in layout.within if name):
        listing.not_read.append(f"{path.name}: not read yet: no weights in a form that is known")


def _completed(
    found: CheckpointFolder, path: Path, layout: CheckpointLayout, trackers: Mapping[str, tuple[int, int] | None]
) -> CheckpointFolder:
    """Return the folder updated by its markers and trackers."""
    if (path / SENTINEL).exists():
        found = replace(found, unfinished=True)
    for name in layout.markers:
        with suppress(OSError):
            written = (path / name).stat().st_mtime_ns
            return replace(found, marker=written, state=path / name if name == STATE else None)
    known = next((tracker for name in layout.trackers if (tracker := trackers[name]) is not None), None)
    if known is None:
        return found
    newest, written = known
    if newest < found.step:
        return replace(found, unfinished=True)
    return replace(found, marker=written if newest == found.step else found.newest)


def _tracker(path: Path, roots: Sequence[Path]) -> tuple[int, int] | None:
    """Return step and mtime in ns of a tracker (``20``, or ``global_step20``); None without a readable one."""
    try:
        with opened(path, roots) as descriptor:
            text = os.pread(descriptor, 40, 0).strip().removeprefix(b"global_step")
            return (int(text), os.fstat(descriptor).st_mtime_ns) if text.isdigit() else None
    except (OSError, SourceError):
        return None


def _weights_in(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and mtime in ns of the weight files, sorted; empty if there are none."""
    try:
        names = names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    chosen = choose(names)
    if chosen is None:
        return ()
    files = {file.name for file in chosen.files} | ({chosen.index} & names.keys())
    return tuple(sorted((name, names[name].st_size, names[name].st_mtime_ns) for name in files))


INDEX = ".index.json"


def why_absent(folder: Path, sizes: Mapping[str, int], wanted: Collection[str], roots: Sequence[Path]) -> str:
    """Return why all of a checkpoint's weight files are absent; empty if at least one is present.

    Args:
        folder: the checkpoint's folder.
        sizes: bytes of the files in it, by relative name.
        wanted: the chosen weight files, with their index.
        roots: folders that links may not lead out of.
    """
    files = [name for name in wanted if not name.endswith(INDEX)]
    if not files:
        return "the index names shards of which none is here" if wanted else ""
    if any(sizes[name] > LARGEST_POINTER for name in files):
        return ""
    found = [_stands_in(folder / name, roots) for name in files]
    return f"each weight file is {found[0]}" if all(found) else ""


def _stands_in(path: Path, roots: Sequence[Path]) -> str:
    try:
        with opened(path, roots) as descriptor:
            return pointer(os.pread(descriptor, LARGEST_POINTER, 0))
    except (OSError, SourceError):
        return ""
