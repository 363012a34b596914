"""Recognises progress bars and titles in a console, and reads metrics that own loops show in a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.line_reader import MetricLine
from grpo_watch.sources.rows.fields import fields_of
from grpo_watch.sources.rows.layouts import EVALUATION
from grpo_watch.sources.rows.own_lines import makes_row

BAR = re.compile(
    rb"%(?:\|[^|\r\n]{0,2000}\|)? {0,20}(\d{1,12})/(\d{1,12})"
    rb" \[(\d[\d:]{0,20})<([\d:?]{1,20})(?:, ?[^\]\r\n]{0,2000})?\]?"
)
"""``' 12%|█▎   | 12/100 [00:04<00:29,  3.05it/s]'`` from the percent sign on (tqdm 4).

A terminal without a width (a notebook's ``!``, a container's ``-t``) gets ``' 12% 12/100 [00:04<…]'``.
"""
METER = re.compile(rb"%(?=\|| {1,20}\d{1,12}/\d{1,12} \[\d)")
"""The percent sign of any bar."""
LABEL = re.compile(
    rb"(?:\x1b\[[\d;?]{0,10}[A-Za-z]|\[[\w :.-]{1,20}\]:?|\(\w{1,40} pid=\d{1,9}[^)]{0,60}\)|\s){0,99}"
    rb"("
    + b"|".join(re.escape(table.traces.bar.encode()) for table in frameworks().values() if table.traces.bar)
    + rb")?"
    rb"\s{0,9}\d{1,3}"
)
"""Text allowed before the percent sign of the training bar: a rank, colours, a framework's label."""
LONGEST_LABEL = 200
"""Characters before the percentage that may name the bar."""
NESTED = b"\x1b[A"
"""tqdm moves the cursor up after drawing a bar below another one."""
PANEL = b"\xe2\x94\x80 Step "
TITLE = re.compile(rb"\xe2\x94\x80 Step (\d{1,9}) \xe2\x94\x80")
"""The title of TRL's table of completions: ``──── Step 12 ────``."""


class ProgressBar(NamedTuple):
    """A bar without a label of its own, drawn at the outermost position; ``rest`` is the offset of the text after it.

    ``fresh``: drawn for the first time; ``named``: its label identifies it as the training bar.
    """

    step: int
    total: int
    fresh: bool
    named: bool
    rest: int


def percent_of_bar(data: bytes) -> int:
    """Return the offset of the first bar's percent sign in a piece of text; -1 if there is no bar."""
    if b"%" not in data:
        return -1
    found = METER.search(data)
    return found.start() if found is not None else -1


def training_bar(data: bytes) -> tuple[ProgressBar | None, int]:
    """Return the training bar in a piece of text, if any, and the offset after any bar (0: none at all)."""
    percent = percent_of_bar(data)
    if percent < 0 or (found := BAR.match(data, percent)) is None:
        return None, 0
    label = LABEL.fullmatch(data, max(0, percent - LONGEST_LABEL), percent) if percent <= LONGEST_LABEL else None
    end = found.end()
    if label is None or data.startswith(NESTED, end):
        return None, end
    fresh = found[4] == b"?" and found[3].strip(b"0:") == b""
    return ProgressBar(int(found[1]), int(found[2]), fresh, label[1] is not None, end), end


def title_step(data: bytes) -> int | None:
    """Return the step in the title of TRL's completion table, if any."""
    found = TITLE.search(data) if PANEL in data else None
    return int(found[1]) if found is not None else None


SHOWN = re.compile(
    r"(?<!\d)\d{1,3}%(?:\|[^|\r\n]{0,400}\|)?\s{0,20}(?P<done>\d{1,9})/(?P<total>\d{1,9})"
    r"\s?\[[\d:?]{1,20}<[\d:?]{1,20}(?:, {0,9}[\d.?]{1,20}\s?(?:[a-z]{1,12}/s|s/[a-z]{1,12}))?"
    r"(?:, (?P<postfix>[^\r\n]{3,2000}))?",
    re.IGNORECASE,
)
SHOWS = re.compile(rb"reward|return|score|\bkl", re.IGNORECASE)
"""Metric names that a bar with metrics shows; most bars lack them."""
EPOCH = re.compile(r"epoch\D{0,3}(\d{1,6})", re.IGNORECASE)


class BarRows(Struct):
    """Gives a row when the bar advances: the last metrics shown at a count are that iteration's.

    A bar redrawn with the same metrics, or advancing without new ones, gives no row. A bar that starts over continues
    the earlier steps if its label names a later epoch.
    """

    _done: int | None = None
    _shown: dict[str, float] = field(default_factory=dict)
    _given: dict[str, float] = field(default_factory=dict)
    _first: int = 0
    _offset: int = 0
    _epoch: int = 0

    @property
    def begun(self) -> bool:
        """Whether a bar showed metrics."""
        return self._done is not None

    @property
    def sure(self) -> bool:
        """Whether a bar gave a row."""
        return bool(self._given)

    def rows_of(self, data: bytes) -> Sequence[MetricLine]:
        """Return the rows completed by this bar (at most one)."""
        if SHOWS.search(data) is None:
            return ()
        line = data.decode("utf-8", "replace")
        if (found := SHOWN.search(line)) is None:
            return ()
        label = line[max(0, found.start() - LONGEST_LABEL) : found.start()].rpartition("%")[2].rpartition("|")[2]
        label = label.rstrip().removesuffix(":")
        if EVALUATION.search(label) is not None:
            return ()
        text = ", ".join(filter(None, ((found["postfix"] or "").rstrip(" ]"), label)))
        values = {one.name: one.value for one in fields_of(text) if not (one.is_step or one.counts)}
        if not makes_row(values):
            return ()
        done, total = int(found["done"]), int(found["total"])
        rows = self._moved(done, total, label) if done != self._done else ()
        self._done, self._shown = done, values
        return rows

    def flush(self) -> Sequence[MetricLine]:
        """Return the row of the last iteration."""
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
        return (MetricLine(self._done + self._offset + (self._first == 0), self._shown),)
