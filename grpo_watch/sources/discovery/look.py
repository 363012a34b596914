"""Lists folder trees within bounds, and remembers the files and folders that the last look depended on.

The next look costs one ``stat`` per folder and file if nothing changed.
"""

from __future__ import annotations

import glob
import os
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import Stamp, lacking, stamp
from grpo_watch.frameworks.dump_formats import parquet_dump
from grpo_watch.frameworks.framework_tables import STATE, layout_of, layouts
from grpo_watch.sources.completions.rollout_dumps import is_step_folder, may_be_dump
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.sniff import SniffedFile
from grpo_watch.sources.files.decompress import WINDOW
from grpo_watch.sources.files.reading import inside, real_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from grpo_watch.frameworks.framework import CheckpointLayout

VERSION_FOLDER = re.compile(r"v(\d{1,6})-(\d{8}-\d{6})")
"""A folder that each start of an ms-swift job makes."""
MAX_DEPTH = 6
MAX_ENTRIES = 20_000

MOST_DUMPS = 20
"""Most possible rollout dumps of a folder that are opened; there is one per step."""
LEADS_OUT = "a link leads out of the folder"
LINKED_OUT = frozenset({"debug-core.log"})
"""Links out of the folder in every run of wandb's client, to a log of its own."""
TABLES = ("media", "table")
SKIPPED = frozenset({"node_modules", "__pycache__", "media", "artifacts", "site-packages", "venv"})


class WalkedFolder(Struct):
    """One listed folder; ``checkpoints`` and ``parquet`` name content that was not descended into.

    ``parquet``: the framework whose dumps it holds.

    ``states``: the checkpoints hold a ``trainer_state.json``; ``steps``: it has folders per step: of checkpoints or of
    other data written at each step.
    """

    path: Path
    files: list[Path] = field(default_factory=list)
    folders: list[WalkedFolder] = field(default_factory=list)
    checkpoints: bool = False
    parquet: str = ""
    states: bool = False
    steps: bool = False


class Walk:
    """One bounded walk under ``root``; ``problems`` collects unlistable places, one line each.

    ``enter`` is called with each folder before it is listed or opened.
    """

    def __init__(
        self, root: Path, allow_roots: Sequence[Path] = (), enter: Callable[[Path], object] = lambda _: None
    ) -> None:
        self._roots, self._enter = (root, *allow_roots), enter
        self._left = MAX_ENTRIES
        self.problems: list[tuple[Path, str]] = []

    def folder(self, path: Path, depth: int = 0) -> WalkedFolder:
        """Return the folder and its content, names sorted; unreadable or cut-off parts are in ``problems``."""
        listed = WalkedFolder(path)
        for entry, here in self._entries(path):
            if entry.name.startswith(".") or self._repeats(entry, here) or not self._stays_inside(entry, here):
                continue
            if _is_folder(entry):
                self._add_folder(listed, entry.name, here, depth)
            elif (dump := parquet_dump(entry.name)) is not None:
                listed.parquet = dump[0]
            else:
                listed.files.append(here)
        return listed

    def _add_folder(self, listed: WalkedFolder, name: str, path: Path, depth: int) -> None:
        known = layout_of(name)
        layout = known[0] if known is not None else None
        if layout is not None and not layout.holds:
            listed.checkpoints = True
            listed.states = listed.states or STATE in layout.markers
        elif name in SKIPPED or any(one.unfinished and one.unfinished.fullmatch(name) for one in layouts()):
            if name == TABLES[0]:  # it holds wandb's tables
                self._enter(path)
                self._enter(path / TABLES[1])
        elif layout is not None and (listed.steps or self._is_step(path, layout)):
            listed.steps = True
            listed.checkpoints = listed.checkpoints or path.parent.name not in layout.not_below
        elif is_step_folder(name) and len(listed.folders) >= MOST_DUMPS:
            return  # one per step: the first ones suffice
        elif depth + 1 > MAX_DEPTH:
            self.problems.append((path, f"not searched: deeper than {MAX_DEPTH} folders; name it directly"))
        else:
            listed.folders.append(self.folder(path, depth + 1))

    def _is_step(self, path: Path, layout: CheckpointLayout) -> bool:
        """Whether the path is a step's folder; only the first sibling is checked."""
        self._enter(path)
        try:
            with os.scandir(path) as entries:
                names = {entry.name for entry, _ in zip(entries, range(MOST_DUMPS), strict=False)}
        except OSError as error:
            if lacking(error):
                raise
            return False
        return not layout.holds.isdisjoint(names)

    def _entries(self, path: Path) -> list[tuple[os.DirEntry[str], Path]]:
        found: list[tuple[os.DirEntry[str], Path]] = []
        tables = dumps = 0
        self._enter(path)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    here = Path(entry.path)
                    table, dump = entry.name.startswith("completions_"), may_be_dump(here)
                    tables, dumps = tables + table, dumps + dump
                    if (table and tables > 1) or (dump and dumps > MOST_DUMPS):
                        continue  # one file per step: the first ones suffice
                    if self._left <= 0:
                        self.problems.append((path, f"search ended after {MAX_ENTRIES} entries; name the run's folder"))
                        break
                    self._left -= 1
                    found.append((entry, here))
        except OSError as error:
            if lacking(error):
                raise
            self.problems.append((path, f"can't be listed: {error.strerror or error}"))
        return sorted(found, key=lambda one: one[0].name)

    def _repeats(self, entry: os.DirEntry[str], path: Path) -> bool:
        """Whether the entry links to a place that the walk lists anyway (``last-checkpoint``, ``latest.log``)."""
        if not entry.is_symlink() or not inside(path, self._roots[:1]):
            return False
        below = real_path(path).relative_to(real_path(self._roots[0])).parts
        return _is_folder(entry) or not any(name.startswith(".") or name in SKIPPED for name in below[:-1])

    def _stays_inside(self, entry: os.DirEntry[str], path: Path) -> bool:
        if not entry.is_symlink() or inside(path, self._roots):
            return True
        if entry.name in LINKED_OUT:
            return False
        self.problems.append((path, f"{LEADS_OUT}; list its target under allow_roots to read it"))
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


