"""The measures of disagreement between trainer and rollout engine about the same tokens, each with its own scale."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import median

from grpo_watch.engine.window import Window, correlation, ranks


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """A measure that grows from ``zero`` with the disagreement.

    Differences of kernels and precision stay below ``floor``. Above ``limit`` a gap needs a look, above ``broken`` the
    weights are others. ``source`` says where the limit comes from.
    """

    metric: str
    floor: float
    limit: float
    broken: float
    source: str
    zero: float = 0.0

    def of(self, values: Mapping[str, float | None]) -> float | None:
        """The row's distance from full agreement; None if it is not logged or not finite."""
        value = values.get(self.metric)
        return value - self.zero if value is not None and isfinite(value) else None


LOGPROB = "logprob_gap_rollout"
GAPS = (
    LogprobGap(LOGPROB, 0.05, 0.1, 0.3, "five times the 0.02 of healthy runs with vLLM; TRL #5312 showed 0.81"),
    LogprobGap("probability_gap_rollout", 0.01, 0.01, 0.06, "verl's FAQ: below 0.005 is normal, above 0.01 is not"),
    LogprobGap("kl_rollout", 0.01, 0.1, 0.1, "verl's rollout_corr guide: look above 0.1"),
    LogprobGap("probability_error_rollout", 0.02, 0.05, 0.3, "NeMo-RL's guide: look above 1.05", zero=1.0),
)
"""In order of preference for a detector that needs a single one. All are measured before any masking."""

METRICS = frozenset(gap.metric for gap in GAPS)

SHARE_OF_ENTROPY = 0.15
"""Share of the entropy above which the entropy does not explain a gap of log-probabilities."""
NEWEST = 5
"""Values whose median is the current level; as many at the start are the run's own normal."""
BEFORE = 10
"""Values before a leap to compare it with."""


def newest_gap(values: Mapping[str, float | None]) -> tuple[LogprobGap, float] | None:
    """The preferred measure that the row carries and its distance, or None."""
    for gap in GAPS:
        if gap.metric in values:
            distance = gap.of(values)
            return None if distance is None else (gap, distance)
    return None


def unexplained(gap: LogprobGap, distance: float, entropy: float | None) -> bool:
    """Whether the gap is larger than the entropy explains.

    The error of a log-probability grows with the entropy: 0.03 to 0.1 of it in healthy runs, 0.05 also in a run whose
    entropy exploded to 5 nats (gap 0.25). Weights other than the trainer's give gaps of the entropy's own order.
    """
    return gap.metric != LOGPROB or entropy is None or distance >= SHARE_OF_ENTROPY * entropy


FRESH_TOO = "samples of the current weights show it too"
ONLY_AGED = "only older samples show it"
KEPT_AGE = "the age of samples stays"
GREW_OLDER = "samples get older"
"""Phrase of findings where the age of samples is logged."""
OLDER = 1.0
"""Policy updates: a rise of the age that counts; samples younger than half of it are of the current weights."""

EACH = 2
"""Rows needed of either kind; the gap of each is a mean over thousands of tokens."""


class GapByAge:
    """One gap measure, separately for samples of the current weights (lag 0) and for older ones.

    A gap at lag 0 is the engine's own: precision, kernels, routing. A gap of older samples alone is staleness.
    """

    def __init__(self) -> None:
        self._apart = Window(NEWEST), Window(NEWEST)
        self._ages = Window(NEWEST)

    def push(self, gap: float, age: float | None) -> None:
        """Take a row's gap and the mean age of its samples in policy updates; does nothing if no age is logged."""
        if age is None:
            return
        self._ages.push(age)
        self._apart[age >= OLDER / 2].push(gap)

    def words(self, normal: float) -> str:
        """Which samples show a gap above ``normal``, in words; empty if either kind is missing."""
        fresh, aged = (window.median() if len(window) >= EACH else None for window in self._apart)
        if fresh is None or aged is None:
            return ""
        if fresh > normal:
            return f"; samples of the current weights show it too ({fresh:.3g} against {aged:.3g})"
        return f"; only older samples show it ({aged:.3g} against {fresh:.3g})"

    def ageing(self) -> str:
        """Whether the age of samples climbs as well, in words; empty if it is not logged."""
        first, age = self._ages.first, self._ages.median()
        if first is None or age is None:
            return ""
        if age >= first + OLDER:
            return f"; samples get older ({first:.3g} to {age:.3g} updates)"
        return f"; the age of samples stays ({age:.3g} updates)"


class GapTrend:
    """Compares a gap with the run's first ones: whether it climbs with the policy's learning, or leapt and stays.

    ``newest`` is the median of the last five values, ``first`` that of the first five. Values of a leap never count as
    calm.
    """

    def __init__(self, rows: int) -> None:
        self._recent: deque[tuple[float, float]] = deque(maxlen=rows)
        self._newest: deque[float] = deque(maxlen=NEWEST)
        self._calm = Window(BEFORE)
        self._first: list[float] = []
        self._climbing = False
        self.leapt = 0
        self.newest = self.first = 0.0

    def push(self, learnt: float, value: float, *, leap: float, broken: float) -> None:
        """Take a gap and how much was learnt by then; ``leapt`` counts the rows since it exceeded both bounds."""
        self._recent.append((learnt, value))
        self._newest.append(value)
        self.newest = sorted(self._newest)[len(self._newest) // 2]
        if value >= broken and len(self._calm) and value >= leap * (self._calm.median() or 0.0):
            self.leapt += 1
            return
        self.leapt = 0
        self._calm.push(value)
        if len(self._first) < NEWEST:
            self._first.append(value)
            self.first = median(self._first)

    @property
    def ready(self) -> bool:
        """Whether the run's own normal is known."""
        return len(self._first) == NEWEST

    def climbs(self, times: float, floor: float, order: float) -> bool:
        """Whether the level is at least ``times`` the first one and ``floor``, and rose in step with what was learnt.

        Once it was reached, it need not keep climbing.
        """
        if not self.ready or self.newest < max(floor, times * self.first):
            self._climbing = False
        elif not self._climbing and len(self._recent) == self._recent.maxlen:
            learnt, gaps = zip(*self._recent, strict=True)
            self._climbing = correlation(ranks(learnt), ranks(gaps)) >= order
        return self._climbing
