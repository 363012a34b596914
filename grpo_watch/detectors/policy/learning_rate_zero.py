"""The applied learning rate is zero outside warm-up and the end of the schedule: nothing can be learned."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import is_zero, number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import LikelyCause, WasteKind

LEAST_RATE = 1e-7
"""The smallest usual peak rate for GRPO; a log that can't print it (verl's three decimals) proves nothing."""
DECAYED = 0.1
"""Share of the peak that the log must be able to print. A schedule may spend long below it before its end, so zeros
after such a rate are a decay."""


RATE_CAUSES = (LikelyCause("learning_rate is 0 in the configuration.", bounds={"learning_rate": (0.0, 0.0)}),)

FAINT = 1e-4
"""Share of the peak below which a rate is next to nothing; a cosine reaches it in the last 0.7 % of its steps."""
TINY = 1e-9
"""Below this rate nothing is trained in any number of steps: a hundredth of the smallest usual peak."""
HALF, LATELY = 0.5, 0.2
"""Share of the run after which a still rising rate is too long a warm-up, and the share within which it must have risen
last: a log of few decimals shows a rise as steps."""
NEARLY = 0.9
"""Share of the run by which a warm-up of unknown peak must have ended; a longer one may be planned (50 of 60 steps in a
healthy recorded run)."""
BEGINS = 0.1
"""The log must begin within this share of the run: after a resume near the end, the rate warms up again."""
OFF = 0.05
"""Share of the newest rate (or two steps' worth) by which the rate at half of the run may miss a warm-up's straight
line from 0. Cyclic schedules begin above 0, and learning rate searches rise by factors."""
SHAPE = (
    "Compare warmup_steps (or warmup_ratio) and the scheduler's number of steps with max_steps: a warm-up longer than "
    "the run never reaches the peak, and a decay that counts micro-steps or ranks ends early."
)
MICRO_BATCHES = 16.0
"""Rows that an own loop may print before its first optimizer step: one per micro-batch if gradients accumulate."""


class Climb:
    """Tracks whether the rate may still be in its warm-up: rising on every row, on a straight line from 0."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._highest, self._always = 0.0, True
        self._half: tuple[int, float] | None = None

    def add(self, step: int, rate: float, run: RunView) -> None:
        """Take a row's rate; zeros are ignored."""
        self._began = step if self._began is None else self._began
        if rate == 0.0:
            return
        self._always = self._always and rate > self._highest
        self._highest = max(self._highest, rate)
        if self._half is None and step >= HALF * (run.max_steps or inf):
            self._half = step, rate

    def is_warm_up(self, rate: float, step: int, run: RunView) -> bool:
        """Whether the rates lie on a straight line from 0 at the run's start."""
        from_start = self._began is not None and self._began <= BEGINS * (run.max_steps or 0)
        if not (self._always and from_start and self._half):
            return False
        then, halfway = self._half
        return abs(halfway - rate * then / step) <= max(OFF, 2.0 / step) * rate


def decayed(trained: tuple[float, int], peak: float, run: RunView) -> int | None:
    """The step after the last rate that trained, if a schedule of unknown length had decayed by then, else None."""
    rate, step = trained
    return step + 1 if run.max_steps is None and 0.0 < rate <= DECAYED * peak else None


class LearningRateZero(Detector):
    """Zeros are expected in the first step (linear warm-up) and in the last ones (decay to zero)."""

    wastes = WasteKind.STEPS
    shows_frozen_policy = True
    likely_causes = RATE_CAUSES
    dashboards = ("grpo-sampling-weights",)

    needs = (("learning_rate",),)
    warmup_share: float = param(0.1, "share of max_steps taken as warm-up if the log rounds and none is set", 0, 1)
    tail_share: float = param(0.95, "share of max_steps from which a decayed schedule may be zero", 0, 1)

    def setup(self) -> None:
        """Start with no rows; ``trained`` is the newest rate that was more than next to nothing, with its step."""
        self.peak, self.rose, self.trained, self.climb = 0.0, 0, (0.0, 0), Climb()

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the learning rate."""
        rate = number(record, "learning_rate")
        if rate is None:
            return SILENT
        self.climb.add(record.step, rate, run)
        if not is_zero(rate, record.resolution):
            self.rose = record.step if rate > self.peak else self.rose
            self.peak = max(self.peak, rate)
            lately = record.step - self.rose <= LATELY * (run.max_steps or inf)
            return self._faint(rate, record, run, rises=rate == self.peak and lately)
        why_not = self._rounded_away(record, run) or self._expected_zero(record, run) or self._skipped(record)
        if why_not:
            return no_data(why_not)
        evidence = {"learning_rate": rate, "highest_so_far": self.peak, "max_steps": run.max_steps}
        since = decayed(self.trained, self.peak, run)
        return breach(value=rate, message="the applied learning rate is 0", evidence=evidence, first_step=since)

    def _faint(self, rate: float, row: MetricRow, run: RunView, *, rises: bool) -> Iterable[Reading]:
        """Judge a rate above 0: next to nothing, absolutely or against its peak, or a warm-up that never ends."""
        planned, done = run.number("learning_rate") or 0.0, row.step / (run.max_steps or inf)
        peak = max(self.peak, planned)
        endless = rises and done >= HALF and rate < done / 2.0 * planned
        endless = endless or (not planned and done >= NEARLY and self.climb.is_warm_up(rate, row.step, run))
        faint = rate < max(FAINT * peak, TINY) and (not rises or done >= HALF)
        self.trained = self.trained if faint else (rate, row.step)
        if not (endless or faint):
            return QUIET
        if (planned or not endless) and (why_not := self._expected_zero(row, run)):
            return no_data(why_not)
        if endless:
            what = (
                f"in a warm-up that does not reach {planned:.2g} within the run" if planned else "still in its warm-up"
            )
        else:
            what = f"next to nothing of its peak of {peak:.2g}" if rate < FAINT * peak else "next to nothing"
        evidence = {"learning_rate": rate, "highest_so_far": self.peak, "max_steps": run.max_steps}
        return breach(
            value=rate,
            message=f"the applied learning rate is {rate:.2g}, {what}",
            evidence=evidence,
            first_step=None if endless else decayed(self.trained, self.peak, run),
            severity=None if rate < FAINT * self.peak else Severity.WARNING,
            hint=SHAPE,
            headline="The warm-up does not end within the run" if endless else "The learning rate is next to nothing",
        )

    def early_sign(self, run: RunView) -> Reading | None:
        """A rate of exactly 0 after the first step, in a log that does not round it away."""
        rate = run.newest("learning_rate")
        if rate != 0.0 or run.step <= 1 or any(self._rounded_away(row, run) for row in run.recent.newest(1)):
            return None
        text = "the learning rate is 0 after the first step"
        return Reading(Verdict.BREACH, message=text, evidence={"learning_rate": rate})

    def _rounded_away(self, row: MetricRow, run: RunView) -> str | None:
        peak, resolution = run.number("learning_rate"), run.learning.resolution(row)
        if peak == 0.0 or not is_zero(DECAYED * (LEAST_RATE if peak is None else peak), resolution):
            return None
        if row.resolution is None and 0.0 < self.peak < (resolution or 0.0):
            return None  # the other numbers are rounded, the rate is not
        return "this log rounds the learning rate to 0"

    def _skipped(self, row: MetricRow) -> str | None:
        """Why a zero may be a skipped step: DeepSpeed logs 0 until the scheduler's first step, which fp16 delays."""
        overflow = self.peak == 0.0 and "grad_norm" in row.values and number(row, "grad_norm") is None
        return NotYet("the optimizer skips its first steps (the gradient overflows)") if overflow else None

    def _expected_zero(self, row: MetricRow, run: RunView) -> str | None:
        if run.max_steps is not None and row.step >= self.tail_share * run.max_steps:
            return NotApplicable("the schedule is at its end")
        if row.step <= self._warmup_steps(row, run):
            return NotYet("the schedule may still warm up")
        if decayed(self.trained, self.peak, run) and self.tail_share * row.step <= self.trained[1]:
            return NotYet("the schedule may be at its end (max_steps is not known)")
        return None

    def _warmup_steps(self, row: MetricRow, run: RunView) -> float:
        """Steps that may show a zero: the first one in an exact log, the whole warm-up in a rounded one."""
        steps, ratio = run.number("warmup_steps"), run.number("warmup_ratio")
        if steps is not None and steps >= 1:
            return min(steps, HALF * (run.max_steps or inf))
        if ratio is not None and run.max_steps is not None:
            return max(1.0, ratio * run.max_steps)
        if self.peak == 0.0 and run.guessed("learning_rate"):
            return MICRO_BATCHES
        if row.resolution is None or run.max_steps is None:
            return 1.0
        return max(1.0, self.warmup_share * run.max_steps)
