"""What a console's parser asks about tables of completions, which are read elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from grpo_watch.engine.records import CompletionSummary, Scalar
from grpo_watch.sources.base import SourceStats


class TextTables(Protocol):
    """A reader of printed tables of completions; while one is open, every line comes."""

    @property
    def open(self) -> bool:
        """Whether a table is open."""

    def begins(self, data: bytes) -> bool:
        """Whether a table opens in this line."""

    def feed(self, data: bytes, stats: SourceStats, seen: float | None) -> CompletionSummary | None:
        """The summary of the table that this line completes."""

    def state(self) -> Mapping[str, Scalar]:
        """What must be remembered across a restart."""


TablesFrom = Callable[[str, int, Mapping[str, Scalar]], TextTables]
"""Makes a reader of a channel, its segment and the state that an earlier one gave."""
