"""Turns two checkpoints into what changed inside each tensor that both hold: share of elements and relative change."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_watch.core.records import CheckpointKind
from grpo_watch.extract.layout import read_layout
from grpo_watch.sources.opened import opened
from grpo_watch.sources.weight_files import Found, WeightFile, choose, names_in
from grpo_watch.sources.weights import files_of_index

if TYPE_CHECKING:
    from grpo_watch.extract.elements import Change
    from grpo_watch.extract.extents import Extent


@dataclass(frozen=True, slots=True)
class Compared:
    """One tensor that both checkpoints hold in the same form."""

    name: str
    dtype: str
    change: Change


def compare_elements(first: Path, second: Path) -> list[Compared]:
    """How the tensors that two checkpoints (folders or files) share changed, by name; not those of another shape.

    Links inside a folder may not lead out of it.

    Raises:
        SourceError, TensorFileError: a file can't be read any more, or changed.
        FileNotFoundError: a file vanished.
    """
    from grpo_watch.extract.elements import compare_tensors  # noqa: PLC0415  numpy stays out of the daemon
    from grpo_watch.extract.file_reader import FileReader  # noqa: PLC0415

    sides = [(locate(path, _roots(path)), _roots(path)) for path in (first, second)]
    compared: list[Compared] = []
    with ExitStack() as stack:
        readers: dict[tuple[int, Path], FileReader] = {}

        def reader(side: int, path: Path) -> FileReader:
            if (side, path) not in readers:
                descriptor = stack.enter_context(opened(path, sides[side][1]))
                readers[side, path] = FileReader(descriptor, path.name)
            return readers[side, path]

        for name in sorted(sides[0][0].keys() & sides[1][0].keys()):
            (path, before), (other, after) = sides[0][0][name], sides[1][0][name]
            change = compare_tensors(reader(0, path), before, reader(1, other), after)
            if change is not None:
                compared.append(Compared(name, before.dtype, change))
    return compared


def _roots(path: Path) -> tuple[Path, ...]:
    return (path if path.is_dir() else path.parent,)


def locate(path: Path, roots: Sequence[Path]) -> Mapping[str, tuple[Path, Extent]]:
    """Where each tensor of a checkpoint folder or weight file lies, by the name that its digest has."""
    if not path.is_dir():
        folder, found = path.parent, Found(CheckpointKind.FULL, (WeightFile(path.name),))
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
            for extent in read_layout(descriptor, file.name):
                plain = found.plain_name(extent.name)
                if plain is not None:
                    placed[plain + file.label] = folder / file.name, extent
    return placed
