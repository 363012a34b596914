"""Turns a folder of rollout dumps, one JSON-lines file per step, into one summary per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from grpo_watch.engine.records import Cursor, Item, Stream
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.dump_formats import RolloutDumps, rollout_dumps
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_folder import CompletionFolder, Reading
from grpo_watch.sources.completions.dump_file import format_at, read_rollouts
from grpo_watch.sources.completions.dump_result import signature_of
from grpo_watch.sources.completions.rollout_dumps import folder_of, may_be_dump
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.deferred import Submit
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.files.folder_cursor import SweepEntry

TRIED = 20
"""Files that are looked at for the format: the first of a folder may be empty or cut off."""


class CompletionDumpsSource(CompletionFolder):
    """Reads the files of a folder by rising step; its format is that of the first whole file.

    Nothing marks the end of a file that grows line by line, so a file is read once it stayed as it was between two
    looks (offline at once). A file that a resumed run writes again is read again.

    Args:
        name: the channel's name.
        folder: the folder of the dumps, or one of its files.
        roots: folders that links may not lead out of.
        group_size: G as configured, asked at each file; None: derived from the rows.
        segment: order among the folders of this kind.
        cursor: where an earlier reader stopped.
        examples: what summaries carry of the texts.
        submit: runs the reading of a file elsewhere; None reads in place.
    """

    def __init__(  # noqa: PLR0913, PLR0917  the arguments that all sources of completions share
        self,
        name: str,
        folder: Path,
        roots: Sequence[Path],
        group_size: Callable[[], int | None],
        segment: int = 0,
        cursor: Cursor | None = None,
        examples: KeptTexts = KeptTexts.EXCERPT,
        submit: Submit | None = None,
    ) -> None:
        folder = folder_of(folder) if may_be_dump(folder) else folder
        super().__init__(name, folder, roots, group_size, segment, cursor, examples, submit)
        self._format: RolloutDumps | None = None
        self._looked: dict[int, SweepEntry] = {}
        self._waits = self._offline = False

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield a summary per file that is whole."""
        self._offline = seen is None
        self._find_format()
        if self._format is not None:
            yield from super().poll(seen)

    def finish(self) -> Iterator[Item]:
        """Yield what is under way or could not be read before; count the rest."""
        self._offline = True
        self._find_format()
        if self._format is not None:
            yield from super().finish()
        elif not self.stats.problem:
            self.stats.skip(Skip.NOT_A_ROW, f"{self._folder.name}: no file begins like a dump of a known framework")

    def _find_format(self) -> None:
        if self._format is not None:
            return
        try:
            names = sorted(_dumps_in(self._folder), key=len)
        except OSError as error:
            self.stats.problem = f"{self._folder}: can't be listed: {error.strerror or error}"
            return
        for name in names[:TRIED]:
            try:
                self._format = format_at(self._folder / name, self._roots)
            except FileNotFoundError:
                continue
            except (SourceError, OSError) as error:
                self.stats.problem = str(error)
            if self._format is not None:
                return

    def _may_have_changed(self) -> bool:
        return super()._may_have_changed() or self._waits

    def _ready(self, step: int, entry: SweepEntry) -> bool:
        if self._offline:
            return True
        stayed = self._looked.get(step) == entry
        self._looked[step] = entry
        self._waits = self._waits or not stayed
        return stayed

    def _entries(self) -> dict[int, SweepEntry]:
        self._waits = False
        return super()._entries()

    def _listing(self) -> Iterator[tuple[str, tuple[int, int] | None]]:
        if self._format is None or not self._format.inner:
            yield from super()._listing()
            return
        for name in _dumps_in(self._folder):
            with suppress(OSError):
                yield name, signature_of((self._folder / name).stat())

    def _step_of(self, name: str) -> int | None:
        found = self._format.named(PurePath(name)) if self._format is not None else None
        return int(found[1]) if found is not None else None

    def _reading(self, path: Path, group_size: int | None) -> Reading:
        framework = self._format.framework if self._format is not None else ""
        return read_rollouts, (path, self._roots, framework, group_size, self._examples)

    def _stream(self, step: int, grouping: Grouping) -> Stream:
        del step, grouping
        known = self._format
        validates = known is not None and known.evaluation(self._folder.name, self._files)
        return Stream.EVAL if validates else Stream.TRAIN


def _dumps_in(folder: Path) -> Iterator[str]:
    """Names in a folder of what may be dumps, with the folders between.

    Raises:
        OSError: the folder can't be listed.
    """
    for path in folder.iterdir():
        if may_be_dump(PurePath(path.name)):
            yield path.name
        for known in rollout_dumps():
            if known.inner and known.file.fullmatch(path.name) and (path / known.inner).is_file():
                yield f"{path.name}/{known.inner}"
