"""Finds the step of a row by its epoch, which Trainers log as the step divided by the steps of an epoch. Pure."""

from __future__ import annotations

import math

SHARP = 0.3
"""Steps that the rounding of an epoch may leave open; with more it shows no single step."""
SLACK = 0.02
LATE = 2
"""Steps that a bar may be behind its row."""
FINE = 4
"""Significant digits that transformers 5 prints; versions before round to two decimals."""


class EpochFit:
    """The number of steps of an epoch: as printed, or between two bounds that the rows so far leave.

    A step that fits stays; one that a late bar shows is corrected; where rows contradict each other nothing is.

    Args:
        state: what ``state()`` of an earlier reader gave.
    """

    def __init__(self, state: str = "") -> None:
        parts = [*state.split("|"), "", "", ""]
        self.printed = int(parts[0]) if parts[0] else None
        self.fine = bool(parts[1])
        self._bounds = _pair(parts[2])
        self._first = _pair(parts[3])

    def state(self) -> str:
        """All of it as one text."""
        pairs = (f"{pair[0]!r}:{pair[1]!r}" if pair else "" for pair in (self._bounds, self._first))
        return "|".join((str(self.printed or ""), "fine" if self.fine else "", *pairs))

    def set_length(self, length: int) -> None:
        """The trainer printed how many steps an epoch has."""
        self.printed = length

    def restart(self) -> None:
        """Another attempt begins; what was learned may be another's."""
        self._bounds = self._first = None

    def step(self, shown: int, epoch: float | None, last: int | None, total: int | None) -> int:
        """The step of a row.

        Args:
            shown: the step by what surrounds the row.
            epoch: what the row says; None or 0: nothing.
            last: the step of the row before.
            total: the planned steps.
        """
        if not epoch or epoch < 0 or not math.isfinite(epoch):
            return shown
        self.fine = self.fine or round(epoch, 2) != epoch
        half = 0.5 * (10.0 ** (math.floor(math.log10(epoch)) + 1 - FINE) if self.fine else 0.01)
        found = self._by_printed(epoch, half) if self.printed else self._by_bounds(max(shown, 1), epoch, half)
        return found if found is not None and (last or 0) < found <= (total or found) else shown

    def _by_printed(self, epoch: float, half: float) -> int | None:
        length = self.printed or 0
        step = round(epoch * length)
        return step if half * length < SHARP and abs(epoch * length - step) <= half * length + SLACK else None

    def _by_bounds(self, shown: int, epoch: float, half: float) -> int | None:
        """Keep the step if it fits the rows before; else take the one step that fits, if a late bar explains it."""
        if (found := self._fitting(shown, epoch, half)) is None:
            self._late_from_the_first(epoch, half)
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

    def _late_from_the_first(self, epoch: float, half: float) -> None:
        """Suppose that the only row so far was a step ahead of its bar as well."""
        if self._first is not None and self._first[1] < epoch:
            step, begin = self._first
            self._bounds, self._first = _length(step + 1, begin, min(half, begin / 2)), None


def _length(step: float, epoch: float, half: float) -> tuple[float, float]:
    """Between which numbers of steps an epoch has."""
    return step / (epoch + half), step / max(epoch - half, epoch / 2)


def _pair(text: str) -> tuple[float, float] | None:
    first, _, second = text.partition(":")
    return (float(first), float(second)) if second else None
