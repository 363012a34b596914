"""Turns a path that a user names (folder, folder of runs, glob, log file) into runs and their channels."""

from __future__ import annotations

import errno
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import ADVICE, enough, lacking
from grpo_watch.frameworks.framework_tables import bases_last, frameworks
from grpo_watch.sources.discovery.channels import COMPLETIONS, ChannelContent
from grpo_watch.sources.discovery.grouping import (
    MEMBER,
    FoundPart,
    RunDraft,
    VersionFolders,
    drafts,
    job_name,
    segments,
)
from grpo_watch.sources.discovery.look import Look, Walk, expand
from grpo_watch.sources.discovery.several_runs import LogFolders, Named, per_arm, per_run, without_others
from grpo_watch.sources.discovery.sniff import SniffedFile, Sniffer
from grpo_watch.sources.discovery.unread import leftovers
from grpo_watch.sources.files.reading import FixedRoot, real_path
from grpo_watch.sources.files.rotated import RotatedNames
from grpo_watch.sources.rows.layouts import MARK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from grpo_watch.sources.base import Opens

__all__ = ["ChannelContent", "Discoverer", "FoundChannel", "FoundRun", "discover"]

DATED = re.compile(r"\d{8}")
"""A folder named by its date, which distinguishes jobs."""
COMMON = re.compile(r"train(?:ing|er)?(?:[_-]logs?)?|logging|std(?:out|err)|console|metrics|nohup|out|history")
"""Common names of logs, without suffix, and of folders, that don't identify a job."""
HOLDS_NO_CONFIG = frozenset({"runs", "wandb", "completions", "logs", "log", "tensorboard", "tb"})


@dataclass(frozen=True, slots=True)
class FoundChannel:
    """One channel of a run.

    ``name`` is its path relative to the run root and never changes. ``path`` is a file, except for checkpoints, the
    trainer states inside them, Parquet completions and run configuration, where it is the folder that holds them.
    ``segment`` orders channels of one kind that follow each other; a higher one is a new attempt. ``shows_end``: it
    shows the end of the run. ``in_folder`` is False for a log file that is a run by itself. ``opens`` makes the source
    of a channel that is no file: it takes the name, a function for the group size, segment, cursor, and whether
    excerpts are wanted. ``run``: the run's name in a file of several, also the end of ``name`` after a ``#``;
    ``named_by``: the columns with these names.
    """

    name: str
    what: ChannelContent
    path: Path
    segment: int = 0
    shows_end: bool = False
    in_folder: bool = True
    opens: Opens | None = field(default=None, compare=False, repr=False)
    run: str = ""
    named_by: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The channel's name without the run: the name that a file with a single run would have."""
        return self.name.removesuffix(f"{MARK}{self.run}")


class FoundRun(Struct, frozen=True):
    """A run: its root folder, a name unique among the runs found together, its channels sorted by name.

    ``roots`` are the folders that its files may lie in once links are resolved. ``remote`` is the address of a run on a
    server, ``written`` its last heartbeat there (Unix seconds); its ``root`` is then no folder. ``home`` is the root,
    with a link that the user named resolved: later changes of the link have no effect.
    """

    root: Path
    name: str
    framework: str | None
    channels: tuple[FoundChannel, ...]
    problems: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    remote: str = ""
    written: float = 0.0
    home: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The log files that are runs by themselves; settings may name them."""
        return tuple(channel.path for channel in self.channels if not channel.in_folder)


def newest_write(run: FoundRun) -> float:
    """Return when any file or folder of the run's channels was last written (Unix seconds); 0 if all are gone."""
    newest = run.written
    for channel in run.channels:
        with suppress(OSError):
            newest = max(newest, channel.path.stat().st_mtime)
    return newest


HAVE_COMPLETIONS = COMPLETIONS | {ChannelContent.WANDB_OFFLINE}
"""Channels beside which wandb's table files are not read on their own: its log names the run's tables."""


def discover(path: Path, allow_roots: Sequence[Path] = ()) -> list[FoundRun]:
    """Return the runs at ``path``; empty if there are none or it does not exist (yet). Never raises on content."""
    return Discoverer(allow_roots).discover(path)


