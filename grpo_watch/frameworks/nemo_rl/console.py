"""Turns NeMo-RL's block of a step, from ``==== Step 7/1000 ====`` to its total time, into a row."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.line_reader import LineReader, MetricLine

HEAD = re.compile(rb"={5,80} (Step|Epoch) (\d{1,9})/(\d{1,9}) ={5,80}")
RESULTS = b"Training Results:"
FIELD = re.compile(r"\u2022 ([A-Z][A-Za-z ]{1,40}): (-?\d[\d.]{0,20}(?:e[-+]?\d{1,3})?|-?inf|nan)s?(?=\s|$)")
LAST = "Total step time"
FOUR_DECIMALS = 1e-4
EPOCHS = 10**9
"""Larger than any epoch number."""


class NemoRlLines(LineReader):
    """Holds a block until its total time; without the header of its step, the row has no step.

    Steps are counted within an epoch, so the epoch's number and the number of epochs are remembered between rows
    (``memory``: epoch plus ``EPOCHS`` times the number of epochs, 0 if no header gave it). The total is that of all
    epochs; it is unknown if more than one passed and no header gave their number.
    """

    framework = "nemo-rl"
    marks: Sequence[bytes] = (b"= Step ", b"= Epoch ", RESULTS)
    memory: int = 1

    def __init__(self) -> None:
        self._step: tuple[int, int] | None = None
        self._results = self._bare = False
        self._values: dict[str, float | None] = {}

    @property
    def held(self) -> bool:
        """Whether a block is open."""
        return self._step is not None or self._bare

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row of the block that this line ends."""
        if (head := HEAD.search(line)) is not None:
            return self._begin(head[1], int(head[2]), int(head[3]))
        if RESULTS in line:
            self._results, self._bare = True, self._step is None
        elif self._results and (found := FIELD.search(line.decode("utf-8", "replace"))) is not None:
            self._values[found[1]] = float(found[2])
            return self.flush() if found[1] == LAST else ()
        elif self._bare and not self._values and line.strip():
            self.flush()  # another program's output
        return ()

    def _begin(self, word: bytes, number: int, total: int) -> Sequence[MetricLine]:
        done = self.flush()
        if word == b"Epoch":
            self.memory = number + EPOCHS * total
        else:
            self._step = (number, total)
        return done

    def flush(self) -> Sequence[MetricLine]:
        """The row of the open block, if it has results."""
        place, values = self._step, self._values
        self._step, self._values, self._results, self._bare = None, {}, False, False
        if not values:
            return ()
        if place is None:
            return (MetricLine(None, values, resolution=FOUR_DECIMALS),)
        step, steps = place
        epochs, epoch = divmod(self.memory, EPOCHS)
        total = epochs * steps or (steps if epoch == 1 else None)
        return (MetricLine((epoch - 1) * steps + step, values, max_steps=total, resolution=FOUR_DECIMALS),)


READER = NemoRlLines
