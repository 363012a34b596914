"""The zero-std ratio of rows and dumped batches, over a window, and why it is high."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import comb, inf
from statistics import median
from typing import NamedTuple

from grpo_watch.engine.detector import RunView
from grpo_watch.engine.evidence import FLOAT_NOISE, is_zero, number
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.metric_trend import EDGE, WIDTH, CountedTrend, at_maximum
from grpo_watch.engine.records import CompletionSummary, GroupSummary, MetricRow, Reading, Scalar, Stream, Tick, Verdict
from grpo_watch.engine.reward_functions import ADVANTAGE, whole_columns
from grpo_watch.engine.window import BATCHES_AHEAD, Window, plain_sum


class SpreadOfBatches:
    """Holds each train batch until the row of its step arrives, whichever is read first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[MetricRow] = deque(maxlen=BATCHES_AHEAD)

    @property
    def any_waits(self) -> bool:
        """Whether a batch waits for its row."""
        return bool(self._waiting)

    def ready_rows(self, record: MetricRow | CompletionSummary | Tick, run: RunView) -> list[MetricRow]:
        """The batches that may be judged now, as rows of ``reward_zero_std_ratio`` and, if known, the mean reward.

        Without any row, a tick releases them: nothing else will.
        """
        if isinstance(record, CompletionSummary):
            row = _row(run.functions.weighed(record.groups), record.step, run)
            if row is not None:
                self._waiting.append(row)
        reached = inf if isinstance(record, Tick) and not run.step else run.step
        ready: list[MetricRow] = []
        while self._waiting and self._waiting[0].step <= reached:
            ready.append(self._waiting.popleft())
        return ready


def _scored(groups: Sequence[GroupSummary]) -> list[dict[str, list[float]]]:
    """Scores and advantages of each group with several completions of one prompt, if all are known."""
    found = (whole_columns(group) for group in groups if group.prompts == 1 and group.size > 1)
    return [columns for columns in found if columns]


def _row(groups: tuple[GroupSummary, ...], step: int, run: RunView) -> MetricRow | None:
    scored = _scored(groups)
    if not scored:
        return None
    silent = [all(max(scores) - min(scores) < FLOAT_NOISE for scores in columns.values()) for columns in scored]
    values: dict[str, float | None] = {"reward_zero_std_ratio": sum(silent) / len(silent)}
    names = {name for columns in scored for name in columns if name != ADVANTAGE}
    if len(names) == 1:
        scores = [score for columns in scored for name in names for score in columns.get(name, ())]
        values["reward_mean"] = plain_sum(scores) / len(scores)
    return MetricRow(run.run, Stream.TRAIN, run.attempt, step, values)


LEAST_ROWS, LEAST_DEAD = 4, 3
"""Rows needed, and rows without any spread needed, if they average as many generations as the window has rows."""


PAST = 10
"""Rows before the window that give the run's usual share of dead groups."""
CHANCE = 0.001
"""Windows with as many dead groups that chance may give in the whole run, with room for a usual share that drifts: a
public run had 9 of 10 dead groups in a row (0.0017 by its first 47 rows), and then learned."""
FLOOR_ROWS, FLOOR_SHARE = 50, 0.9
"""Rows, and share of them with a reward of exactly 0, from which a run without other evidence learns nothing."""
SOLVED = 1.0
"""A constant mean reward of this value means solved prompts rather than a function that ignores the text."""
FINE = 0.002
"""Coarsest resolution at which a mean of 1 is exact: one miss of 500 completions shows."""
UNTRAINED_ROWS = 20
"""As many first rows of a run without any spread, although a function's scores differ, have trained nothing."""
MOSTLY = 0.75
"""Usual share of dead groups that indicates a fault: three of four rows teach nothing."""


