"""Finds the files of a rotated log: ``train.log.2``, ``train.log.1``, ``train.log``."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import lacking
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.sources.files.decompress import SUFFIXES, ends_of

NEIGHBOURS = 1000
"""Most folder entries that are examined."""
FINISHED_SECONDS = 60.0
"""A numbered log is a rotated part if it was finished this many seconds before its successor's last write, or if the
successor's first step follows its last. The logs of several ranks (``train.log``, ``train.log.1``) are numbered too,
but are written side by side and count the same steps."""
NUMBERED = re.compile(r"(.+)\.(\d{1,4})")
PACKED = re.compile(rf"({NUMBERED.pattern})(?:{'|'.join(map(re.escape, SUFFIXES))})")
COUNTERS = (
    re.compile(rb"'epoch': '?(\d{1,9}(?:\.\d{1,20})?(?:e-\d{1,3})?)\b"),
    *(counter for table in frameworks().values() for counter in table.traces.counters),
    re.compile(rb"(?:^|[\r\n])[ ]{0,3}\d{1,3}%\|[^|\r\n]{0,200}\| (\d{1,12})/\d{1,12} \["),
)
"""Counters in logs: epochs of the Trainer, steps of single frameworks, training bars."""


def base_of(path: Path) -> Path | None:
    """Return ``train.log`` for ``train.log.3``; None for a name without a number."""
    found = NUMBERED.fullmatch(path.name)
    return path.with_name(found[1]) if found else None


def chain(path: Path, *, packed: bool = False) -> list[Path]:
    """Return the files of a numbered rotation, oldest first, ``path`` last; with ``packed``, compressed ones too."""
    numbered: list[tuple[int, Path]] = []
    for entry in _neighbours(path.parent):
        bare = PACKED.fullmatch(entry.name) if packed else None
        found = NUMBERED.fullmatch(bare[1] if bare is not None else entry.name)
        if found is not None and found[1] == path.name and entry.is_file(follow_symlinks=False):
            numbered.append((int(found[2]), Path(entry.path)))
    return [*(place for _, place in sorted(numbered, reverse=True)), path]


def oldest(path: Path) -> Path:
    """Return the file where the log begins: the oldest of its chain whose successors were written well after it."""
    return whole_chain(path)[0]


def whole_chain(path: Path) -> list[Path]:
    """The files that hold the log from its beginning, oldest first (``path`` alone if nothing was rotated away).

    An empty log was just restarted: the files before it belong to it whenever they were written.
    """
    places = chain(path)
    after = _written(path)
    begin = len(places) - 1
    while begin > 0 and (before := _written(places[begin - 1])):
        if after and after - before < FINISHED_SECONDS and not counts_on(places[begin - 1], places[begin]):
            break
        begin, after = begin - 1, before
    return places[begin:]


class RotatedNames:
    """Remembers the file of each log, so that a rotated part is not taken for a log of its own.

    A log's former file remains a part of that log, however often it is renamed. While no file has the log's name, the
    newest part stands in for it.
    """

    def __init__(self) -> None:
        self._log_of: dict[int, Path] = {}
        self._seen: dict[int, Path] = {}
        self._chains: dict[Path, list[Path]] = {}

    def whole(self, path: Path) -> Path | None:
        """Return the log that this file was rotated away from; None if there is none."""
        base, node = base_of(path), _node(path)
        if base is None or node is None:
            return None
        if base not in self._chains:
            self._chains[base] = whole_chain(base)
        part = self._log_of.get(node[1]) == base
        if part:
            self._seen[node[1]] = base
        if not base.is_file():
            return base if part and path not in chain(base)[-2:-1] else None
        return base if part or path in self._chains[base] else None

    def note(self, path: Path) -> None:
        """Remember this log's file, and those rotated away from it."""
        for place in [path, *self._chains.get(path, [])]:
            if (node := _node(place)) is not None:
                parted = self._log_of.get(node[1])
                self._seen[node[1]] = parted if parted is not None and parted == base_of(path) else path

    def forget_others(self) -> None:
        """Drop the logs not noted since the last call."""
        self._log_of, self._seen, self._chains = self._seen, {}, {}


def successor(path: Path, node: tuple[int, int], *, packed: bool = False) -> Path:
    """Return the next file of the chain after this device and inode, or ``path`` if it isn't in the chain.

    With ``packed``, a compressed file may be the next one.
    """
    places = chain(path, packed=packed)
    own = [index for index, place in enumerate(places) if _node(place) == node]
    return places[min(own[-1] + 1, len(places) - 1)] if own else path


def other_names(path: Path, inode: int) -> tuple[list[Path], list[Path]]:
    """Return files beside ``path`` that may be its former one: those with its inode, and copies (``log-20261121``)."""
    same, copies = [], []
    for entry in _neighbours(path.parent):
        if entry.name != path.name and entry.is_file(follow_symlinks=False):
            if entry.inode() == inode:
                same.append(Path(entry.path))
            elif entry.name.startswith(path.name):
                copies.append(Path(entry.path))
    return same, sorted(copies)


def _neighbours(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, NEIGHBOURS))
    except OSError as error:
        if lacking(error):
            raise  # a file that can't be seen now is not gone
        return []


def _node(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        info = path.stat()
        return info.st_dev, info.st_ino
    return None


def _written(path: Path) -> float:
    """Return when a regular, non-empty file was last written (Unix seconds); 0 for any other."""
    with suppress(OSError):
        info = path.stat()
        return info.st_mtime if stat.S_ISREG(info.st_mode) and info.st_size else 0.0
    return 0.0


def counts_on(before: Path, after: Path) -> bool:
    """Whether the counters of ``after`` continue those of ``before``, in the first notation that both have.

    False if unknown: no steps yet, or an unreadable file.
    """
    with suppress(OSError, SourceError):
        (head, tail), (begin, _) = (ends_of(path, (path.parent,)) for path in (before, after))
        for counter in COUNTERS:
            old, new = counter.findall(head) + counter.findall(tail), counter.search(begin)
            if old and new is not None:
                return float(old[-1]) <= float(new[1]) > float(old[0])
    return False
