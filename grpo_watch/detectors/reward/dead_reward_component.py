"""A reward function that gives the same value row after row, so that it adds nothing to the advantages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import copysign
from types import MappingProxyType

from grpo_watch import lazy_re as re
from grpo_watch.detectors.shared.generations import BatchesPerRow
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, param
from grpo_watch.engine.evidence import FLOAT_NOISE, number
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.reward_functions import RewardFunctionKeys

LEAST_ROWS = 4
"""Fewest rows, if together they average as many generations as required."""


def enough_rows(rows: int, batches: float, least: int) -> bool:
    """Whether ``rows`` constant rows, each averaging ``batches`` generations, are enough."""
    return rows >= min(least, LEAST_ROWS) and rows * batches >= least


@dataclass(slots=True)
class ConstantScore:
    """A function's constant score: its value, since when, and the function's range before.

    ``cut`` says whether nearly all completions of these rows were cut off.
    """

    value: float
    first_step: int
    rows: int = 1
    lowest: float = float("inf")
    highest: float = float("-inf")
    fired: bool = False
    cut: bool = True

    def moves(self, value: float, std: float | None, tolerance: float) -> bool:
        """Whether this row has another value, or completions with different scores."""
        return self.rows == 0 or abs(value - self.value) > tolerance or (std is not None and std > FLOAT_NOISE)

    def move(self, value: float, std: float | None, step: int) -> None:
        """Start over with a row that moved."""
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.value, self.first_step = value, step
        self.rows = int(std is None or std <= FLOAT_NOISE)


CUT = "cut off"
MOSTLY_CUT = 0.9
"""Share of completions cut off above which the length limit explains a constant score: below it, whole completions
score the same, so the limit is not the reason."""


SUCCESS = re.compile(
    r"(?:^|[^a-z])(?:success(?:es|ful)?|solved?|pass(?:[ _]?(?:at|@)[ _]?[k\d]+|[ _-]?rate)|acc(?:uracy)?|"
    r"win[ _]?rate|correct|exact[ _]match)(?:$|[^a-z])",
    re.IGNORECASE,
)
"""Keys of the share of episodes or answers that succeeded (agent loops, verl, own scripts)."""
NO_SHARE = re.compile(r"reward|token|none|fail|time|std|min|penalty|partial|len|accuracies|count|chosen", re.IGNORECASE)
UNSOLVED = (
    "Play one task by hand through the environment and its checker, and read a few episodes to their end: look for a "
    "tool that is never called in the right form, a limit of turns or tokens, a checker that can't match. If the tasks "
    "are only too hard, begin with easier ones or with supervised fine-tuning."
)


@lru_cache(maxsize=1024)
def is_success_rate(key: str) -> bool:
    """Whether a raw key holds a share of successes; cached, since rows repeat their keys."""
    return SUCCESS.search(key) is not None and NO_SHARE.search(key) is None


class SuccessRates:
    """Follows every logged share of successes; ``rows`` counts those since all have been 0.

    A reward that has always been 0 as well is left to the rules about rewards.
    """

    def __init__(self) -> None:
        self.rows = self.since = 0
        self.name = ""
        self._keys: tuple[str, ...] = ()
        self._shares: list[str] = []
        self.ever = self.fired = self.apart = False

    def judge_row(self, row: MetricRow, least: int) -> tuple[Reading, ...]:
        """Take a row; a breach once ``least`` rows had nothing but zeros, and OK at the first success."""
        keys = tuple(row.raw)
        if keys != self._keys:  # most rows have the keys of the previous one
            self._keys, self._shares = keys, [key for key in keys if is_success_rate(key)]
        if self.ever or not self._shares:
            return ()
        shares = {key: value for key in self._shares if (value := row.raw[key]) is not None}
        if not shares:
            return ()
        total = row.values.get("reward_mean")
        self.ever = any(value != 0.0 for value in shares.values())
        if self.ever:
            return (Reading(Verdict.OK, EPISODES),) if self.fired else ()
        self.apart = self.apart or total is None or total != 0.0
        self.rows += 1
        self.since, self.name = self.since or row.step, self.name or next(iter(shares))
        self.fired = self.rows >= least and self.apart
        return (self._breach(),) if self.fired else ()

    def _breach(self) -> Reading:
        return Reading(
            Verdict.BREACH,
            EPISODES,
            value=0.0,
            message=f"{self.name} is 0 on all {self.rows} rows: nothing was ever solved, whatever moves the reward",
            evidence={self.name: 0.0, "rows": self.rows},
            first_step=self.since,
            immediate=True,
            hint=UNSOLVED,
        )


PREFILLED = (
    "Score one gold and one wrong answer manually with the function: mostly its pattern is too strict. Where the "
    "chat template ends in <think>, completions lack it and can't match (TRL#6966) - put it back before matching."
)
EPISODES = "success rate"
"""Key of the alert about shares of successes."""


class DeadRewardComponent(Detector):
    """Counts generation rows in which the mean of a function does not change and its std is 0."""

    explained_by = ("non-finite-metric", "reward-collapse", "completions-truncated")
    explained_only_as = MappingProxyType({"completions-truncated": (CUT,)})
    harmless_when_over = True

    needs = (("reward_function_mean",),)
    rows: int = param(20, "rows without change; fewer (at least 4) if they cover as many generations", minimum=3)
    tolerance: float = param(1e-6, "difference that still counts as the same value (float noise)", minimum=0)

    def setup(self) -> None:
        """Start with no functions."""
        self.constant: dict[str, ConstantScore] = {}
        self.per_row, self.batches, self.success = BatchesPerRow(), 1.0, SuccessRates()

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries reward functions."""
        keys = run.functions.of(record)
        scored = [key for key in keys if number(record, key.mean) is not None]
        self.per_row.add_row(record, tells=bool(scored))
        readings = list(self.success.judge_row(record, self.rows))
        if not scored:
            return readings or SILENT
        self.batches = self.per_row.count(run)
        cut = (run.newest("completion_truncated_ratio") or 0.0) >= MOSTLY_CUT
        for key in scored:
            self._follow(key, record, len(keys), readings, cut=cut)
        return readings or QUIET

    def _follow(
        self, key: RewardFunctionKeys, row: MetricRow, functions: int, readings: list[Reading], *, cut: bool
    ) -> None:
        value, std = row.values[key.mean] or 0.0, row.values.get(key.std)
        known = self.constant.get(key.name)
        if known is None:
            known = self.constant[key.name] = ConstantScore(value, row.step, 0)
        if known.moves(value, std, self.tolerance):
            known.move(value, std, row.step)
            known.cut = cut
            if known.fired:
                known.fired = False
                readings.append(Reading(Verdict.OK, key.name))
            return
        known.rows += 1
        known.cut = known.cut and cut
        if known.fired or enough_rows(known.rows, self.batches, self.rows):
            known.fired = True
            readings.append(self._breach(key, known, functions))

    def _breach(self, key: RewardFunctionKeys, known: ConstantScore, functions: int) -> Reading:
        ever, wanted = known.highest > known.lowest, copysign(1.0, key.weight)
        best = known.highest if wanted > 0.0 else known.lowest
        granted = not ever and functions > 1 and (known.value > 0.0 if wanted > 0.0 else known.value <= 0.0)
        solved = granted or (ever and wanted * known.value >= wanted * best - self.tolerance)
        at = "highest" if wanted > 0.0 else "lowest"
        how = "never gave another value" if not ever else f"stays at its {at}" if solved else "has given better values"
        evidence: dict[str, Scalar] = {"value": known.value, "rows": known.rows, "functions": functions}
        if known.cut:
            evidence["kind"] = CUT
        return Reading(
            Verdict.BREACH,
            key.name,
            value=known.value,
            severity=Severity.INFO if solved or key.weight == 0.0 else None,
            message=f"{key.name} is exactly {known.value:g} on {known.rows} rows in a row, without spread: it {how}"
            + (", and its weight is 0" if key.weight == 0.0 else ""),
            evidence=evidence,
            first_step=known.first_step,
            immediate=True,
            hint=PREFILLED if not ever and known.value == 0.0 and "format" in key.name.lower() else "",
        )