class RowsAtZero:
    """Counts rows whose mean reward alone shows equal rewards: a mean of exactly 0 if none was ever below 0.

    So does a mean of exactly 1 if none was ever above. ``same`` counts the newest rows with an identical mean other
    than 0, and ``value`` is that mean.
    """

    __slots__ = ("_fine", "_full", "_negative", "_zeros", "highest", "same", "steps", "value")

    def __init__(self) -> None:
        self._zeros: deque[bool] = deque(maxlen=FLOOR_ROWS)
        self._full: deque[bool] = deque(maxlen=FLOOR_ROWS)
        self.steps: deque[int] = deque(maxlen=FLOOR_ROWS)
        self._negative = False
        self._fine: bool | None = None  # whether fractions have more than one decimal: else 1.0 may be 0.96
        self.same, self.value, self.highest = 0, 0.0, -inf

    @property
    def only_zeros(self) -> bool:
        """Whether all rows with a reward were at 0; False before the first one."""
        return len(self._zeros) > 0 and all(self._zeros) and not self._negative

    @property
    def full(self) -> int:
        """How many of the newest ``FLOOR_ROWS`` are at 1 if nearly all of them are, else 0."""
        rows, enough = (
            sum(self._full),
            len(self._full) == FLOOR_ROWS and self.highest == SOLVED and self._fine is not False,
        )
        return rows if enough and rows >= FLOOR_SHARE * FLOOR_ROWS else 0

    def add_row(self, row: MetricRow) -> int:
        """Take a row; returns how many of the newest ``FLOOR_ROWS`` are at 0 if nearly all of them are, else 0."""
        reward = number(row, "reward_mean")
        if reward is None:
            return 0
        self._negative = self._negative or reward < 0.0
        self.same = 0 if reward == 0.0 else self.same + 1 if reward == self.value else 1
        self.value, self.highest = reward, max(self.highest, reward)
        self._full.append(reward == SOLVED and (row.resolution or 0.0) <= FINE)
        if not reward.is_integer():
            self._fine = bool(self._fine) or round(reward, 1) != reward
        self._zeros.append(is_zero(reward, row.resolution))
        self.steps.append(row.step)
        zeros = sum(self._zeros)
        enough = len(self._zeros) == FLOOR_ROWS and zeros >= FLOOR_SHARE * FLOOR_ROWS
        return zeros if enough and not self._negative and self._zeros[-1] else 0


class DeadRowWindow:
    """The newest zero-std ratios, and whether they are enough to judge; once enough, always enough.

    Rows of a single group are dead by chance, even a few in a row: if some live, only their mean counts. ``enough`` is
    about the mean, ``all_dead`` about the rows since ``dead_since``, which have no spread at all.
    """

    def __init__(self, rows: int, dead_rows: int) -> None:
        self.shares, self._rows, self._dead_rows = Window(rows), rows, dead_rows
        self._dead, self.dead_since = 0, 0
        self._generations, self._still = 0.0, True
        self.usual: float | None = None
        self.alive = self.several = self.enough = self._covered = False

    def add_share(self, share: float, step: int, batches: float, *, still: bool) -> None:
        """Take a row's share; ``batches``: generations that it averages, ``still``: no update."""
        self.shares.push(share)
        rows = len(self.shares.values)
        self.enough = self.enough or self.shares.full or (rows >= LEAST_ROWS and rows * batches >= self._rows)
        if share < 1.0:
            self.alive, self.several = True, self.several or share > 0.0
            self._dead, self._covered = 0, False
            return
        self._dead += 1
        self._generations, self._still = self._generations + batches, self._still and still
        self.dead_since = step if self._dead == 1 else self.dead_since
        covered = self._dead >= LEAST_DEAD and self._dead * batches >= self._rows
        self._covered = self._covered or covered or self._dead >= self._dead_rows

    def by_chance(self, past: CountedTrend) -> bool:
        """Whether chance explains this many dead rows of a single group; ``past`` counts all rows so far.

        The usual share is taken before the first full window, so that a lasting collapse can't raise it.
        """
        if self.several or not self.alive:
            return False
        before, rows = past.rows - len(self.shares), len(self.shares)
        if self.usual is None:
            if before < PAST:
                return False
            self.usual = (past.total - self.shares.total + 1.0) / (before + 2.0)
        if self.usual >= MOSTLY:
            return False
        dead = round(self.shares.total)
        chance = plain_sum(
            comb(rows, k) * self.usual**k * (1.0 - self.usual) ** (rows - k) for k in range(dead, rows + 1)
        )
        return chance * past.rows / rows > CHANCE

    @property
    def never_alive(self) -> bool:
        """Whether at least ``UNTRAINED_ROWS`` rows came, and none had any spread."""
        return not self.alive and self._dead >= UNTRAINED_ROWS

    def never_updated(self, usual: float) -> bool:
        """Whether no row of the run had a spread or an update, and they are too many for chance.

        Treats each generation as a single group, dead with probability ``usual``. A sparse reward may score for the
        first time after 25 rows.
        """
        return self.never_alive and self._still and usual**self._generations <= CHANCE

    @property
    def all_dead(self) -> bool:
        """Whether the newest rows have no spread, and are too many for chance."""
        return self._covered and (self.several or not self.alive)

    @property
    def some(self) -> bool:
        """Whether there are enough rows to rule out such a streak."""
        return self.enough or len(self.shares) >= self._dead_rows


