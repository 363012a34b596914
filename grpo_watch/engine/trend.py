"""A run against its own past: reward, spread, entropy, KL, length, truncation and repeated texts.

Several rules alarm only if a second sign agrees; the signs are judged here, once, in the same way for all.
"""

from __future__ import annotations

from enum import Enum
from math import inf, isfinite, sqrt
from statistics import median

from grpo_watch.engine.evidence import FLOAT_NOISE, spread_of_completions
from grpo_watch.engine.metric_trend import (
    BEGINNING,
    NOISE_FACTOR,
    ROWS,
    WIDTH,
    CountedTrend,
    LongMean,
    MetricTrend,
    NoisyTrend,
    RewardTrend,
)
from grpo_watch.engine.records import CompletionSummary, MetricRow
from grpo_watch.engine.window import ROWS_AHEAD, StepHistory

HALF, MOST = 0.5, 0.66
"""Shares of the best reward: a loss of half is a setback, a loss of most is the sign."""
ENTROPY_LOW, ENTROPY_HIGH = 0.2, 3.0
"""Multiples of the run's first entropy (healthy real runs: 0.28 to 1.3)."""
LENGTH_LOW, LENGTH_HIGH = 0.3, 1.5
"""Multiples of the run's longest and of its shortest mean length (alone they prove nothing)."""
CUT_OFF = 0.8
"""Truncated share from which most completions are cut off."""
REPEATED = 0.5
"""Share of copies inside groups that counts as many."""
KL_HIGH = 1.5
"""Nats per token; healthy real runs with a usual learning rate stay at 1.0 or below."""


LOSS = 0.3
"""Share of the best reward (or of the gain) that counts as lost beside other signs: half of what ``reward-collapse``
requires."""
ERRORS = 4.0
"""Standard errors by which the reward fell below its best (six if the reward is judged alone)."""
START_ERRORS = 3.0
"""Standard errors below the first rows; fewer, since the first rows were not selected as an extreme."""
BELOW = 0.1
"""Share of the first reward that must be lost to call the reward lower than at the start."""
MISSING = 0.05
"""Distance from 1 within which a mean reward of 0…1 has nothing left to gain: tasks that were solved from the start."""
CUT, CUT_RISE = 0.2, 0.2
"""Truncated share that is clearly more than before, and its rise above the lowest mean."""
GREW_FAR, SHRANK_FAR = 3.0, 0.3
"""Multiples of the first length that count as far from it. Healthy real runs without a gain: 2.1, with nothing cut off;
down to 0.43 with a rising reward."""


LEVELS = ("curriculum/level", "curriculum_level", "curriculum_stage", "curriculum")
"""Keys of a curriculum's difficulty as a whole number: rewards are compared within a level. A bare ``level`` is often a
logger's (30 is a warning)."""
STAY = 10
"""Rewards that a level needs before a step up counts (a counter of rows is no level), and after which rewards still at
the floor are a collapse: as many steps as ``reward-collapse`` waits."""
FLOOR = 0.1
"""Share of the previous level's best reward up to which the policy lost everything, rather than met harder tasks."""


class TrendSign(str, Enum):
    """A second sign that something is wrong, worded to complete a message."""

    REWARD_FELL = "reward fell"
    SPREAD_LOST = "reward spread is lost"
    CUT_OFF = "completions run into the length limit"
    TEXTS_REPEAT = "texts repeat"
    ENTROPY_FELL = "entropy fell"
    ENTROPY_ROSE = "entropy rose"
    LENGTH_FELL = "completions shrank"
    LENGTH_ROSE = "completions grew"
    KL_HIGH = "KL is high"


