"""Remembers what a look for runs rested on: the next costs a ``stat`` per folder and file where nothing changed."""

from __future__ import annotations

import glob
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.sources.discovery.grouping import VERSION_FOLDER
from grpo_watch.sources.discovery.sniff import ChannelContent, SniffedFile
from grpo_watch.sources.files.decompress import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_CHEAP = 10
"""One look in so many is a whole one: what a look rests on besides (links, times of rotated logs) changes seldom."""
LOGS = frozenset({ChannelContent.CONSOLE, ChannelContent.JSONL})
"""What grows without becoming something else once its beginning is known …"""
GROW = frozenset(
    {
        ChannelContent.TFEVENTS,
        ChannelContent.COMPLETIONS_JSONL,
        ChannelContent.COMPLETION_DUMPS,
        ChannelContent.ROLLOUT_SUMMARIES,
        ChannelContent.PROBE,
    }
)
"""… and what does so in any case; the others are split into runs by what they hold."""

State: TypeAlias = "Stamp | None"


class Look:
    """What the last look listed and read; ``enter`` may be called by the walk, with each folder before it is listed."""

    def __init__(self) -> None:
        self.watch: Callable[[Path], object] = lambda _: None
        """Called with each folder before it is listed."""
        self.watched: Callable[[], object] = lambda: None
        """Called once all folders of a look were listed."""
        self._folders: dict[Path, State] = {}
        self._files: dict[Path, tuple[State, bool]] = {}
        self._places: dict[Path, list[Path]] = {}
        self._growing: frozenset[Path] = frozenset()
        self._confirmed = False
        self._cheap = 0

    def begin(self) -> None:
        """A whole look begins."""
        self._before = (self._folders, self._files, self._places)
        self._folders, self._files, self._places, self._cheap = {}, {}, {}, 0

    def end(self) -> None:
        """It ended. A time stamp may be as coarse as the time between two changes: two looks must agree."""
        folders, files, places = self._before
        apart = _with_versions(self._files)
        if apart:
            self._files = {
                path: (state, grows and apart.isdisjoint(path.parents)) for path, (state, grows) in self._files.items()
            }
        same = (folders, places, files.keys()) == (self._folders, self._places, self._files.keys())
        self._confirmed = same and all(_is_as(self._files[path][0], *known) for path, known in files.items())
        self._growing = frozenset(path for path, (_, grows) in self._files.items() if grows)
        self.watched()

    def note_place(self, path: Path) -> None:
        """A path that the user named."""
        self._places[path] = expand(path)
        if not path.is_dir():
            plain = takewhile(lambda part: not glob.has_magic(part), path.parent.parts)
            self.enter(Path(*plain))

    def enter(self, folder: Path) -> None:
        """A folder is about to be listed."""
        self.watch(folder)
        self._folders[folder] = stamp(folder)

    def note(self, path: Path, found: SniffedFile) -> None:
        """A file was recognised, or not."""
        state = stamp(path)
        known = state is not None and (state[1] >= WINDOW or found.framework is not None)
        self._files[path] = (state, not found.problem and (found.what in GROW or (found.what in LOGS and known)))

    def grows(self, path: Path) -> bool:
        """Whether it is a file that may grow without changing which runs there are; any thread may ask."""
        return path in self._growing

    def holds(self) -> bool:
        """Whether nothing changed since the last look that would let another find something else."""
        if not self._confirmed or self._cheap >= MOST_CHEAP:
            return False
        self._cheap += 1
        return (
            all(expand(path) == found for path, found in self._places.items())
            and all(stamp(folder) == state for folder, state in self._folders.items())
            and all(_is_as(stamp(path), *known) for path, known in self._files.items())
        )


def _with_versions(files: Iterable[Path]) -> set[Path]:
    """Folders with several version folders: which jobs these belong to shows by which of them grow."""
    versions: dict[Path, set[Path]] = {}
    for below in {path.parent for path in files}:
        for folder in (below, *below.parents):
            if VERSION_FOLDER.fullmatch(folder.name):
                versions.setdefault(folder.parent, set()).add(folder)
    return {parent for parent, found in versions.items() if len(found) > 1}


def expand(path: Path) -> list[Path]:
    """The path itself, or what a glob matches, sorted."""
    text = str(path)
    if path.exists() or not glob.has_magic(text):
        return [path]
    return [Path(found) for found in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207 (absolute patterns)


def _is_as(now: State, before: State, grows: bool) -> bool:  # noqa: FBT001
    if now == before:
        return True
    return grows and now is not None and before is not None and now[0] == before[0] and now[1] >= before[1]