class ZeroStdCause(NamedTuple):
    """Why groups have no spread: the kind as evidence shows it, the words, and the fix (empty: the rule's own hint)."""

    kind: str
    says: str
    hint: str = ""


CUT = ZeroStdCause(
    "cut off",
    "every completion is truncated at the length limit",
    "Raise max_completion_length two- to fourfold, check the EOS token and the chat template, shorten prompts.",
)
CONSTANT = ZeroStdCause(
    "constant",
    "every completion of the batch gets the same reward",
    "Score a gold answer and nonsense with the reward functions: the scores must differ. Look for a constant, a "
    "swallowed exception, or a format that never matches.",
)
HIGHEST = ZeroStdCause(
    "highest",
    "rewards are at the highest that the run has reached, as for solved prompts",
    "Drop solved prompts, use harder data or a stricter reward, or stop: there is nothing left to learn here.",
)
LOWEST = ZeroStdCause(
    "lowest",
    "rewards are at the lowest that the run has seen, as for prompts that are too hard",
    "Score a gold answer with the reward functions first; then use easier prompts, a warm start, or a graded reward.",
)
NEVER_SCORED = ZeroStdCause(
    "never scored",
    "no completion scores above 0, so all are wrong or the function never scores",
    "Score a gold answer and nonsense with the reward functions: the scores must differ. If they do, use easier "
    "prompts, a warm start, or a graded reward.",
)
COPIES = ZeroStdCause(
    "copies",
    "the completions of a group are copies of each other",
    "See duplicate-completions: equal texts get equal rewards.",
)
LEFT_OUT = ZeroStdCause(
    "left out",
    "a reward function gives completions different scores, but the total is the same for all",
    "Compare the order and the values of reward_weights with the reward functions: a weight of 0 leaves a function "
    "out, and functions of opposite sign cancel.",
)
BY_PROMPT = ZeroStdCause(
    "by prompt",
    "rewards differ between prompts, but not between the completions of one",
    "Score two different completions of one prompt: the function may read the prompt or the answer only. If the "
    "scores differ, prompts are all solved or all too hard: raise num_generations, or grade the reward.",
)
UNKNOWN = ZeroStdCause("unknown", "members of a group get equal rewards")
UNSOLVED = (CUT, CONSTANT, LOWEST, NEVER_SCORED, COPIES, LEFT_OUT, BY_PROMPT, UNKNOWN)
"""All but a reward at its maximum."""


