"""Reads rollout dumps, one JSON-lines file per step: recognised by name and first row, grouped row by row."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from msgspec.structs import replace

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Item, Stream
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.dump_formats import ERRORS, DumpRow, RolloutDumps, rollout_dumps
from grpo_watch.sources.base import KeptTexts, Skip
from grpo_watch.sources.completions.completion_folder import (
    BadDumpError,
    CompletionFolder,
    DumpReader,
    signature_of,
)
from grpo_watch.sources.completions.completion_table import by_name, decode
from grpo_watch.sources.completions.summarise import Grouping, digests, group, summaries
from grpo_watch.sources.completions.text_reduction import CollectedRows
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.step_folder import SweepEntry

FOLDER = re.compile(r"rollout|generation|completion|dump", re.IGNORECASE)


def format_of(path: PurePath, row: Mapping[str, object]) -> RolloutDumps | None:
    """Return the format of a file by its name and its first decoded line."""
    return next((one for one in rollout_dumps() if one.named(path) and one.keys <= row.keys()), None)


def may_be_dump(path: PurePath) -> bool:
    """Whether a file of this name may be a dump."""
    return any(one.named(path) for one in rollout_dumps())


def is_step_folder(name: str) -> bool:
    """Whether a folder of this name may hold the dump of one step."""
    return any(one.inner and one.file.fullmatch(name) for one in rollout_dumps())


def folder_of(path: Path) -> Path:
    """Return the folder with the dumps of all steps, given one of them."""
    known = next((one for one in rollout_dumps() if one.named(path)), None)
    return path.parents[known.depth] if known is not None else path.parent


def holds_dump(path: Path, head: bytes) -> tuple[bool, str | None]:
    """Whether a file that begins with ``head`` is a dump, and its framework: None for rows of no known framework.

    Such rows count in folders named like dumps, so that they are reported and not skipped.
    """
    row = _first_row(head) if may_be_dump(path) else None
    if row is None:
        return False, None
    known = format_of(path, row)
    texts = sum(isinstance(value, str) or value is None for value in row.values())
    called = FOLDER.search(path.parent.name) is not None
    return known is not None or (called and texts > 1), known.framework if known is not None else None


def _first_row(head: bytes) -> Mapping[str, object] | None:
    """Decode the first line; of a line longer than ``head``, return its visible keys."""
    line = head.split(b"\n", 1)[0]
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        row = {key.decode(): None for key in re.findall(rb'"([a-z_]{1,20})": ?[\["\d-]', line)}
    return row if isinstance(row, dict) else None


MAX_LINE = 64 << 20
"""Most bytes of a line; rows of NeMo-RL hold their token lists."""
MAX_ROWS = 65_536
"""Most completions of one step."""


def read_rollouts(  # noqa: PLR0913  what a process is given
    framework: str,
    longest: float | None,
    file: BinaryIO,
    group_size: int | None,
    examples: KeptTexts,
    *,
    attempts: Path | None = None,
    roots: Sequence[Path] = (),
) -> Grouping:
    """Return the groups of a framework's file, or the row of a file without texts, or both.

    Raises:
        BadDumpError: a line is not in the format, or is cut off.
    """
    known = next(one for one in rollout_dumps() if one.framework == framework)
    batch = _Batch(known, examples=examples)
    if known.measure is not None:
        try:
            return Grouping((), row=known.measure(batch.lines(file), longest))
        except (AttributeError, KeyError, OverflowError, TypeError):
            raise BadDumpError(f"line {batch.number}: not as {framework} writes it") from None
    grouping = batch.read(file).grouping(group_size)
    errors = _errors(known, attempts, roots) if attempts is not None else None
    return grouping if errors is None else replace(grouping, row={ERRORS: errors})


def _errors(known: RolloutDumps, attempts: Path, roots: Sequence[Path]) -> float | None:
    """Return the share (0…1) of a step's attempts that failed; None if they can't be read."""
    try:
        with os.fdopen(open_regular(attempts, roots), "rb") as file:
            batch = _Batch(known, examples=KeptTexts.NOTHING)
            failed = [one for line in batch.lines(file) for one in known.failed(line)]
    except (SourceError, OSError, BadDumpError):
        return None
    return sum(failed) / len(failed) if failed else None


class _Batch:
    """The rows of one file so far."""

    def __init__(self, known: RolloutDumps, *, examples: KeptTexts) -> None:
        self._format, self._examples = known, examples
        self._taken = CollectedRows()
        self._rewards: list[Mapping[str, object]] = []
        self._groups: list[Hashable] = []
        self._places: dict[Hashable, tuple[int, int, int]] = {}
        self.number = 0
        """The last line read, counted from 1."""

    def read(self, file: BinaryIO) -> _Batch:
        """Read all lines."""
        for line in self.lines(file):
            for row in self._format.read(line):
                self._add(row)
        return self

    def lines(self, file: BinaryIO) -> Iterator[Mapping[str, object]]:
        """Yield all lines, decoded.

        Raises:
            BadDumpError: a line is not in the format, or is cut off.
        """
        for self.number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            if line.isspace():
                continue
            row = decode(line)
            if not isinstance(row, dict):
                reason = "no JSON object" if line.endswith(b"\n") else "not complete yet"
                raise BadDumpError(f"line {self.number}: {reason}")
            if missing := self._format.keys - row.keys():
                raise BadDumpError(f"line {self.number}: no {', '.join(sorted(missing))} in it")
            yield row

    def _add(self, row: DumpRow) -> None:
        if len(self._taken) >= MAX_ROWS:
            raise BadDumpError(f"more than {MAX_ROWS} completions", Skip.TOO_LONG)
        key = (row.group, row.rollout)
        held = self._places.get(key) if row.group is not None and row.rollout is not None else None
        if held is not None:
            self._again(key, held, row)
            return
        self._places[key] = (len(self._taken), row.turn, row.turn)
        self._taken.add(row.prompt, row.completion)
        self._rewards.append(row.rewards)
        self._groups.append(row.group)

    def _again(self, key: Hashable, held: tuple[int, int, int], row: DumpRow) -> None:
        """Take another turn of the same rollout: keep the last turn's text and rewards, and the first one's prompt."""
        at, first, last = held
        if row.turn > last:
            self._taken.put(at, row.completion)
            self._rewards[at] = row.rewards
        elif row.turn < first:
            self._taken.put_prompt(at, row.prompt)
        self._places[key] = (at, min(first, row.turn), max(last, row.turn))

    def grouping(self, group_size: int | None) -> Grouping:
        columns = by_name(self._rewards)
        if self._format.ordered:
            return group(self._taken, columns, group_size, examples=self._examples)
        keys = self._groups if self._groups and None not in self._groups else None
        return group_by_key(self._taken, keys, columns, group_size, examples=self._examples)


def format_at(path: Path, roots: Sequence[Path]) -> RolloutDumps | None:
    """Return the format of one file; None if it is no dump, or holds no whole line yet.

    Raises:
        SourceError: it lies outside the roots or is no regular file.
        OSError: it can't be read.
    """
    with os.fdopen(open_regular(path, roots), "rb") as file:
        row = decode(file.readline(MAX_LINE))
    return format_of(path, row) if isinstance(row, dict) else None


def group_by_key(
    rows: CollectedRows,
    keys: Sequence[Hashable] | None,
    rewards: Mapping[str, Sequence[object]],
    group_size: int | None,
    *,
    examples: KeptTexts = KeptTexts.EXCERPT,
) -> Grouping:
    """Summarise a batch in any order.

    Args:
        rows: the completions, reduced.
        keys: per completion the id of its group; None groups by equal prompts. By id a group may have any size (a
            rollout can fail). By prompt it must have the expected size: two groups of one prompt can't be distinguished
            and are left out.
        rewards: per reward function one value per completion.
        group_size: G as configured; None takes the commonest number of completions per prompt.
        examples: how much of the texts is kept.
    """
    members: dict[Hashable, list[int]] = {}
    for at, prompt in enumerate(rows.prompts):
        members.setdefault(prompt if keys is None else keys[at], []).append(at)
    prompts, digest = digests(rows)
    if not members:
        return Grouping((), "an empty table", digest, prompts)
    sizes = Counter(map(len, members.values()))
    wanted = None if keys is not None else group_size or sizes.most_common(1)[0][0]
    chosen = [at for at in members.values() if wanted is None or len(at) == wanted]
    if not chosen:
        shown = ", ".join(f"{count} x {size}" for size, count in sizes.most_common(3))
        return Grouping((), f"no prompt has {wanted} completions, but {shown}", digest, prompts)
    return Grouping(summaries(rows, chosen, rewards, examples=examples), "", digest, prompts)


TRIED = 20
"""Files tried to recognise the format: the first of a folder may be empty or cut off."""


class CompletionDumpsSource(CompletionFolder):
    """Reads the files of a folder by rising step; its format is that of the first whole file.

    Nothing marks the end of a file that grows line by line, so a file is read once it stayed unchanged between two
    looks (offline at once). A file rewritten by a resumed run is read again. Its path may be one of the files.
    """

    def _begin(self, *, longest: Callable[[], float | None] = lambda: None, **_: Any) -> None:
        super()._begin()
        self._longest = longest
        self._path = folder_of(self._path) if may_be_dump(self._path) else self._path
        self._format: RolloutDumps | None = None
        self._looked: dict[int, SweepEntry] = {}
        self._waits = self._offline = False

    @property
    def settling(self) -> bool:
        """Whether a file waits for a second look before it is read, or could not be parsed at first."""
        return self._waits or super().settling

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._offline = seen is None
        self._find_format()
        if self._format is not None:
            yield from super()._new(seen)

    def _rest(self) -> Iterator[Item]:
        self._offline = True
        self._find_format()
        if self._format is not None:
            yield from super()._rest()
        elif not self.stats.problem:
            self.stats.skip(Skip.NOT_A_ROW, f"{self._path.name}: no file begins like a dump of a known framework")

    def _find_format(self) -> None:
        if self._format is not None:
            return
        try:
            names = sorted(_dumps_in(self._path), key=len)
        except OSError as error:
            self.stats.problem = f"{self._path}: can't be listed: {error.strerror or error}"
            return
        for name in names[:TRIED]:
            try:
                self._format = format_at(self._path / name, self._roots)
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

    def _entries(self, seen: float | None) -> Mapping[int, SweepEntry]:
        self._waits = False
        return super()._entries(seen)

    def _listing(self) -> Iterator[tuple[str, tuple[int, int] | None]]:
        if self._format is None or not self._format.inner:
            yield from super()._listing()
            return
        for name in _dumps_in(self._path):
            with suppress(OSError):
                yield name, signature_of((self._path / name).stat())

    def _step_of(self, name: str) -> int | None:
        found = self._format.named(PurePath(name)) if self._format is not None else None
        return int(found[1]) if found is not None else None

    def _reader(self, path: Path) -> DumpReader:
        known = self._format
        attempts = path.parents[1] / known.attempts / path.name if known is not None and known.attempts else None
        name = known.framework if known is not None else ""
        return partial(read_rollouts, name, self._longest(), attempts=attempts, roots=self._roots)

    def _stream(self, step: int, grouping: Grouping) -> Stream:
        del step, grouping
        known = self._format
        validates = known is not None and known.evaluation(self._path.name, self._files)
        return Stream.EVAL if validates else Stream.TRAIN


def _dumps_in(folder: Path) -> Iterator[str]:
    """Yield the names of possible dumps in a folder, including folders between."""
    for path in folder.iterdir():
        if may_be_dump(PurePath(path.name)):
            yield path.name
        for known in rollout_dumps():
            if known.inner and known.file.fullmatch(path.name) and (path / known.inner).is_file():
                yield f"{path.name}/{known.inner}"
