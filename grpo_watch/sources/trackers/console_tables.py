"""Puts together what the tables of completions in a console give: each batch once, evaluations apart."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_watch.engine.records import CompletionSummary, Scalar
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.completions.printed_table import PrintedTables
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.trackers.logged_tables import LoggedTables


class ConsoleTables:
    """What a console's parser asks about the lines of printed tables (``sources.tables.text_tables``)."""

    def __init__(self, channel: str, segment: int, state: Mapping[str, Scalar], *, examples: KeptTexts) -> None:
        self._printed, self._examples = PrintedTables(), examples
        self._logged = LoggedTables(channel, lambda: None, segment, state, examples=examples)

    @property
    def open(self) -> bool:
        """Whether a table is open."""
        return self._printed.open

    def begins(self, data: bytes) -> bool:
        """Whether a table opens in this line."""
        return self._printed.begins(data)

    def feed(self, data: bytes, stats: SourceStats, seen: float | None) -> CompletionSummary | None:
        """The summary of the table that this line completes."""
        found = self._printed.feed(data, examples=self._examples)
        return self._logged.once(*found, stats, seen) if found is not None else None

    def state(self) -> dict[str, Scalar]:
        """What must be remembered across a restart."""
        return self._logged.made()
