"""Turns a learning rate that is logged one step early into the one that was applied.

ms-swift (and new verl) log the scheduler's rate after it stepped: the row of step N shows what step N + 1 will use
(real run 19 of ms-swift 4.6.0: row 1 shows 8.3e-05 although 0 was applied).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AppliedRate:
    """Remembers the previous row of one channel."""

    step: int | None = None
    segment: int = 0
    logged: float | None = None

    def shift(self, step: int | None, segment: int, logged: float | None) -> float | None:
        """The rate applied at ``step``, or None where the rows don't decide it.

        Consecutive rows: exactly the previous row's logged rate. Rows k steps apart: that rate was applied at the
        first step of the window; it stands for the window if both ends agree that the rate is positive, or that it is
        0 (a schedule that ends at 0 logs 0 in its last row although a positive rate was applied).
        The first row, a row after a step back and the first row of a new segment have no predecessor.
        """
        before, self.logged = self.logged, logged
        distance = step - self.step if step is not None and self.step is not None and segment == self.segment else 0
        self.step, self.segment = step, segment
        if distance < 1 or before is None:
            return None
        if distance == 1:
            return before
        return before if logged is not None and (before > 0) == (logged > 0) else None