class Discoverer:
    """Finds runs repeatedly, every few seconds, and remembers the contents of files.

    Args:
        allow_roots: folders that links may lead to.
        read: absolute paths of files that were read before (by an earlier process): such a file is never skipped,
            whatever it looks like now.
    """

    def __init__(self, allow_roots: Sequence[Path] = (), read: Collection[str] = ()) -> None:
        self._allow, self._read = tuple(allow_roots), read
        self.look = Look()
        self._sniffer = Sniffer()
        self._names, self._versions = RotatedNames(), VersionFolders()
        self._apart = LogFolders()
        self._parted: dict[Path, tuple[int, Named]] = {}
        self._before: list[FoundRun] = []
        self._asked: tuple[Path, ...] = ()
        self.settled = True
        """Whether the last look could find everything (a server may not have answered yet)."""
        self.problems: tuple[str, ...] = ()

    def discover(self, *paths: Path) -> list[FoundRun]:
        """Return the runs at all ``paths`` (folders, files or globs), names unique among them.

        ``problems`` then holds lines that concern no found run; for a folder without runs, the files that look like
        logs, and why they can't be read. Without file descriptors, the last look's runs are returned; if nothing is
        new, the same list.
        """
        if paths == self._asked and self.settled and self.look.holds():
            return self._before
        self._asked = paths
        try:
            with enough():
                found = self._discover(paths)
        except OSError as error:
            if not lacking(error):
                raise
            self.settled = bool(self._before)
            self.problems = (f"not looked for new runs: {ADVICE}",)
            return self._before
        self.settled, self._before = True, found
        return found

    def _discover(self, paths: Sequence[Path]) -> list[FoundRun]:
        found: dict[tuple[Path, str, str], tuple[RunDraft, tuple[str, ...]]] = {}
        loose: list[str] = []
        self.look.begin()
        for path in paths:
            self.look.note_place(path)
            for place in expand(path):
                for made, problems in self._at(place, loose, named=place == path):
                    for draft in self._per_run(made):
                        found.setdefault((draft.root, draft.lone, draft.job), (draft, problems))
        self._sniffer.forget_others()
        self._names.forget_others()
        self.look.end()
        self.problems = tuple(dict.fromkeys(loose))
        names = unique_names([draft for draft, _ in found.values()])
        named = {*paths, *(path.parent for path in paths)}  # a lone log is named with its folder
        runs = [self._run(draft, name, problems) for (draft, problems), name in zip(found.values(), names, strict=True)]
        return [
            replace(run, home=real_path(run.root))
            if run.root in named
            else replace(run, roots=(FixedRoot(real_path(run.root)), *run.roots[1:]))
            for run in runs
        ]

    def _at(self, path: Path, loose: list[str], *, named: bool) -> Iterable[tuple[RunDraft, tuple[str, ...]]]:
        try:
            is_folder = path.is_dir()
        except OSError as error:
            loose.append(f"{path}: can't be read: {error.strerror or error}")
            return
        if not is_folder:
            draft = self._file(path, loose, named=named)
            if draft is not None:
                yield draft, ()
            return
        walk = Walk(path, self._allow, self.look.enter)
        listed = walk.folder(path)
        roots = (path, *self._allow)
        denied: list[tuple[Path, str]] = []

        def sniffed(file: Path) -> SniffedFile:
            found = self._sniff(file, roots)
            if found.what is None and found.problem == os.strerror(errno.EACCES):
                denied.append((file, f"can't be read: {found.problem}"))
            return found

        made = drafts(listed, sniffed)
        made = made or drafts(listed, lambda file: self._sniffer.sniff_alone(file, roots))
        texts = [(where, f"{where}: {text}") for where, text in (*walk.problems, *(denied if made else ()))]
        for draft in made:
            yield draft, tuple(text for where, text in texts if where.is_relative_to(draft.root))
        loose += [text for where, text in texts if not any(where.is_relative_to(draft.root) for draft in made)]
        if not made:
            loose += leftovers(listed, roots, self._sniffer)

    def _per_run(self, made: RunDraft) -> Iterable[RunDraft]:
        roots = (made.root, *self._allow)
        for draft in per_run(without_others(made, roots), roots):
            for job in self._versions.runs(draft, roots):
                for run in self._apart.runs(job, (job.root, *self._allow)):
                    yield from per_arm(run, (run.root, *self._allow), self._parted)

    def _sniff(self, path: Path, roots: Sequence[Path]) -> SniffedFile:
        """Return the content of a file; rotated parts belong to their log."""
        found = self._sniff_part(path, roots)
        self.look.note(path, found)
        return found

    def _sniff_part(self, path: Path, roots: Sequence[Path]) -> SniffedFile:
        if self._names.whole(path) is not None:
            return SniffedFile(None)
        found = self._sniffer.sniff(path, roots)
        before = path.with_name(f"{path.name}.1")
        if found.what is None and before.is_file() and self._names.whole(before) == path:
            found = self._sniffer.sniff(before, roots)
        if found.what is None and str(path.absolute()) in self._read:
            found = replace(self._sniffer.sniff(path, roots, named=True), problem="")
        if found.what in {ChannelContent.CONSOLE, ChannelContent.JSONL}:
            self._names.note(path)
        return found

    def _file(self, path: Path, loose: list[str], *, named: bool) -> RunDraft | None:
        if not path.exists():
            return None  # it may still appear
        found = self._sniffer.sniff(path, (path.parent, real_path(path).parent, *self._allow), named=named)
        self.look.note(path, found)
        if found.what is None:
            if found.problem and named:
                loose.append(found.problem if found.problem.startswith(str(path)) else f"{path}: {found.problem}")
            return None
        part = FoundPart(found.what, path, path.parent, found.framework, found.problem)
        return RunDraft(path.parent, [part], lone=job_name(path.name) or path.name)

    def _run(self, draft: RunDraft, name: str, problems: Sequence[str]) -> FoundRun:
        order = segments(draft)
        own_consoles = bool(draft.consoles())
        tables_read = any(part.what in HAVE_COMPLETIONS for part in draft.parts)
        parts = [
            part
            for part in draft.parts
            if not (part.from_wandb and own_consoles) and not (part.what is ChannelContent.WANDB_TABLES and tables_read)
        ]
        channels = [_channel(part, draft, order[part]) for part in parts]
        if not draft.lone:
            channels += _config_channels(parts, draft, order)
        links = {real_path(part.path).parent for part in parts} if draft.lone else set()
        return FoundRun(
            root=draft.root,
            name=name,
            framework=_nearest({part.framework for part in parts}),
            channels=tuple(sorted(channels, key=lambda channel: channel.name)),
            problems=(*problems, *(f"{part.path}: {part.problem}" for part in parts if part.problem)),
            roots=(draft.root, *sorted(links - {draft.root}), *self._allow),
        )


