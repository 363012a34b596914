"""Questions about a row: has it a finite number, had its step a learning signal, how far do rewards lie apart?"""

from __future__ import annotations

from math import isfinite

from grpo_watch.engine.records import MetricRow


def is_zero(value: float, resolution: float | None) -> bool:
    """Whether a printed value is zero: exactly where the channel prints true zeros, else below half its resolution."""
    return value == 0.0 if resolution is None else abs(value) < resolution / 2


NO_SPREAD = 0.999
"""Zero-std ratio from which all groups count as zero-std, as four printed digits show it."""
FLOAT_NOISE = 1e-6
"""A reward spread below this is float noise: the std of eight equal float32 rewards was seen at 3e-8 and 6e-8 (TRL
1.16.0, rewards -0.32 and 0.95)."""


DIGITS = 1000.0
"""Multiple of the log's resolution from which two measurements of a number differ: 0.018 in steps of 1e-6."""


def number(row: MetricRow, metric: str) -> float | None:
    """The finite value of a metric in this row, or None (not logged, null, NaN, infinite)."""
    value = row.values.get(metric)
    return None if value is None or value - value != 0.0 else value  # NaN and infinity differ from themselves


def no_signal_ratio(row: MetricRow) -> float | None:
    """Share (0…1) of this row's groups whose rewards are all equal; None if the row can't tell.

    Prefers the framework's own zero-std ratio; a mean spread inside groups of (nearly) zero means every group; so do
    verl's advantages if all are zero. The batch's spread says nothing about the groups unless it is zero itself. If the
    total is not a finite number, neither are the spreads, which TRL 1.16.0 counts as "not zero".
    """
    values = row.values
    if "reward_mean" in values and number(row, "reward_mean") is None:
        return None
    batch = values.get("reward_batch_std")
    group = values.get("reward_group_std")
    if (batch is not None and batch < FLOAT_NOISE) or (group is not None and group < FLOAT_NOISE):
        return 1.0
    ratio = values.get("reward_zero_std_ratio")
    if ratio is not None and isfinite(ratio):
        return min(1.0, max(0.0, ratio))
    if group is not None and group == group:  # noqa: PLR0124 - NaN is no data
        return 0.0
    return _from_advantages(row) if "advantage_max" in values else None


class SameNumber:
    """Counts the newest rows with an identical number other than 0, printed with enough digits to differ.

    Measurements of different batches never agree in all of their digits; a placeholder does, and so does a metric of a
    policy and a batch that do not change.
    """

    __slots__ = ("_value", "rows", "since")

    def __init__(self) -> None:
        self._value, self.rows, self.since = 0.0, 0, 0

    def count(self, value: float, step: int, resolution: float | None) -> int:
        """The number of such rows up to this one; at most 1 if the number is 0 or has too few digits to differ."""
        if value != self._value:
            self._value, self.rows, self.since = value, 1, step
        elif abs(value) >= DIGITS * (resolution or 0.0) and f"{value:.4g}" != f"{value:.2g}":
            self.rows += 1
        else:
            self.rows, self.since = 0, step
        return self.rows


OUTLASTS = 3
"""Multiple of the longest earlier zeros that the newest ones must last: loops that skip flat batches, or log every
micro-step, print several in a row."""


class ZeroStreak:
    """Counts the newest rows in a row whose number is 0 (since step ``since``), and the longest earlier streak."""

    __slots__ = ("_longest", "rows", "since")

    def __init__(self) -> None:
        self.rows = self.since = self._longest = 0

    def add(self, step: int, *, zero: bool) -> None:
        """Take a row."""
        if not zero:
            self._longest, self.rows = max(self._longest, self.rows), 0
            return
        self.since = self.since if self.rows else step
        self.rows += 1

    def outlasts(self, least: int) -> bool:
        """Whether these zeros last ``least`` rows, and clearly longer than earlier ones."""
        return self.rows >= max(least, OUTLASTS * self._longest)


def spread_of_completions(row: MetricRow) -> float | None:
    """Standard deviation of the rewards of single completions; None if the row does not tell.

    The batch's if it is logged, else that of a group whose rewards differ (groups without a spread make the logged mean
    smaller by their share).
    """
    values = row.values
    batch = values.get("reward_batch_std")
    if batch is not None:
        return batch if isfinite(batch) else None
    group = values.get("reward_group_std")
    if group is None or not isfinite(group):
        return None
    live = 1.0 - (values.get("reward_zero_std_ratio") or 0.0)
    return group / live if live > 0.0 else None


def _from_advantages(row: MetricRow) -> float | None:
    high, low = number(row, "advantage_max"), number(row, "advantage_min")
    if high is None or low is None:
        return None
    return 1.0 if high == 0.0 == low else 0.0
