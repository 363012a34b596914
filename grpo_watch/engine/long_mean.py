"""Follows the mean of many rows against the best such mean: falls that few noisy rows can't show."""

from __future__ import annotations

from collections import deque
from math import sqrt

NOISE_FACTOR = 6.0
"""A fall of the reward must exceed this many standard errors of the difference of two means: the extremes of 100,000
noisy rows lie about 8 standard errors of one mean apart."""
ROWS = 25
"""Rows of the mean. One group of a few completions per row (the usual single-GPU run) has a noise of the size of the
reward itself: 0.76 at a best of 2.4, 0.23 at 0.78 in two public runs. A mean of 5 rows can't tell its loss."""
BEGINNING = 5
"""First rows that say where the run began: in ``ROWS`` of them half of the gain may be over."""
SPREADS = 1.5
"""A fall that is wider than the rewards of completions ever lay apart, in standard deviations. Collapses of three
public runs: 2.9 to 4.4; healthy real runs: 1.5 once (a resume that kept half of its gain), else 0.8. Rewards of 0 and 1
with a deviation of 0.5 must fall by 0.75."""


class LongMean:
    """``mean`` is that of the newest ``ROWS`` values (None until they are in), ``highest`` the best so far."""

    __slots__ = ("_start", "_total", "_values", "highest", "mean")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=ROWS)
        self._total = 0.0
        self._start: float | None = None
        self.mean: float | None = None
        self.highest = float("-inf")

    @property
    def start(self) -> float | None:
        """The mean of the first ``BEGINNING`` values."""
        return self._start

    def push(self, value: float) -> None:
        """Take the value of a row."""
        if len(self._values) == ROWS:
            self._total -= self._values[0]
        self._values.append(value)
        self._total += value
        if len(self._values) == BEGINNING:
            self._start = self._total / BEGINNING
        elif len(self._values) == ROWS:
            self.mean = mean = self._total / ROWS
            self.highest = max(self.highest, mean)

    def fell(self, share: float, noise: float, newest: float, spread: float) -> bool:
        """Whether ``share`` of the best mean (or of the gain) is lost, beyond what ``noise`` of a row explains.

        ``newest`` is the mean of the last few rows: what has come back is not lost any more. ``spread`` as in ``lost``.
        """
        if self.mean is None or self._start is None:
            return False
        scale = lost(self.highest, self.highest - self._start, share, spread)
        return scale > 0.0 and self.highest - max(self.mean, newest) >= max(
            scale, NOISE_FACTOR * noise * sqrt(2.0 / ROWS)
        )


def lost(best: float, gain: float, share: float, spread: float) -> float:
    """How far a reward must fall to have lost ``share`` of its best (or of its gain since the start).

    A best at or below zero has no natural scale: it must at least double, or lose ``share`` of the gain. Where a
    constant is added to every reward, zero says nothing at all. So a fall also counts that is ``SPREADS`` times as
    wide as the ``spread`` of single completions ever was (negative: not known) and takes ``share`` of the gain.
    """
    from_zero = share * max(best, gain) if best > 0.0 else max(-best, share * gain)
    return from_zero if spread < 0.0 else min(from_zero, max(SPREADS * spread, share * gain))
