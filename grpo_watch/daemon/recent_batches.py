"""Keeps of the newest batches which completions of a group are equal, and rows for a table of completions."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isnan, nan

from grpo_watch.engine.groups import GroupSummary
from grpo_watch.engine.records import CompletionSummary, Stream

BATCHES = 8
GROUPS = 64
POSITIONS = 64
"""Batches kept, groups of each, completions of each group: 32 KB of one run at most."""
LISTED_GROUPS, LISTED_EACH, LISTED_SCORES = 8, 16, 5
"""Groups of a batch in the table of completions, completions of each, and columns of rewards: 25 KB of one run."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """The first completions of one group. ``lengths`` are unsigned, ``scores`` floats (NaN: not scored), of 32 bits.

    ``shown`` is how the prompt and then each completion begins; empty unless the settings ask for it.
    """

    lengths: bytes
    scores: Mapping[str, bytes] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    def length_column(self) -> list[int]:
        """Characters, or tokens, of each completion."""
        return array("I", self.lengths).tolist()

    def score_columns(self) -> dict[str, list[float | None]]:
        """Each reward function's values, and the advantages."""
        columns = {name: array("f", data) for name, data in self.scores.items()}
        return {name: [None if isnan(value) else value for value in column] for name, column in columns.items()}


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch: of each group which of its texts are equal, numbered by first appearance.

    ``groups`` and ``completions`` count all of the batch, ``repeated`` those that repeat another one of their group;
    ``patterns`` are those of the first ``GROUPS`` groups and ``POSITIONS`` places, ``listed`` the rows of the first
    ``LISTED_GROUPS``. ``reason`` says why groups are unknown.
    """

    step: int
    groups: int
    completions: int
    repeated: int
    patterns: tuple[bytes, ...]
    reason: str = ""
    listed: tuple[ListedGroup, ...] = ()


class RecentBatches:
    """The newest train batches of a run, oldest first."""

    def __init__(self, kept: tuple[BatchView, ...] = ()) -> None:
        self.kept = kept

    def take(self, summary: CompletionSummary) -> None:
        """Account for a dumped batch; one that is dumped again for its step takes the place of the first."""
        if summary.stream is not Stream.TRAIN:
            return
        others = tuple(view for view in self.kept if view.step != summary.step)
        self.kept = (*others, view_of(summary))[-BATCHES:]


def view_of(summary: CompletionSummary) -> BatchView:
    """What is kept of a batch."""
    return BatchView(
        step=summary.step,
        groups=len(summary.groups),
        completions=sum(group.size for group in summary.groups),
        repeated=sum(group.size - group.unique for group in summary.groups),
        patterns=tuple(_bytes(group.pattern) for group in summary.groups[:GROUPS]),
        reason="" if summary.complete else summary.reason,
        listed=tuple(_listed(group) for group in summary.groups[:LISTED_GROUPS]),
    )


def _listed(group: GroupSummary) -> ListedGroup:
    lengths = array("I", (min(length, 0xFFFFFFFF) for length in group.lengths[:LISTED_EACH]))
    scores = {
        name: array("f", (nan if value is None else value for value in values[:LISTED_EACH])).tobytes()
        for name, values in islice(group.rewards.items(), LISTED_SCORES)
    }
    return ListedGroup(lengths.tobytes(), scores, group.shown)


def _bytes(pattern: tuple[int, ...]) -> bytes:
    """The first places; numbers are given by first appearance, so that none is greater than its place."""
    return bytes(number & 0xFF for number in pattern[:POSITIONS])
