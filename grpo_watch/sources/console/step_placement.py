"""Derives the step of a row without one from bars, titles, other rows, or its epoch."""

from __future__ import annotations

import math
from collections import deque

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.sources.rows.bars import ProgressBar, training_bar

SLOTS = 256
"""Most announced rows awaited: a block-buffered log lags its bars by at most two 8 KB buffers."""

SHARP = 0.3
"""Most steps that an epoch's rounding may span for it to show a single step."""
SLACK = 0.02
LATE = 2
"""Steps that a bar may lag behind its row."""
FINE = 4
"""Significant digits that transformers 5 prints; versions before round to two decimals."""


class EpochFit(Struct):
    """The number of steps per epoch: as printed, or bounds derived from the rows so far.

    A step that fits is kept; the step of a late bar is corrected, unless rows contradict each other.
    """

    printed: int | None = None
    fine: bool = False
    _bounds: tuple[float, float] | None = None
    _first: tuple[float, float] | None = None

    def set_length(self, length: int) -> None:
        """Set the steps per epoch that the trainer printed."""
        self.printed = length

    def restart(self) -> None:
        """Start another attempt; the bounds learned may not apply to it."""
        self._bounds = self._first = None

    def step(
        self, shown: int, epoch: float | None, last: int | None, total: int | None, length: int | None = None
    ) -> int:
        """Return the step of a row.

        Args:
            shown: the step shown around the row.
            epoch: the row's epoch; None or 0: unknown.
            last: the step of the row before.
            total: the planned steps.
            length: steps per epoch, if the trainer printed none.
        """
        if not epoch or epoch < 0 or not math.isfinite(epoch):
            return shown
        self.fine = self.fine or round(epoch, 2) != epoch
        half = 0.5 * (10.0 ** (math.floor(math.log10(epoch)) + 1 - FINE) if self.fine else 0.01)
        length = self.printed or length
        found = _by_length(epoch, half, length) if length else self._by_bounds(max(shown, 1), epoch, half)
        return found if found is not None and (last or 0) < found <= (total or found) else shown

    def _by_bounds(self, shown: int, epoch: float, half: float) -> int | None:
        """Keep the step if it fits the rows before; else return the one step that fits, if a late bar explains it."""
        if (found := self._fitting(shown, epoch, half)) is None:
            if self._first is not None and self._first[1] < epoch:  # suppose that row was a step ahead of its bar, too
                step, begin = self._first
                self._bounds, self._first = _length(step + 1, begin, min(half, begin / 2)), None
            found = self._fitting(shown, epoch, half)
        if found is None:
            self._bounds, self._first, found = None, (shown, epoch), shown
        bounds = _length(found, epoch, half)
        low, high = self._bounds or bounds
        self._bounds = max(low, bounds[0]), min(high, bounds[1])
        self._first = self._first or (found, epoch)
        return found

    def _fitting(self, shown: int, epoch: float, half: float) -> int | None:
        if self._bounds is None:
            return None
        least, most = (epoch - half) * self._bounds[0] - SLACK, (epoch + half) * self._bounds[1] + SLACK
        if least <= shown <= most:
            return shown
        only = math.ceil(least)
        return only if only == math.floor(most) and shown < only <= shown + LATE else None


def _by_length(epoch: float, half: float, length: int) -> int | None:
    step = round(epoch * length)
    return step if half * length < SHARP and abs(epoch * length - step) <= half * length + SLACK else None


