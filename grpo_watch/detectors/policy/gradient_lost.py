"""grad_norm is exactly zero although rewards differ inside groups: the gradient is lost before the optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from math import isclose
from statistics import median

from grpo_watch.detectors.shared.likely_causes import GRADIENTS
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import NO_SPREAD, SameNumber, ZeroStreak, is_zero, no_signal_ratio, number
from grpo_watch.engine.learning import LEAST_CLIP
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import WasteKind

LEAST_NORM = 1e-4
"""Healthy norms are rarely smaller (verl: 5e-3 and up); a log that can't print this value may hide a small gradient."""
PAIR = 2
"""Rows needed to measure how many steps lie between rows."""
CLEARLY = 10.0
"""Multiple of the log's resolution. A norm that once exceeded it does not fall below the resolution by chance."""


CLIPPED_TO = 1e-3
"""Largest relative difference between the clip and a norm logged after clipping (torch divides by the norm + 1e-6)."""


def clipped(norm: float, run: RunView) -> Iterable[Reading]:
    """Judge whether a non-zero gradient is clipped to next to nothing."""
    clip = run.number("max_grad_norm")
    if clip is None or not 0.0 < clip <= LEAST_CLIP or norm < clip * (1.0 - CLIPPED_TO):
        return SILENT
    return breach(
        value=norm,
        threshold=clip,
        message=f"gradients of norm {norm:.3g} are clipped to {clip:g}, which Adam's epsilon of 1e-8 outweighs: "
        "hardly anything is updated",
        evidence={"grad_norm": norm, "max_grad_norm": clip},
        hint="Set max_grad_norm to 0.1 to 1.0 (0 switches clipping off in TRL and ms-swift).",
        headline="Gradients are clipped to next to nothing",
    )


SAME_ROWS = 10
"""Rows with an identical norm. Steps that share a generation batch still have different gradients."""
MADE_UP = (
    "Print the gradients' norm manually after backward(). A constant norm, 1.4142 among them, was seen where DeepSpeed "
    "lost the gradients (DeepSpeed#5242, #5347): try another version, or ZeRO-2 without offload."
)


def one_norm(norm: float, same: SameNumber, run: RunView) -> Iterable[Reading]:
    """Judge a norm that is the same on all rows; quiet if it equals the clip, as a norm logged after clipping does."""
    if isclose(norm, run.number("max_grad_norm") or 0.0, rel_tol=CLIPPED_TO):
        return QUIET
    return breach(
        value=norm,
        severity=Severity.WARNING,
        message=f"grad_norm is exactly {norm:.7g} on {same.rows} rows in a row, as no gradients of different "
        "batches are: they are lost, or not measured",
        evidence={"grad_norm": norm, "rows": same.rows},
        hint=MADE_UP,
        headline="The gradient norm never changes",
        first_step=same.since,
    )


LOST_ROWS, NEVER_ROWS = 20, 50
"""Zeros needed where no metric shows flat groups: once a gradient was seen, and if none ever was."""
USUAL_ROWS = 10
"""Rows at the start of the run whose median norm is the usual one."""
VANISHED, FAINT_ROWS, MOST_SILENT = 1e-3, 3, 0.5
"""Share of the usual norm that is next to nothing, rows needed, and the share of zero-std groups above which a row is
ignored. Gradients of a run that learns shrink tenfold; rows of solved groups shrink further."""
NEXT_TO_NOTHING = (
    "Compare the rewards inside one group: if they are equal but for rounding, the advantages are next to nothing. "
    "Else look for what scales or masks the loss since then: an accumulation divided twice, a loss scale, a mask."
)