class Trend:
    """The tracks of one run, fed with every train row and every dumped batch, and the signs they show."""

    def __init__(self) -> None:
        self.reward, self.long_reward = RewardTrend(), LongMean()
        self.silent, self.entropy, self.kl = CountedTrend(), MetricTrend(), MetricTrend()
        self.length, self.truncated, self.repeated = NoisyTrend(), MetricTrend(), MetricTrend()
        self._plain = (
            ("entropy", self.entropy),
            ("kl_reference", self.kl),  # these two are means over the tokens of the loss
            ("completion_length_mean", self.length),
            ("completion_truncated_ratio", self.truncated),
            ("completion_duplicate_ratio", self.repeated),
        )
        self.entropy_by_step = StepHistory(ROWS_AHEAD)
        self._rows = 0
        self._known_from = 0
        self._level = self._hardest = -inf
        self._stayed = 0
        self._easier: tuple[RewardTrend, LongMean] | None = None

    def add_row(self, row: MetricRow, silent: float | None, *, diluted: bool = False) -> None:
        """Take one train row, supplements included (they carry other keys).

        ``silent`` is the share of its groups without a signal (``evidence.no_signal_ratio``); ``diluted`` says that its
        entropy and KL are not those of the policy (``engine/learning.py``).
        """
        values = row.values
        for metric, track in self._plain[2:] if diluted else self._plain:
            value = values.get(metric)
            if value is not None and isfinite(value):
                track.push(value)
        entropy = values.get("entropy")
        if entropy is not None and not diluted and isfinite(entropy):
            self.entropy_by_step.push(row.step, entropy)
        for key in LEVELS:
            if key in row.raw:
                self._at_level(row.raw[key])
                break
        self._add_reward(values.get("reward_mean"), spread_of_completions(row))
        if silent is not None:
            self.silent.push(silent)
        if self._rows < WIDTH:
            self._rows += 1
            self._known_from = row.step

    def _add_reward(self, reward: float | None, spread: float | None) -> None:
        now = (self.reward, self.long_reward)
        for track, long in (now, self._easier) if self._easier else (now,):
            if reward is not None and isfinite(reward):
                track.push(reward)
                long.push(reward)
            if spread is not None:
                track.spread.push(spread)
        self._stayed += reward is not None
        if self._easier and self._stayed >= STAY:
            self._compare(*self._easier)

    def _at_level(self, level: float | None) -> None:
        """Set the rewards of easier tasks aside once the curriculum is harder than ever before.

        Not if the reward has already fallen: it fell on the tasks that it knew.
        """
        if level is None or level == self._level or not level.is_integer():
            return
        if -inf < self._hardest < level and self._stayed >= STAY and not self.reward.fell(MOST):
            self._easier = (self.reward, self.long_reward)
            self.reward, self.long_reward = RewardTrend(), LongMean()
        self._level, self._hardest, self._stayed = level, max(self._hardest, level), 0

    def _compare(self, reward: RewardTrend, long: LongMean) -> None:
        """Drop the rewards of easier tasks, unless the policy has lost everything since."""
        if self.reward.highest <= min(FLOOR * reward.highest, reward.highest / FLOOR):
            self.reward, self.long_reward = reward, long
        self._easier = None

    def add_batch(self, batch: CompletionSummary) -> None:
        """Take the share of completions that repeat another one of their group."""
        size = sum(group.size for group in batch.groups)
        if size:
            self.repeated.push(1.0 - sum(group.unique for group in batch.groups) / size)

    def resumed(self, step: int) -> Trend:
        """The trend for a new attempt at ``step``: with the past kept, unless the run starts over."""
        if self._rows < WIDTH or step <= self._known_from:
            return Trend()
        for track in (self.reward, self.silent, *(track for _, track in self._plain)):
            track.rewind()
        self.entropy_by_step, self.long_reward = StepHistory(ROWS_AHEAD), LongMean()
        self._level = self._hardest = -inf  # the checkpoint may lie before the last step up
        self._easier = None
        return self

    def cut_off(self) -> bool:
        """Whether the length limit now cuts off most completions, unlike before."""
        return _risen_to(self.truncated, level=CUT_OFF, rise=0.5)

    def more_cut_off(self) -> bool:
        """Whether the limit cuts off clearly more completions than before."""
        cut = self.truncated
        return cut.mean is not None and cut.mean >= CUT and cut.mean >= cut.lowest + CUT_RISE

    def reward_lost(self) -> bool:
        """Whether ``LOSS`` of the best reward is lost, in means of few rows or of many."""
        reward, long = self.reward, self.long_reward
        if reward.mean is None:
            return False
        noise = reward.noise * ERRORS / NOISE_FACTOR
        lasting = long.mean is not None and long.fell(LOSS, noise, reward.mean, reward.spread.highest)
        return lasting or reward.below_best(LOSS, ERRORS)

    def reward_below_start(self) -> bool:
        """Whether the reward is ``BELOW`` lower than in the first rows, in means of few rows or of many."""
        reward, long = self.reward, self.long_reward
        if reward.mean is None or not reward.start or abs(reward.start) <= FLOAT_NOISE:
            return False
        least, error = BELOW * abs(reward.start), START_ERRORS * reward.noise
        if reward.start - max(reward.mean, median(reward.newest)) >= max(least, error * sqrt(2.0 / WIDTH)):
            return True
        lasting = None if long.mean is None else reward.start - max(long.mean, reward.mean)
        return lasting is not None and lasting >= max(least, error * sqrt(1.0 / BEGINNING + 1.0 / ROWS))

    def reward_above_start(self) -> bool:
        """Whether the mean of many rows exceeds the first reward by ``BELOW`` of it: not flat, though no gain yet.

        Uses the mean of the newest rows until there are enough.
        """
        reward, long = self.reward, self.long_reward
        mean, rows = (reward.mean, WIDTH) if long.mean is None else (long.mean, ROWS)
        if reward.start is None or mean is None:
            return False
        error = START_ERRORS * reward.noise * sqrt(1.0 / BEGINNING + 1.0 / rows)
        return mean - reward.start >= max(BELOW * abs(reward.start), error)

    def reward_does_well(self) -> bool:
        """Whether the reward gained, has nothing to gain, or lies above its start and has not fallen since."""
        reward = self.reward
        if reward.mean is None:
            return False
        full = reward.lowest >= 0.0 and 1.0 - MISSING <= reward.mean <= reward.highest <= 1.0
        return full or reward.gained() or reward.solved or (self.reward_above_start() and not self.reward_lost())

    def _spread_lost(self) -> bool:
        """Whether most groups have no spread, unlike before, beyond the chance of a few groups."""
        return _risen_to(self.silent, level=0.7, rise=0.3, first=self.silent.first) and not self.silent.by_chance()

    def signs(self) -> frozenset[TrendSign]:
        """All signs at the newest row."""
        found = (
            (TrendSign.REWARD_FELL, self.reward.fell(MOST)),
            (TrendSign.SPREAD_LOST, self._spread_lost()),
            (TrendSign.CUT_OFF, self.cut_off()),
            (TrendSign.TEXTS_REPEAT, _risen_to(self.repeated, level=REPEATED, rise=0.3)),
            (TrendSign.ENTROPY_FELL, self.entropy.ratio(self.entropy.start) <= ENTROPY_LOW),
            (TrendSign.ENTROPY_ROSE, self.entropy.ratio(self.entropy.start) >= ENTROPY_HIGH),
            (TrendSign.LENGTH_FELL, self.length.ratio(self.length.highest) <= LENGTH_LOW),
            (TrendSign.LENGTH_ROSE, grown(self.length, LENGTH_HIGH)),
            (TrendSign.KL_HIGH, self.kl.mean is not None and abs(self.kl.mean) >= KL_HIGH),
        )
        return frozenset(sign for sign, shows in found if shows)


LENGTH_ERRORS = 3.0
"""Standard errors by which completions must be longer than at the start: the shortest of thousands of rows of a few
completions each is far below the usual length."""


def grown(length: NoisyTrend, times: float) -> bool:
    """Whether completions are ``times`` as long as at their shortest, and longer than at the run's start beyond noise.

    Growing back after a collapse is no explosion.
    """
    if length.mean is None or length.start is None or length.ratio(length.lowest) < times:
        return False
    return length.mean - length.start >= LENGTH_ERRORS * length.noise * sqrt(2.0 / WIDTH)


def _risen_to(track: MetricTrend, *, level: float, rise: float, first: float | None = None) -> bool:
    """Whether a share is high now and was once clearly lower (over ``WIDTH`` rows, or at its first row if given)."""
    if track.mean is None:
        return False
    least = track.lowest if first is None else min(first, track.lowest)
    return track.mean >= level and track.mean >= least + rise


def named(signs: frozenset[TrendSign]) -> str:
    """The signs in words, in a fixed order: ``reward fell, completions shrank``."""
    return ", ".join(sign.value for sign in TrendSign if sign in signs)


def shown(value: float | None) -> float | None:
    """A value for evidence: four significant digits."""
    return None if value is None else float(f"{value:.4g}")