def why(row: MetricRow, rewards: Sequence[float], lowest: float, highest: float, *, dead: bool) -> ZeroStdCause:
    """The likeliest reason for a high zero-std ratio.

    ``rewards`` are the mean rewards of the rows judged, the newest last; ``lowest`` and ``highest`` are the run's
    extremes; ``dead`` says that no group of these rows had a spread.
    """
    spreads = [
        std for key, std in row.values.items() if split_label(key)[0] == "reward_function_std" and std is not None
    ]
    differ = bool(spreads) and max(spreads) >= FLOAT_NOISE
    unknown = _by_spread(row) if dead and differ else UNKNOWN
    if at_maximum(rewards[-WIDTH:], lowest, highest):
        return unknown if _cancels(row) else HIGHEST
    if row.values.get("completion_truncated_ratio") == 1.0:
        return CUT
    if not rewards:
        return CONSTANT if dead and spreads and not differ else unknown
    usual = median(rewards)  # one extreme row says nothing about the others
    if not highest - lowest > FLOAT_NOISE:
        one = NEVER_SCORED if abs(usual) <= FLOAT_NOISE else CONSTANT
        return one if dead and not differ else unknown
    if highest <= FLOAT_NOISE and dead and abs(usual) <= FLOAT_NOISE:
        return NEVER_SCORED  # a penalty moved the mean now and then
    return LOWEST if usual <= lowest + EDGE * (highest - lowest) else unknown


def _by_spread(row: MetricRow) -> ZeroStdCause:
    """The reason by the total's spread over the batch, if a function scores completions differently."""
    total = number(row, "reward_batch_std")
    if total is None:
        return UNKNOWN
    return LEFT_OUT if total < FLOAT_NOISE else BY_PROMPT


def _cancels(row: MetricRow) -> bool:
    """Whether the functions' means have both signs: a total at its highest may then be the rest of a cancellation."""
    parts = [mean for key, mean in row.values.items() if split_label(key)[0] == "reward_function_mean"]
    known = [mean for mean in parts if mean is not None]
    return bool(known) and max(known) > FLOAT_NOISE and min(known) < -FLOAT_NOISE


ROUNDING = "rounding"
"""Key of the alert about rewards that differ by rounding alone."""
FAINT = 0.1
"""Largest advantage that rounding gives: a deviation of 1e-8 to 1e-5 over TRL's epsilon of 1e-4."""


COUNTED = 1e-4
"""Advantage of a deviation of 1e-8 over that epsilon: from here on, TRL 1.16.0 counts the group as having a spread."""


class EqualButForRounding:
    """Counts dumped batches without spread in which rows count some groups as having one (TRL 1.16.0).

    Readings wait until a row with a zero-std ratio has come, which may be after the dump.
    """

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.equal = self.counted = 0
        self._waiting: deque[Reading] = deque(maxlen=BATCHES_AHEAD)

    def readings(self, record: MetricRow | CompletionSummary | Tick, run: RunView) -> Sequence[Reading]:
        """Judge a batch; returns the readings that waited, once rows have a zero-std ratio."""
        if isinstance(record, CompletionSummary) and record.groups:
            judged = self._judged(_rounded_to(run.functions.weighed(record.groups)))
            self._waiting.append(replace(judged, step=record.step))
        if not self._waiting or run.trend.silent.first is None:
            return ()
        ready = tuple(self._waiting)
        self._waiting.clear()
        return ready

    def _judged(self, largest: float | None) -> Reading:
        if largest is None or largest >= FAINT:
            self.equal = self.counted = 0
        else:
            self.equal, self.counted = self.equal + 1, self.counted + (largest >= COUNTED)
        if self.equal < self.batches or self.counted < LEAST_DEAD:
            return Reading(Verdict.OK, ROUNDING)
        message = (
            f"rewards are equal within all groups of {self.equal} dumped batches; the log counts rounding as a spread"
        )
        evidence: dict[str, Scalar] = {"batches": self.equal}
        return Reading(Verdict.BREACH, ROUNDING, message=message, evidence=evidence, hint=BY_PROMPT.hint)


def _rounded_to(groups: Sequence[GroupSummary]) -> float | None:
    """The largest advantage if scores are equal inside each group of one prompt; None if they differ."""
    scored = _scored(groups)
    scores = [column for columns in scored for name, column in columns.items() if name != ADVANTAGE]
    equal = bool(scores) and all(max(column) - min(column) < FLOAT_NOISE for column in scores)
    if not equal or not all(ADVANTAGE in columns for columns in scored):
        return None
    return max(abs(advantage) for columns in scored for advantage in columns[ADVANTAGE])
