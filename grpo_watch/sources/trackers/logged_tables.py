"""Summarises tables of completions that a tracker logged or a console printed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from grpo_watch.engine.records import CompletionSummary, Scalar, Stream
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, SourceStats
from grpo_watch.sources.completions.completion_table import PrintedTables, summarised
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.excerpt_privacy import KeptTexts


class LoggedTables:
    """Summarises tables with the columns ``step``, ``prompt``, ``completion``, one per reward function, ``advantage``.

    TRL logs the batch that it holds with every log event, also when no new one was generated: a table that repeats the
    one before is a duplicate. A second, different one under the same step comes from an evaluation.

    Args:
        channel: the source's name.
        group_size: G as configured, asked at each table; None: derived from the prompts.
        segment: order among the files of this kind.
        state: of an earlier reader (see ``state``).
        examples: what summaries carry of the texts.
    """

    def __init__(
        self,
        channel: str,
        group_size: Callable[[], int | None],
        segment: int = 0,
        state: Mapping[str, Scalar] | None = None,
        *,
        examples: KeptTexts = KeptTexts.EXCERPT,
    ) -> None:
        self._channel, self._segment, self._examples = channel, segment, examples
        self._group_size = group_size
        self._digest = str((state or {}).get("digest") or "")
        self._step = row_numbers.whole((state or {}).get("table"))
        self._saved: tuple[str, int | None] = (self._digest, self._step)
        self._made: deque[tuple[str, int | None]] = deque()

    def given(self) -> None:
        """The oldest summary that was made and not yet given out is given out now."""
        self._saved = self._made.popleft()

    def state(self) -> dict[str, Scalar]:
        """What must be remembered across a restart, as of the summary given out last."""
        return {"digest": self._saved[0], "table": self._saved[1]}

    def made(self) -> dict[str, Scalar]:
        """What must be remembered as of the summary made last."""
        return {"digest": self._digest, "table": self._step}

    def summary(
        self, columns: Mapping[str, Sequence[object]], stats: SourceStats, seen: float | None, step: int | None = None
    ) -> CompletionSummary | None:
        """The summary of a table, given column by column; None for another table, and for one that was seen already.

        Args:
            columns: the table.
            stats: counts what is passed over.
            seen: the driver's clock.
            step: the optimizer step, for tables without such a column.
        """
        try:
            complete = {"step": [step] if step is not None else None, **columns}
            table = summarised(complete, self._group_size(), self._examples)
        except ValueError as error:
            stats.skip(Skip.BAD_VALUE, str(error))
            return None
        return None if table is None or table.step is None else self.once(table.step, table, stats, seen)

    def once(self, step: int, grouping: Grouping, stats: SourceStats, seen: float | None) -> CompletionSummary | None:
        """The record of a table's groups; None where it repeats the table before."""
        if grouping.digest and grouping.digest == self._digest:
            stats.skip(Skip.DUPLICATE)
            return None
        stream = Stream.EVAL if step == self._step else Stream.TRAIN
        self._digest, self._step = grouping.digest, step
        self._made.append((self._digest, self._step))
        return grouping.summary(self._channel, step, stream, self._segment, seen)


class ConsoleTables:
    """What a console's parser asks about the lines of printed tables (``TextTables``)."""

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
        return None if found is None or found.step is None else self._logged.once(found.step, found, stats, seen)

    def state(self) -> dict[str, Scalar]:
        """What must be remembered across a restart."""
        return self._logged.made()
