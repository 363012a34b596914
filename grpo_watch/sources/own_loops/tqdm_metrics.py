"""Reads the metrics that own training loops show in a progress bar: ``12/100 [00:04<00:29, reward=0.5]``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.sources.own_loops.fields import fields_of
from grpo_watch.sources.own_loops.lines import row_of

BAR = re.compile(
    r"(?<!\d)\d{1,3}%(?:\|[^|\r\n]{0,400}\|)?\s{0,20}(?P<done>\d{1,9})/(?P<total>\d{1,9})"
    r"\s?\[[\d:?]{1,20}<[\d:?]{1,20}(?:, {0,9}[\d.?]{1,20}\s?(?:[a-z]{1,12}/s|s/[a-z]{1,12}))?"
    r"(?:, (?P<postfix>[^\r\n]{3,1000}))?",
    re.IGNORECASE,
)
LABEL = 200
"""Characters before the share that may name the bar."""
SHOWS = re.compile(rb"reward|return|score|\bkl", re.IGNORECASE)
"""What a bar with metrics names; most bars are passed over by this look."""
EPOCH = re.compile(r"epoch\D{0,3}(\d{1,6})", re.IGNORECASE)


class BarRows:
    """Gives a row when the bar moves on: the last metrics shown at a count are those of the iteration.

    A bar that is redrawn with the same metrics, or counts on without new ones, gives none. One that begins again goes
    on from the steps before if its label names a later epoch.

    Args:
        state: what ``state`` gave before a restart.
    """

    def __init__(self, state: str = "") -> None:
        kept = json.loads(state) if state else [None, {}, {}, 0, 0, 0]
        self._done: int | None
        self._done, self._shown, self._given, self._first, self._offset, self._epoch = kept
        self._total = 0

    def state(self) -> str:
        """All that later bars need; empty while no bar showed metrics."""
        if self._done is None:
            return ""
        return json.dumps([self._done, self._shown, self._given, self._first, self._offset, self._epoch])

    @property
    def sure(self) -> bool:
        """Whether a bar gave a row."""
        return bool(self._given)

    def feed(self, data: bytes) -> Sequence[MetricLine]:
        """The row that this bar completes."""
        if SHOWS.search(data) is None:
            return ()
        line = data.decode("utf-8", "replace")
        if (found := BAR.search(line)) is None:
            return ()
        label = line[max(0, found.start() - LABEL) : found.start()].rpartition("%")[2].rpartition("|")[2]
        label = label.rstrip().removesuffix(":")
        text = ", ".join(filter(None, ((found["postfix"] or "").rstrip(" ]"), label)))
        values = {one.name: one.value for one in fields_of(text) if not (one.is_step or one.counts)}
        if row_of(1, values) is None:
            return ()
        done, total = int(found["done"]), int(found["total"])
        rows = self._moved(done, total, label) if done != self._done else ()
        self._done, self._shown, self._total = done, values, total
        return rows

    def flush(self) -> Sequence[MetricLine]:
        """The row of the last iteration."""
        return self._row()

    def _moved(self, done: int, total: int, label: str) -> Sequence[MetricLine]:
        epoch = int(named[1]) if (named := EPOCH.search(label)) is not None else 0
        if self._done is None:
            self._first, self._epoch = done, epoch
            return ()
        rows = self._row()
        if done < self._done:
            self._offset = self._offset + total if epoch > self._epoch else 0
            self._first, self._epoch = done, epoch
        return rows

    def _row(self) -> Sequence[MetricLine]:
        if self._done is None or self._shown == self._given:
            return ()
        self._given = self._shown
        row = row_of(self._done + self._offset + (self._first == 0), self._shown)
        return (row,) if row is not None else ()
