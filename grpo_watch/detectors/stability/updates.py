"""Updates that are too large: the gradient norm jumps or drifts, or many tokens are clipped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import log10
from statistics import median

from grpo_watch.detectors.shared.generations import GenerationRows
from grpo_watch.detectors.shared.likely_causes import RATES
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.trend import TrendSign
from grpo_watch.engine.window import Window, deviation

NO_SIGNAL = 1e-6
"""A norm below this is a step without a learning signal (zero, or the rest of a masked loss), not a small gradient."""
ABSURD = 1e6
"""No useful gradient has such a norm: labelled runs stay below 2e4; sums over tokens and an unscaled loss exceed it."""
WITHIN, REWARD_WITHIN = 20, 10
"""Rows with a gradient within which spikes count together, and within which a spike explains a fallen reward."""
KNOWN = 2.0
"""Multiple of the run's highest median up to which a norm is no spike while most groups are solved: the current median
is then the KL's gradient, and a group that still differs brings back the norm of the first rows."""
MOST_SILENT = 0.5
"""Zero-std ratio above which most groups count as solved."""
DRIFT, DRIFTED = "drift", 10.0
"""Key of the alert about a norm that grows slowly, and its multiple of the first rows' norm; labelled healthy runs of
60 to 400 rows stay below 2.2."""
NO_DRIFT = (Reading(Verdict.OK, DRIFT),)
"""Given on every row below that multiple: ending an alert takes more than one."""
STEADY = (*QUIET, *NO_DRIFT)
FIND_OUT = (
    "Lower the learning rate, or raise beta; look for entropy and KL that rise with it. Clipping at max_grad_norm "
    "hides the growth, as each update then has the same size."
)


