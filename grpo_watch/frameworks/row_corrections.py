"""Evidence in rows about a logged ``reward_std`` and learning rate: whose spread it is, and which step used the rate.

TRL < 0.27 and ms-swift log the mean over groups of the spread inside a group; TRL >= 0.27 (PR 4785), TRL 0.22.0 and
0.22.1 (branches swapped) and ``scale_rewards=batch`` log the spread over the whole generation batch. A batch whose
groups are all degenerate still has a batch spread, so the two must never be mixed up.

ms-swift (and new verl) log the scheduler's rate after it stepped: the row of step N shows the rate of step N + 1 (real
run 19 of ms-swift 4.6.0: row 1 shows 8.3e-05 although 0 was applied).
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

NOISE = 1e-6
"""Spread that float32 noise alone can give, relative to max(1, |mean reward|); 6e-8 seen for rewards of 0.95."""

SAME = 2e-3
"""Largest relative difference of equal numbers printed with four digits, twice rounded, with a margin of two."""

DIFFERENT = 1e-2
"""Relative difference from which two printed numbers count as different."""

ROWS_FOR_EQUALITY = 3


class Meaning(Enum):
    """The meaning of the logged number; the value holds the canonical metrics it gives.

    No tuples: Python 3.11.0 to 3.11.2 (Debian 12) make an empty one as a member's value into a bare ``object()``.
    """

    UNKNOWN = frozenset[str]()
    GROUP = frozenset({"reward_group_std"})
    BATCH = frozenset({"reward_batch_std"})
    ONE_GROUP = frozenset({"reward_group_std", "reward_batch_std"})


class SpreadEvidence(Struct):
    """The evidence of one channel's rows about the meaning; grows with every row that has a spread."""

    equal: int = 0
    differs: bool = False
    proven_batch: bool = False
    fractional: bool = False
    several_functions: bool = False

    def add(self, spread: float | None, mean: float | None, ratio: float | None) -> bool:
        """Take one row's spread, mean reward and zero-std ratio; returns whether that changed the evidence.

        A spread above the noise in a row in which every group is degenerate is the batch's.
        """
        before = (self.proven_batch, self.fractional)
        if spread is not None and ratio is not None:
            self.proven_batch |= ratio == 1.0 and spread > noise(mean)
            self.fractional |= 0.0 < ratio < 1.0
        return before != (self.proven_batch, self.fractional)

    def add_function(
        self, spread: float | None, mean: float | None, f_spread: float | None, f_mean: float | None
    ) -> bool:
        """Compare with the only reward function, whose logged spread is always the whole batch's.

        Returns whether the row is evidence; it is not without spread, or with a weight other than 1 (seen in the mean).
        """
        if spread is None or mean is None or f_spread is None or f_mean is None:
            return False
        if not (f_spread > noise(mean) and abs(mean - f_mean) <= SAME * abs(f_mean)):
            return False
        difference = abs(spread - f_spread) / f_spread
        self.equal += difference <= SAME
        self.differs |= difference > DIFFERENT
        return True

    def meaning(self, declared: str, *, scaled_by_batch: bool, groups: int | None) -> Meaning:
        """The meaning, given what version, keys or data file declare (``group``, ``batch``, ``likely-group`` …)."""
        if groups == 1:
            return Meaning.ONE_GROUP
        if self.proven_batch or declared == "batch" or (declared in {"group", "likely-group"} and scaled_by_batch):
            return Meaning.BATCH
        if declared == "group" or self.differs:
            return Meaning.GROUP
        if self.equal >= ROWS_FOR_EQUALITY:
            return Meaning.BATCH
        if declared == "likely-group" and (self.fractional or self.several_functions):
            return Meaning.GROUP
        return Meaning.UNKNOWN


def noise(mean: float | None) -> float:
    """The largest spread that equal rewards of this mean can have in float32."""
    return NOISE * max(1.0, abs(mean)) if mean is not None and mean == mean else NOISE  # noqa: PLR0124 (NaN)


def corrected_ratio(
    spread: float | None, ratio: float | None, mean: float | None, resolution: float | None
) -> float | None:
    """The zero-std ratio, set to 1 if the spread itself shows that no group has any.

    TRL 1.x tests each group's std with an absolute tolerance of 1e-8, which float noise exceeds (real run 12 of 1.16.0:
    every group identical, yet a share below 1 in 51 of 60 rows). Either meaning of a spread below the noise implies 1.
    """
    if spread is None or ratio is None or not ratio < 1.0 or (resolution is not None and resolution > NOISE):
        return ratio
    return 1.0 if 0.0 <= spread < noise(mean) else ratio


class AppliedRate(Struct):
    """Remembers the previous row of one channel."""

    step: int | None = None
    segment: int = 0
    logged: float | None = None

    def shift(self, step: int | None, segment: int, logged: float | None) -> float | None:
        """The rate applied at ``step``, or None if the rows don't decide it.

        Consecutive rows: exactly the previous row's logged rate. Rows k steps apart: that rate was applied at the first
        step of the window; it counts for the window if both ends agree that the rate is positive, or that it is 0 (a
        schedule that ends at 0 logs 0 in its last row although a positive rate was applied). The first row, a row after
        a step back and the first row of a new segment have no predecessor.
        """
        before, self.logged = self.logged, logged
        distance = step - self.step if step is not None and self.step is not None and segment == self.segment else 0
        self.step, self.segment = step, segment
        if distance < 1 or before is None:
            return None
        if distance == 1:
            return before
        return before if logged is not None and (before > 0) == (logged > 0) else None
