"""Turns two checkpoints into what changed inside each tensor that both hold: share of elements and relative change."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_watch.engine.records import CheckpointKind
from grpo_watch.sources.checkpoints.open_weights import opened
from grpo_watch.sources.checkpoints.tensor_layout import read_layout
from grpo_watch.sources.checkpoints.weight_files import WHOLE, FoundWeights, WeightFile, choose, names_in
from grpo_watch.sources.checkpoints.weights import files_of_index

if TYPE_CHECKING:
    from grpo_watch.sources.checkpoints.elements import ElementChange
    from grpo_watch.sources.checkpoints.extents import Extent
    from grpo_watch.sources.checkpoints.file_reader import FileReader
    from grpo_watch.sources.files.throttle import Throttle


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """One tensor that both checkpoints hold in the same form."""

    name: str
    dtype: str
    change: ElementChange


def compare_elements(first: Path, second: Path, throttle: Throttle | None = None) -> list[ComparedTensor]:
    """How the tensors that two checkpoints (folders or files) share changed, by name; not those of another shape.

    Links inside a folder may not lead out of it. Tensors are read in the order of the first checkpoint's files.

    Raises:
        SourceError, TensorFileError: a file can't be read any more, or changed.
        FileNotFoundError: a file vanished.
    """
    from grpo_watch.sources.checkpoints.elements import compare_tensors  # noqa: PLC0415  numpy stays out of the daemon

    with closing(_Side(first, throttle)) as one, closing(_Side(second, throttle)) as other:
        shared = sorted(one.placed.keys() & other.placed.keys(), key=lambda name: _place(*one.placed[name]))
        compared: list[ComparedTensor] = []
        for name in shared:
            (path, before), (later, after) = one.placed[name], other.placed[name]
            change = compare_tensors(one.reader(path), before, other.reader(later), after)
            if change is not None:
                compared.append(ComparedTensor(name, before.dtype, change))
    return sorted(compared, key=lambda one: one.name)


def _place(path: Path, extent: Extent) -> tuple[str, int]:
    return path.name, extent.start


class _Side:
    """One of two checkpoints: where its tensors lie, and a reader of one of its files at a time (there may be many)."""

    def __init__(self, path: Path, throttle: Throttle | None) -> None:
        self._roots, self._throttle = _roots(path), throttle
        self.placed = locate(path, self._roots)
        self._opened, self._path = ExitStack(), Path()

    def close(self) -> None:
        """Free the file handle."""
        self._opened.close()

    def reader(self, path: Path) -> FileReader:
        """A reader of this file; that of another one is not valid any more."""
        from grpo_watch.sources.checkpoints.file_reader import FileReader  # noqa: PLC0415  with numpy
        from grpo_watch.sources.checkpoints.page_cache import is_uncached  # noqa: PLC0415

        if path != self._path:
            self._opened.close()
            descriptor = self._opened.enter_context(opened(path, self._roots))
            take = None if self._throttle is None else self._throttle.take
            drops = is_uncached(descriptor, os.fstat(descriptor).st_size)
            self._reader, self._path = FileReader(descriptor, path.name, take, drops=drops), path
            self._opened.callback(self._reader.close)
        return self._reader


def _roots(path: Path) -> tuple[Path, ...]:
    return (path if path.is_dir() else path.parent,)


def locate(path: Path, roots: Sequence[Path]) -> Mapping[str, tuple[Path, Extent]]:
    """Where each tensor of a checkpoint folder or weight file lies, by the name that its digest has."""
    if not path.is_dir():
        folder, found = path.parent, FoundWeights(CheckpointKind.FULL, (WeightFile(path.name),))
        files: Sequence[WeightFile] = found.files
    else:
        names: Mapping[str, os.stat_result] = names_in(path)
        chosen = choose(names)
        if chosen is None:
            return {}
        folder, found = path, chosen
        files = files_of_index(folder, found, names, roots)[0] if found.index else found.files
    placed: dict[str, tuple[Path, Extent]] = {}
    for file in files:
        with opened(folder / file.name, roots) as descriptor:
            for extent in () if WHOLE.fullmatch(file.name) else read_layout(descriptor, file.name):
                plain = found.plain_name(extent.name)
                if plain is not None:
                    placed[plain + file.label] = folder / file.name, extent
    return placed