class UsualNorm:
    """The median gradient norm at the start of the run, and for how many rows the norm has been a fraction of it."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._usual = 0.0
        self._rows = self._since = 0

    def judge_norm(self, row: MetricRow, norm: float, run: RunView) -> Iterable[Reading]:
        """Judge a norm above 0; rows whose groups hardly differ are ignored."""
        silent = run.silent
        if silent is None or silent > MOST_SILENT or run.masked.left_out:
            return QUIET
        if len(self._first) < USUAL_ROWS:
            self._first.append(norm)
            self._usual = median(self._first)
            return QUIET
        usual = self._usual
        self._rows = self._rows + 1 if norm < VANISHED * usual else 0
        self._since = row.step if self._rows == 1 else self._since
        if self._rows < FAINT_ROWS:
            return QUIET
        return breach(
            value=norm,
            threshold=VANISHED * usual,
            severity=Severity.WARNING,
            message=f"grad_norm is {norm:.2g}, and was {usual:.2g} at the start; the log shows differing rewards on "
            f"all {self._rows} rows",
            evidence={"grad_norm": norm, "usual": usual, "rows": self._rows},
            hint=NEXT_TO_NOTHING,
            headline="Next to nothing is left of the gradient",
            first_step=self._since,
        )


def own_groups(run: RunView) -> bool:
    """Whether the newest row covers one step with groups of its own, so that any group with spread gives a gradient.

    True if the settings log every step (rows alone don't show how many steps they cover) and each row has its own
    share, so that one generation serves one step. False if truncated completions are left out of the loss (all
    completions of the groups with spread may be truncated), and in fp16: a loss scale that overflows skips the step,
    and DeepSpeed reports 0 until the first step is taken.
    """
    if run.setting("logging_steps") != 1 or run.setting("fp16") is True or run.masked.left_out:
        return False
    if len(run.recent) < PAIR:
        return False
    before, newest = run.recent.newest(PAIR)
    follows = newest.step == before.step + 1 and newest.attempt == before.attempt
    return follows and no_signal_ratio(before) is not None and no_signal_ratio(newest) is not None


def hidden_by_rounding(row: MetricRow, run: RunView) -> bool:
    """Whether the log's rounding may print a small gradient as 0."""
    resolution = run.learning.resolution(row) or 0.0
    return resolution / 2 > LEAST_NORM and run.learning.highest_norm < CLEARLY * resolution


class GradientLost(Detector):
    """Multiplies the chances that the steps of zero rows had no signal; fires when coincidence is ruled out."""

    explained_by = ("non-finite-metric",)
    wastes = WasteKind.STEPS
    shows_frozen_policy = True
    likely_causes = GRADIENTS
    dashboards = ("grpo-sampling-weights",)

    needs = (
        ("grad_norm", "reward_zero_std_ratio"),
        ("grad_norm", "reward_group_std"),
        ("grad_norm", "advantage_max", "advantage_min"),
    )
    coincidence: float = param(1e-6, "fires if the probability of so many zero rows is below this", 1e-300, 1)
    min_rows: int = param(5, "fewest zero rows needed", minimum=1)
    least_chance: float = param(0.01, "least chance of no signal assumed for any row", 1e-300, 1)

    def setup(self) -> None:
        """Start with an empty streak."""
        self._end_streak()
        self.same, self.usual, self.zeros = SameNumber(), UsualNorm(), ZeroStreak()

    def _end_streak(self) -> None:
        self.log_product, self.rows, self.first_step = 0.0, 0, 0

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries grad_norm."""
        norm = number(record, "grad_norm")
        if norm is None:
            return SILENT
        zero = is_zero(norm, record.resolution)
        self.zeros.add(record.step, zero=zero)
        if not zero:
            self._end_streak()
            rows = self.same.count(norm, record.step, record.resolution)
            other = one_norm(norm, self.same, run) if rows >= SAME_ROWS else self.usual.judge_norm(record, norm, run)
            return clipped(norm, run) or other
        if run.masked.whole:
            return no_data(
                NotApplicable("every completion is truncated and left out of the loss, so a zero gradient is expected")
            )
        if run.learning.signal is None:
            return self._unknown_signal(record, norm, run)
        signal = run.learning.signal
        if signal > 0.0 and own_groups(run):
            signal = 1.0
        chance = 1.0 - signal * (1.0 - run.masked.chance)
        return self._extend(record, norm, chance, hidden=hidden_by_rounding(record, run))

    def early_sign(self, run: RunView) -> Reading | None:
        """A gradient of exactly 0 although rewards differ inside groups."""
        norm, silent = run.newest("grad_norm"), run.newest("reward_zero_std_ratio")
        within, overall = run.newest("reward_group_std") or 0.0, run.newest("reward_batch_std") or 0.0
        differs = within > 0 or (overall > 0 and silent is not None)
        if norm != 0.0 or not differs or (silent is not None and silent >= NO_SPREAD):
            return None
        text = "the gradient norm is exactly 0 although rewards differ"
        return Reading(Verdict.BREACH, message=text, evidence={"grad_norm": norm})

    def _unknown_signal(self, row: MetricRow, norm: float, run: RunView) -> Iterable[Reading]:
        """Judge a zero where no metric shows flat groups: if it lasts, nothing is trained, whatever the cause."""
        zeros = self.zeros
        long = zeros.outlasts(LOST_ROWS if run.learning.highest_norm else NEVER_ROWS)
        if not long or not run.trend.reward.varies or hidden_by_rounding(row, run):
            return no_data(NotYet("whether rewards differ inside groups is not known"))
        return breach(
            value=norm,
            severity=Severity.WARNING,
            message=f"grad_norm is exactly 0 on {zeros.rows} rows in a row although the mean reward varies: nothing is "
            "trained, as the gradient is lost or no group has differing rewards",
            first_step=zeros.since,
            immediate=True,
            headline="No gradient for many rows",
            evidence={"grad_norm": norm, "rows": zeros.rows, "reward_mean": run.newest("reward_mean")},
        )

    def _extend(self, row: MetricRow, norm: float, chance: float, *, hidden: bool) -> Iterable[Reading]:
        self.rows += 1
        self.first_step = self.first_step or row.step
        self.log_product += math.log(min(1.0, max(chance, self.least_chance)))
        if self.rows < self.min_rows or self.log_product > math.log(self.coincidence):
            return no_data(NotYet("zero gradients so far may be steps without a learning signal"))
        return breach(
            value=norm,
            severity=Severity.WARNING if hidden else None,
            message=f"grad_norm {'prints as' if hidden else 'is exactly'} 0 on {self.rows} rows in a row although "
            "rewards differ inside groups" + ("; this log rounds, so the norm may only be small" if hidden else ""),
            first_step=self.first_step,
            immediate=True,
            headline="The gradient norm prints as 0" if hidden else "",
            evidence={
                "grad_norm": norm,
                "rows": self.rows,
                "chance_of_coincidence": float(f"{math.exp(self.log_product):.2g}"),
                "reward_zero_std_ratio": round(chance, 6),
            },
        )
