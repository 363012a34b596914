"""Decides which optimizer step a console row without a step belongs to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from grpo_watch.engine.records import Scalar
from grpo_watch.frameworks.row_numbers import whole
from grpo_watch.sources.console.epoch_fit import EpochFit
from grpo_watch.sources.console.progress_bar import ProgressBar

SLOTS = 256
"""Announced rows that are waited for: a block-buffered log is behind its bars by at most two 8 KB buffers."""


class StepPlacement:
    """The state that rows are placed by.

    tqdm writes a row in three moves: it wipes the bar, writes the row, and draws the bar again, which then shows the
    row's step (the bar *before* the row may be stale: it is redrawn at most ten times a second). A wipe with a redraw
    but no row between them shows that a row sits in a buffer: its step waits in ``slots``, first in, first out, until
    the buffer is flushed. Rows without any wipe are placed by the bar above them, by the title of TRL's table, or, if
    nothing shows a step, counted: ``gap`` steps from row to row, which only two rows in succession whose steps were
    shown prove. A piece out of the middle of a log has rows before its first bar, and these prove nothing.
    """

    def __init__(self, state: Mapping[str, Scalar]) -> None:
        self.total = whole(state.get("total"))
        self.bar = whole(state.get("bar"))
        self.last = whole(state.get("last"))
        self.gap = whole(state.get("gap")) or 1
        self.rows = whole(state.get("rows")) or 0
        self.candidate = whole(state.get("candidate"))
        self.wiped = state.get("wiped") is True
        self.titled = state.get("titled") is True
        self.over = state.get("over") is True
        self.follows = whole(state.get("follows"))
        self.guess: int | None = None
        self.guessed = state.get("guessed") is True
        self.epochs = EpochFit(str(state.get("epochs") or ""))
        self.slots = deque((int(slot) for slot in str(state.get("slots") or "").split()), maxlen=SLOTS)

    def state(self) -> dict[str, Scalar]:
        """All of it as JSON scalars."""
        return {
            "total": self.total,
            "bar": self.bar,
            "last": self.last,
            "gap": self.gap,
            "rows": self.rows,
            "candidate": self.candidate,
            "wiped": self.wiped,
            "titled": self.titled,
            "over": self.over,
            "follows": self.follows,
            "guessed": self.guessed,
            "epochs": self.epochs.state(),
            "slots": " ".join(map(str, self.slots)),
        }

    def at_once(self, *, train: bool) -> int | None:
        """The step of a row that came just now, or None if what comes next decides it."""
        if self.wiped:
            return None
        if not train:
            return self.last if self.slots or self.bar is None else self.bar
        if self.slots:
            return self.slots.popleft()
        if self.bar is not None:
            return self.bar if self.last is None or self.bar > self.last else self.counted()
        return None if self.titled or self.last is None else self.counted()

    def counted(self) -> int:
        """The step of a row about which nothing is known but the rows before it."""
        self.guess = (self.last or 0) + self.gap
        return self.guess

    def fitted(self, step: int, epoch: float | None) -> int:
        """The step of a train row, corrected by its epoch; a bar at 0 was drawn before the first step."""
        fitted = self.epochs.step(step, epoch, self.last, self.total)
        return fitted if fitted or self.last is not None else 1

    def placed(self, step: int) -> None:
        """A train row was placed at this step."""
        guessed, self.guess = step == self.guess, None
        if self.last is not None and step > self.last and not (guessed or self.guessed):
            self.gap = step - self.last
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
        """Forget the attempt that is over; ``gap`` stays."""
        self.bar = self.last = self.candidate = self.follows = None
        self.rows = 0
        self.wiped = self.over = False
        self.slots.clear()
        self.epochs.restart()

    def another(self) -> None:
        """A training that printed its summary is followed by another one, of which the bar drawn since then is."""
        bar, total, wiped = self.follows, self.candidate, self.wiped
        self.restart()
        self.bar, self.total, self.wiped = bar, total if bar is not None else None, wiped
        self.gap, self.guessed = 1, False

    def drawn(self, bar: ProgressBar, *, rows_wait: int, train_waits: bool) -> bool:
        """The training bar was drawn. True if it shows the step of the one row that waits."""
        self.bar, self.total = bar.step, bar.total
        direct = rows_wait == 1
        if direct and train_waits:
            self.slots.clear()
        elif self.wiped and not direct and bar.step and (not self.slots or self.slots[-1] != bar.step):
            self.slots.append(bar.step)
        self.wiped = False
        return direct
