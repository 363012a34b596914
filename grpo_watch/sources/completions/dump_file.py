"""Turns one dump of rollouts (a JSON-lines file) into the groups of one step, row by row, texts reduced at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from grpo_watch.frameworks.dump_formats import DumpRow, RolloutDumps, rollout_dumps
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.dump_result import BadDumpError, DumpResult, read_unchanged
from grpo_watch.sources.completions.jsonl_source import decode
from grpo_watch.sources.completions.reduced_rows import CollectedRows
from grpo_watch.sources.completions.rollout_dumps import format_of
from grpo_watch.sources.completions.summarise import Grouping, digests, group, summaries
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.files.reading import open_regular

MAX_LINE = 64 << 20
"""Bytes of a line; rows of NeMo-RL hold their token lists."""
MAX_ROWS = 65_536
"""Completions of one step."""


def read_rollouts(
    path: Path,
    roots: Sequence[Path],
    framework: str,
    group_size: int | None,
    examples: KeptTexts,
) -> DumpResult:
    """Read one file; a top-level function of plain values, so that a worker process can run it. Never raises."""
    known = next(one for one in rollout_dumps() if one.framework == framework)
    return read_unchanged(path, roots, lambda file: _Batch(known, examples=examples).read(file).grouping(group_size))


class _Batch:
    """The rows of one file so far."""

    def __init__(self, known: RolloutDumps, *, examples: KeptTexts) -> None:
        self._format, self._examples = known, examples
        self._taken = CollectedRows()
        self._rewards: list[Mapping[str, object]] = []
        self._groups: list[Hashable] = []
        self._places: dict[Hashable, tuple[int, int, int]] = {}

    def read(self, file: BinaryIO) -> _Batch:
        """Take all lines.

        Raises:
            BadDumpError: a line is none of the format's, or the file ends inside one.
        """
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            if not line.isspace():
                for row in self._rows(line, number):
                    self._add(row)
        return self

    def _rows(self, line: bytes, number: int) -> Iterator[DumpRow]:
        row = decode(line)
        if not isinstance(row, dict):
            reason = "no JSON object" if line.endswith(b"\n") else "not complete yet"
            raise BadDumpError(f"line {number}: {reason}")
        if missing := self._format.keys - row.keys():
            raise BadDumpError(f"line {number}: no {', '.join(sorted(missing))} in it")
        yield from self._format.read(row)

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
        """Another turn of the same rollout: the last one's text and rewards, but the first one's prompt."""
        at, first, last = held
        if row.turn > last:
            self._taken.put(at, row.completion)
            self._rewards[at] = row.rewards
        elif row.turn < first:
            self._taken.put_prompt(at, row.prompt)
        self._places[key] = (at, min(first, row.turn), max(last, row.turn))

    def grouping(self, group_size: int | None) -> Grouping:
        """The groups of all rows."""
        names = dict.fromkeys(name for rewards in self._rewards for name in rewards)
        columns = {name: [rewards.get(name) for rewards in self._rewards] for name in names}
        if self._format.ordered:
            return group(self._taken, columns, group_size, examples=self._examples)
        keys = self._groups if self._groups and None not in self._groups else None
        return group_by_key(self._taken, keys, columns, group_size, examples=self._examples)


def format_at(path: Path, roots: Sequence[Path]) -> RolloutDumps | None:
    """The format of one file; None where it is none, or holds no whole line yet.

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
        examples: what is kept of the texts.
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
        return Grouping((), f"no prompt has {wanted} completions, but {_commonest(sizes)}", digest, prompts)
    return Grouping(summaries(rows, chosen, rewards, examples=examples), "", digest, prompts)


def _commonest(sizes: Counter[int]) -> str:
    return ", ".join(f"{count} x {size}" for size, count in sizes.most_common(3))