MOST_CHEAP = 10
"""One look in this many is a full one: the other inputs of a look (links, times of rotated logs) change seldom."""
LOGS = frozenset({ChannelContent.CONSOLE, ChannelContent.JSONL})
"""Contents that grow without changing kind once their beginning is known …"""
GROW = frozenset(
    {
        ChannelContent.TFEVENTS,
        ChannelContent.COMPLETIONS_JSONL,
        ChannelContent.COMPLETION_DUMPS,
        ChannelContent.ROLLOUT_SUMMARIES,
        ChannelContent.PROBE,
    }
)
"""… and those that always do; others are split into runs by their content."""

State: TypeAlias = "Stamp | None"


class Look:
    """The files and folders of the last look; the walk calls ``enter`` with each folder before it is listed."""

    def __init__(self) -> None:
        self.watch: Callable[[Path], object] = lambda _: None
        """Called with each folder before it is listed."""
        self.watched: Callable[[], object] = lambda: None
        """Called once all folders of a look are listed."""
        self._listed: dict[Path, tuple[State, bool]] = {}
        """Folders and files, and whether they may grow without changing the set of runs."""
        self._places: dict[Path, list[Path]] = {}
        self._growing: frozenset[Path] = frozenset()
        self._confirmed = False
        self._cheap = 0

    def begin(self) -> None:
        """Begin a full look."""
        self._before = (self._listed, self._places)
        self._listed, self._places, self._cheap = {}, {}, 0

    def end(self) -> None:
        """End the look. Time stamps may be as coarse as the time between two changes, so two looks must agree."""
        before, places = self._before
        apart = _with_versions(self._listed)
        if apart:
            self._listed = {
                path: (state, grows and apart.isdisjoint(path.parents)) for path, (state, grows) in self._listed.items()
            }
        same = (places, before.keys()) == (self._places, self._listed.keys())
        self._confirmed = same and all(_is_as(self._listed[path][0], *known) for path, known in before.items())
        self._growing = frozenset(path for path, (_, grows) in self._listed.items() if grows)
        self.watched()

    def note_place(self, path: Path) -> None:
        """Note a path that the user named."""
        self._places[path] = expand(path)
        if not path.is_dir():
            plain = takewhile(lambda part: not glob.has_magic(part), path.parent.parts)
            self.enter(Path(*plain))

    def enter(self, folder: Path) -> None:
        """Note a folder that is about to be listed."""
        self.watch(folder)
        self._listed[folder] = stamp(folder), False

    def note(self, path: Path, found: SniffedFile) -> None:
        """Note the result of sniffing a file."""
        state = stamp(path)
        known = state is not None and (state[1] >= WINDOW or found.framework is not None)
        self._listed[path] = (state, not found.problem and (found.what in GROW or (found.what in LOGS and known)))

    def grows(self, path: Path) -> bool:
        """Whether the file may grow without changing the set of runs; any thread may call it."""
        return path in self._growing

    def holds(self) -> bool:
        """Whether nothing changed since the last look that could change its result."""
        if not self._confirmed or self._cheap >= MOST_CHEAP:
            return False
        self._cheap += 1
        return all(expand(path) == found for path, found in self._places.items()) and all(
            _is_as(stamp(path), *known) for path, known in self._listed.items()
        )


def _with_versions(files: Iterable[Path]) -> set[Path]:
    """Return folders with several version folders: their growth shows which jobs these belong to."""
    versions: dict[Path, set[Path]] = {}
    for below in {path.parent for path in files}:
        for folder in (below, *below.parents):
            if VERSION_FOLDER.fullmatch(folder.name):
                versions.setdefault(folder.parent, set()).add(folder)
    return {parent for parent, found in versions.items() if len(found) > 1}


def expand(path: Path) -> list[Path]:
    """Return the path itself, or the matches of a glob, sorted."""
    text = str(path)
    if path.exists() or not glob.has_magic(text):
        return [path]
    return [Path(found) for found in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207 (absolute patterns)


def _is_as(now: State, before: State, grows: bool) -> bool:  # noqa: FBT001
    if now == before:
        return True
    return grows and now is not None and before is not None and now[0] == before[0] and now[1] >= before[1]