class StepPlacement(Struct):
    """State for placing rows.

    tqdm writes a row in three moves: it wipes the bar, writes the row, and redraws the bar, which then shows the row's
    step (the bar *before* the row may be stale: it is redrawn at most ten times a second). A wipe and a redraw without
    a row between them mean that the row sits in a buffer: its step waits in ``slots``, first in, first out, until the
    buffer is flushed. Rows without any wipe are placed by the bar above them, by the title of TRL's table, or, if
    nothing shows a step, counted: ``gap`` steps from row to row, known from two rows in succession with shown steps, or
    from the printed logging interval (``first``: and of a row at step 1). ``lengths`` are steps per epoch, by the total
    of the bar, from the end of the log, for counted rows: a bar may be drawn at the beginning and the end alone. In an
    excerpt from the middle of a log, rows before the first bar prove nothing.
    """

    total: int | None = None
    bar: int | None = None
    last: int | None = None
    candidate: int | None = None
    follows: int | None = None
    guess: int | None = None
    gap: int = 1
    rows: int = 0
    proved: bool = False
    wiped: bool = False
    titled: bool = False
    over: bool = False
    first: bool = False
    guessed: bool = False
    lengths: dict[int, int] = field(default_factory=dict)
    epochs: EpochFit = field(default_factory=EpochFit)
    slots: list[int] = field(default_factory=list)

    def at_once(self, *, train: bool) -> int | None:
        """Return the step of a row that came just now, or None if the next piece decides it."""
        if self.wiped:
            return None
        if not train:
            return self.last if self.slots or self.bar is None else self.bar
        if self.slots:
            return self.slots.pop(0)
        if self.bar is not None:
            return self.bar if self.bar > (self.last or 0) else self.counted()
        return None if self.titled or self.last is None else self.counted()

    def counted(self) -> int:
        """Return the step of a row by the rows before it alone."""
        last = self.last or 0
        self.guess = (last // self.gap + 1) * self.gap if self.first and last else 1 if self.first else last + self.gap
        return self.guess

    def fitted(self, step: int, epoch: float | None) -> int:
        """Return the step of a train row, corrected by its epoch; a bar at 0 was drawn before the first step."""
        length = self.lengths.get(self.total or 0) if step == self.guess else None
        fitted = self.epochs.step(step, epoch, self.last, self.total, length)
        return fitted if fitted or self.last is not None else 1

    def every(self, steps: int, *, first: bool) -> None:
        """Set the printed logging interval, and whether a row is logged at step 1; placed rows override it."""
        if not self.rows:
            self.gap, self.first, self.proved = steps, first, True

    @property
    def unknown(self) -> bool:
        """Whether the newest row was counted without a known gap between rows, or past the planned steps."""
        beyond = self.total is not None and (self.last or 0) > self.total
        return self.guessed and (beyond or not (self.proved or self.epochs.printed))

    def placed(self, step: int) -> None:
        """Note that a train row was placed at this step."""
        guessed, self.guess = step == self.guess, None
        shown = not (guessed or self.guessed or (self.first and self.last == 1))
        if self.last is not None and step > self.last and shown:
            self.gap, self.proved = step - self.last, True
        self.proved = self.proved or (not guessed and step == (self.last or 0) + self.gap)
        self.guessed = guessed
        self.last = step
        self.rows += 1

    def is_training(self, bar: ProgressBar, *, train_waits: bool) -> bool:
        """Whether this is the bar of the training loop (an evaluation's has another total)."""
        if bar.named or bar.total == self.total or self.total is None or (bar.fresh and not self.rows):
            return True
        if bar.fresh or self.over:
            self.candidate = bar.total
        self.follows = bar.step if self.over else None
        return train_waits and bar.total == self.candidate

    def begins(self, bar: ProgressBar) -> bool:
        """Whether this training bar shows that another attempt begins in the same log."""
        if bar.total != self.total:
            return self.rows > 0 and self.total is not None
        return bar.fresh and (self.rows > 0 or (self.bar or 0) > 0)

    def restart(self) -> None:
        """Forget the previous attempt; ``gap`` stays."""
        self.bar = self.last = self.candidate = self.follows = None
        self.rows = 0
        self.wiped = self.over = False
        self.slots.clear()
        self.epochs.restart()

    def another(self) -> None:
        """Start another training after a printed summary; the bar drawn since then belongs to it."""
        bar, total, wiped = self.follows, self.candidate, self.wiped
        self.restart()
        self.bar, self.total, self.wiped = bar, total if bar is not None else None, wiped
        self.gap, self.first, self.guessed, self.proved = 1, False, False, False

    def drawn(self, bar: ProgressBar, *, rows_wait: int, train_waits: bool) -> bool:
        """Note that the training bar was drawn; returns whether it shows the step of the one waiting row."""
        self.bar, self.total = bar.step, bar.total
        direct = rows_wait == 1
        if direct and train_waits:
            self.slots.clear()
        elif self.wiped and not direct and bar.step and (not self.slots or self.slots[-1] != bar.step):
            self.slots = [*self.slots, bar.step][-SLOTS:]
        self.wiped = False
        return direct


SUMMARY = re.compile(rb"['\"]train_runtime['\"][^{}\r\n]{0,1000}['\"]epoch['\"]: ['\"]?(\d{1,6}(?:\.\d{1,8})?)\b")
PIECES = re.compile(rb"[\r\n]+")
MOST_TOTALS = 4


def lengths_at_end(end: bytes) -> dict[int, int]:
    """Return steps per epoch from the end of a complete log: the epoch of the trainer's summary, and full bars.

    Keyed by the total of each full unlabelled bar before the summary, or redrawn right after it; the beginning of the
    log shows which bar is the training's.
    """
    summary = next(iter(deque(SUMMARY.finditer(end), maxlen=1)), None)
    if summary is None or not float(summary[1]):
        return {}
    redrawn = next((piece for piece in PIECES.split(end[summary.end() :])[1:] if piece.strip()), b"")
    bars = (training_bar(piece)[0] for piece in (*PIECES.split(end[: summary.start()]), redrawn))
    totals = dict.fromkeys(bar.total for bar in bars if bar is not None and bar.step == bar.total)
    found = ((total, _steps_of_epoch(total, float(summary[1]))) for total in list(totals)[-MOST_TOTALS:])
    return {total: length for total, length in found if length}


def _steps_of_epoch(total: int, epoch: float) -> int | None:
    low, high = _length(total, epoch, 0.5 * 10.0 ** -max(2, len(repr(epoch).partition(".")[2])))
    if epoch % 1:
        return math.ceil(low) if math.ceil(low) == math.floor(high) else None
    return int(total // epoch) if total % epoch == 0 else None


def _length(step: float, epoch: float, half: float) -> tuple[float, float]:
    """Return the bounds of the steps per epoch."""
    return step / (epoch + half), step / max(epoch - half, epoch / 2)