def _nearest(named: set[str | None]) -> str | None:
    """Return the framework that the channels name; one that others build on (its marks show in their logs) last."""
    return next((table.name for table in bases_last() if table.name in named), None)


def _channel(part: FoundPart, draft: RunDraft, segment: int) -> FoundChannel:
    own_end = part.what is ChannelContent.CONSOLE and not part.from_wandb
    table = frameworks().get(part.framework or "")
    metrics_end = part.what is ChannelContent.JSONL and table is not None and table.traces.shows_end
    name = _relative(part.path if part.path != part.folder else part.folder / part.what.files, draft.root)
    run = part.job if part.job and part.what is not ChannelContent.CONSOLE else ""
    name = f"{name}{MARK}{run}" if run else name
    ends, in_folder = own_end or metrics_end, not draft.lone
    return FoundChannel(name, part.what, part.path, segment, ends, in_folder, run=run, named_by=part.named_by)


def _config_channels(parts: Sequence[FoundPart], draft: RunDraft, order: dict[FoundPart, int]) -> list[FoundChannel]:
    """Return one channel per folder that may hold configuration: the root, and folders between it and a channel."""
    folders = {draft.root: 0}
    above = draft.root.parts
    for part in parts:
        names = part.folder.parts
        below = names[len(above) :] if names[: len(above)] == above else ()
        plain = list(takewhile(lambda name: name not in HOLDS_NO_CONFIG, below))
        for depth in range(1, len(plain) + 1):
            folder = draft.root.joinpath(*plain[:depth])
            folders[folder] = order[part] if folder == part.folder else folders.get(folder, 0)
    return [
        FoundChannel(_relative(folder / "run-config", draft.root), ChannelContent.RUN_CONFIG, folder, segment)
        for folder, segment in folders.items()
    ]


def _relative(path: Path, root: Path) -> str:
    return path.as_posix().removeprefix(f"{root.as_posix().rstrip('/')}/")


def _telling(parts: Sequence[str]) -> int:
    """Return how many trailing parts of a path are needed to include one that identifies the job."""
    telling = (
        not (MEMBER.fullmatch(part) or COMMON.fullmatch(part)) or DATED.search(part) for part in reversed(parts[1:])
    )
    return next((at for at, tells in enumerate(telling, 1) if tells), 1)


def unique_names(found: Sequence[RunDraft]) -> list[str]:
    """Return a name per draft: its folder's (a lone log's: the file's), with parents prepended until all differ.

    A folder or log with a common name (``output``, ``train``) is prefixed by its parents' names, up to the first
    distinctive one.
    """
    longest = [(*real_path(draft.root).parts, *filter(None, [draft.lone, draft.job])) for draft in found]
    lengths = [_telling(parts) for parts in longest]
    while True:
        names = ["/".join(parts[-length:]) for parts, length in zip(longest, lengths, strict=True)]
        twice = {name for name, count in Counter(names).items() if count > 1}
        clashes = [i for i, name in enumerate(names) if name in twice and lengths[i] < len(longest[i])]
        if not clashes:
            return [name.lstrip("/") or "/" for name in names]
        for index in clashes:
            lengths[index] += 1