class GradNormSpike(Detector):
    """Robust z-score of log10 over the last calm rows with a signal; spikes of one batch count once.

    Growth without spikes is judged by the median of the calm rows against that of the first ones.
    """

    explained_by = ("non-finite-metric",)
    likely_causes = RATES

    needs = (("grad_norm",),)
    times: float = param(5.0, "multiple of the median from which a norm is a spike", minimum=1)
    z: float = param(8.0, "robust standard deviations of log10 from which a norm is a spike", minimum=1)
    spread_floor: float = param(0.05, "least standard deviation of log10 to assume", minimum=0.001)
    history: int = param(20, "calm rows needed before anything is judged", minimum=5)
    again: int = param(3, "spikes within 20 rows that are a warning", minimum=2)

    def setup(self) -> None:
        """Start with empty windows."""
        self.calm = Window(50)
        self.highest = self.first = 0.0
        self.row = 0
        self.spikes: deque[int] = deque(maxlen=max(self.again, 1))
        self.fell_before = False
        self.generation, self.same_batch = GenerationRows(), False

    def early_sign(self, run: RunView) -> Reading | None:
        """A norm far above that of any policy that learns."""
        norm = run.newest("grad_norm")
        if norm is None or norm < ABSURD:
            return None
        return Reading(Verdict.BREACH, message=f"grad_norm is {norm:.3g}", evidence={"grad_norm": norm})

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row with a gradient."""
        norm = number(record, "grad_norm")
        self.same_batch = not self.generation.begins(record) and self.same_batch
        if norm is None:
            return SILENT
        if norm < NO_SIGNAL:
            return QUIET
        self.row += 1
        usual = self.calm.median() if len(self.calm.values) >= self.history else None
        self.highest, self.first = max(self.highest, usual or 0.0), self.first or usual or 0.0
        if usual is None or norm < self.times * usual or not self._jumps(norm, usual, run):
            if run.learning.signal != 0.0:  # else it is the norm of the KL alone, far below a learning step's
                self.calm.push(norm)
            after = self._after(norm, usual, run) if self.spikes else QUIET
            if after is QUIET and usual is not None and usual < DRIFTED * self.first:
                return STEADY
            return after if usual is None else (*after, *self._drift(usual, run))
        if not self.spikes:
            self.fell_before = TrendSign.REWARD_FELL in run.trend.signs()
        if self.same_batch:
            self.spikes.pop()
        self.same_batch = True
        self.spikes.append(self.row)
        often = len(self.spikes) == self.again and self.row - self.spikes[0] < WITHIN
        return (self._breach(norm, usual, Severity.WARNING if often else Severity.INFO, "again" if often else ""),)

    def _jumps(self, norm: float, usual: float, run: RunView) -> bool:
        """Whether the norm is a spike; while most groups are solved, a norm that the run has reached before is none."""
        spread = max(self.spread_floor, deviation([log10(value) for value in self.calm.values]))
        if (log10(norm) - log10(usual)) / spread < self.z:
            return False
        silent = run.trend.silent.mean
        solved = run.trend.reward.solved or (silent is not None and silent > MOST_SILENT)
        return not solved or norm >= KNOWN * self.highest

    def _after(self, norm: float, usual: float | None, run: RunView) -> Iterable[Reading]:
        """A warning about the last spike if the reward falls within ten rows."""
        since = self.row - self.spikes[-1]
        if since >= WITHIN:
            self.spikes.clear()
        elif usual and since <= REWARD_WITHIN and not self.fell_before and TrendSign.REWARD_FELL in run.trend.signs():
            return (self._breach(norm, usual, Severity.WARNING, f"a spike {since} rows ago, then reward fell"),)
        return QUIET

    def _drift(self, usual: float, run: RunView) -> Iterable[Reading]:
        """Judge a norm of ten times the first one: a warning, or an info while the reward does well."""
        if usual < DRIFTED * self.first:
            return NO_DRIFT
        message = f"grad_norm is {usual / self.first:.0f} times that of the first {self.history} rows, and stays there"
        severity = Severity.INFO if run.trend.reward_does_well() else Severity.WARNING
        evidence = {"grad_norm": usual, "first": self.first}
        return breach(
            DRIFT,
            usual,
            message=message,
            evidence=evidence,
            severity=severity,
            hint=FIND_OUT,
            headline="The gradient norm keeps growing",
        )

    def _breach(self, norm: float, usual: float, severity: Severity, more: str) -> Reading:
        message = f"grad_norm is {norm:.3g}, {norm / usual:.0f} times its median" + (f" ({more})" if more else "")
        evidence = {"grad_norm": norm, "median": usual, "spikes": len(self.spikes)}
        return Reading(
            Verdict.BREACH, value=norm, severity=severity, message=message, evidence=evidence, immediate=True
        )


CISPO = "cispo_clip_ratio"
"""Logged instead under loss_type cispo (TRL from 0.26 on, ms-swift): tokens whose ratio exceeds epsilon_high itself."""
CAP = (
    "Set --epsilon_high 5.0: with loss_type cispo it caps the importance ratio itself, not its distance from 1, so a "
    "value below 1 (0.28, or epsilon's default of 0.2) clips unchanged tokens too. If it is above 1, lower "
    "--num_iterations or --learning_rate."
)


class ClipFractionHigh(Detector):
    """Judges only rows with clipping (on-policy rows show zero), against the run's own first ones."""

    explained_by = ("kl-explosion",)

    needs = (("policy_clip_ratio",),)
    share: float = param(0.3, "median clipped share that is a breach", 0, 1)
    share_from_start: float = param(0.6, "the same, if clipping was high from the start (sequence level)", 0, 1)
    rows: int = param(10, "number of rows with clipping in the judged median", minimum=3)
    window: int = param(40, "they must be among this many newest rows", minimum=3)

    def setup(self) -> None:
        """Start with no rows."""
        self.row = 0
        self.clipped: deque[tuple[int, int, float]] = deque(maxlen=self.rows)
        self.bar: float | None = None

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Judge one train row that carries the clipped share."""
        share = number(record, "policy_clip_ratio")
        if share is None:
            return SILENT
        self.row += 1
        if share <= 0.0:
            return SILENT if self.clipped and self.row - self.clipped[-1][0] < self.window else QUIET
        self.clipped.append((self.row, record.step, share))
        if len(self.clipped) < self.rows:
            return no_data(NotYet("too few rows with clipping yet"))
        middle = median([value for _, _, value in self.clipped])
        if self.bar is None:
            at_once = self.clipped[0][0] <= self.rows  # else it began low and rose
            self.bar = self.share_from_start if at_once and middle >= self.share else self.share
        if middle < self.bar or self.row - self.clipped[0][0] >= self.window:
            return QUIET
        first = next(step for _, step, value in self.clipped if value >= self.bar)
        message = f"{middle:.0%} of the tokens are clipped (median of {self.rows} rows)"
        evidence = {"policy_clip_ratio": middle, "rows": self.rows}
        hint = CAP if any(key.endswith(CISPO) for key in record.raw) else ""
        return breach(
            value=middle,
            threshold=self.bar,
            message=message,
            evidence=evidence,
            hint=hint,
            first_step=first,
        )
