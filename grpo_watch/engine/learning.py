"""How far a policy should have moved: the summed learning rate of steps that had a signal and a loss."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow

KL_PER_SQUARED_LR = 250.0
"""A healthy KL early in a run is at least this constant times the square of the summed learning rate (full
fine-tuning). Measured over the first rows of 21 TRL 0.24/1.16 and ms-swift 4.6 runs: 243 (greedy decoding) to 5e5,
mostly 2,000 to 20,000."""
KL_PER_SQUARED_LR_ADAPTER = 0.25
"""The same for adapters, whose B matrix starts at zero: 0.33 to 1.5 (TRL 0.27.0, LoRA r 4 of two modules), 60 to 110
(TRL 1.16.0, r 8), 1,200 and up (ms-swift)."""
ARITHMETIC_FLOOR = 1e-12
"""Below this a mean of differences of log-probabilities may be an exact zero by float32 rounding alone."""
ARITHMETIC_FLOOR_LIKELY = 1.5e-10
"""The same if tokens are likely: differences of logits of 8 to 16 lie on a grid of 1e-6, on which exp(d) - d - 1 leaves
no noise. Seen in a healthy full run of entropy 0.25 at 1e-7 (TRL 0.15.2): zeros on nine rows, until 250 times the
squared sum is 1.6e-10; at 1e-6 with LoRA (TRL 0.27.0) on 39 of 40, until 0.25 times it is 1e-10."""
ARITHMETIC_FLOOR_UNSURE = 6e-8
"""The same if no token need be likely. exp(d) - d - 1 in float32 is exactly 0 for every token whose log-probability
moved by less than 3.4e-4 (d^2 / 2 below half a step of float32 at 1), as long as log-probabilities lie on a grid no
finer than that step, so at 1 nat or more from 0. A token likelier than that leaves rounding noise sooner. Seen in a
healthy TRL 1.16.0 run at 5e-7, entropy 3.7: exact zeros until the learning rate sums to 8e-6."""
LIKELY_TOKENS = 1.0
"""Entropy (nats per token) up to which the sample is certain to contain likely tokens."""
MOST_DECIMALS = 6
"""Numbers with more decimals are printed in full: people round to two to six."""
LEAST_VALUES, LEAST_METRICS = 8, 3
"""Fractions, and metrics with fractions, needed to call a log rounded. A single float in full disproves it: shares and
mean rewards of small groups have few decimals by nature, norms, spreads and entropies have not."""
OWN_PRECISION = frozenset({"learning_rate", "loss", "step_seconds"})
"""Metrics that loggers print differently: the Trainer rounds the loss, and a rate needs an exponent."""


LEAST_CLIP = 1e-6
"""Norm below which a clipped gradient is lost in Adam's epsilon (1e-8): its elements are smaller by the square root of
their number, 1e-9 and less even in a model of a million."""


class LearningSoFar:
    """Sums the applied learning rate over optimizer steps, each weighted by the share of groups with a signal.

    ``total`` bounds the policy's movement before the newest row: a row's own update comes after its metrics. ``signal``
    is the newest known share of groups with a signal (rows without a generation keep it); None: unknown. ``floor`` is
    the KL below which an exact zero proves nothing, ``highest_norm`` the largest gradient norm so far.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.signal: float | None = None
        self.rate_known = False
        self.floor = ARITHMETIC_FLOOR_UNSURE
        self.highest_norm = 0.0
        self._pending = 0.0
        self._last_step: int | None = None
        self._steps, self._left = 1, 1.0
        self._decimals = Decimals()

    def add_row(self, row: MetricRow, silent: float | None, masked: float = 0.0, clip: float | None = None) -> None:
        """Take one train row (several optimizer steps if ``logging_steps`` > 1).

        ``silent`` is the share of its groups without a signal (``evidence.no_signal_ratio``), ``masked`` the share of
        its steps whose loss held no token (``MaskedLoss``). If a tiny ``clip`` shrinks the gradient, the step counts
        with the remaining share, as SGD makes it; Adam's is hardly larger.
        """
        self.total += self._pending
        self._pending = 0.0
        if row.resolution is None:
            self._decimals.add_row(row)
        norm = number(row, "grad_norm") or 0.0
        self.highest_norm = max(self.highest_norm, norm)
        self._note(row, silent)
        self._steps = 1 if self._last_step is None else max(1, row.step - self._last_step)
        self._last_step = row.step
        self._left = 1.0 - masked
        if clip and clip <= LEAST_CLIP:
            self._left *= clip / max(clip, norm)
        self._move(row)

    def complete(self, row: MetricRow, silent: float | None) -> None:
        """Take further metrics of the newest row's step from a row of their own."""
        self._note(row, silent)
        if row.step == self._last_step and not self._pending:
            self._move(row)

    def _note(self, row: MetricRow, silent: float | None) -> None:
        if silent is not None:
            self.signal = 1.0 - silent
        entropy = number(row, "entropy")
        if entropy is not None:
            self.floor = ARITHMETIC_FLOOR_LIKELY if entropy <= LIKELY_TOKENS else ARITHMETIC_FLOOR_UNSURE

    def _move(self, row: MetricRow) -> None:
        rate = number(row, "learning_rate")
        if rate is None:
            return
        self.rate_known = True
        self._pending = rate * self._left * (1.0 if self.signal is None else self.signal)
        self.total += self._pending * (self._steps - 1)

    def resolution(self, row: MetricRow) -> float | None:
        """The smallest non-zero number that the row's log can show, by its channel or else by its numbers."""
        return self._decimals.resolution if row.resolution is None else row.resolution

    def expected_kl(self, *, adapter: bool) -> float:
        """The least KL to the reference that a healthy run would show by now."""
        return (KL_PER_SQUARED_LR_ADAPTER if adapter else KL_PER_SQUARED_LR) * self.total * self.total

    def kl_would_show(self, row: MetricRow, *, adapter: bool, floor: float | None = None) -> bool:
        """Whether the row's log and arithmetic (``floor``, else the usual one) can show that KL."""
        return self.expected_kl(adapter=adapter) >= max(self.resolution(row) or 0.0, floor or self.floor)


class Decimals:
    """Finds out by the numbers whether a log rounds to a few decimals or prints them in full.

    Follows the rows of one attempt whose channel does not say how it rounds.

    Four significant digits (transformers 5) are few decimals too, but never turn a number above 0 into 0. With them, a
    number of 1 or more has fewer decimals than a smaller one, while rounding gives both the same.
    """

    __slots__ = ("_large", "_metrics", "_most", "_values")

    def __init__(self) -> None:
        self._most = self._large = 0
        self._values = 0
        self._metrics: set[str] = set()

    def add_row(self, row: MetricRow) -> None:
        """Take the fractions of a train row."""
        if self._most > MOST_DECIMALS:
            return
        for metric, value in row.values.items():
            if value is None or metric in OWN_PRECISION or not isfinite(value) or value.is_integer():
                continue
            self._values += 1
            self._metrics.add(metric)
            self._most = _decimals(value, self._most)
            if abs(value) >= 1.0:
                self._large = _decimals(value, self._large)

    @property
    def resolution(self) -> float | None:
        """The smallest non-zero number that the log can show; None if numbers are printed in full, or if unknown."""
        rounded = self._most == self._large <= MOST_DECIMALS
        if not rounded or self._values < LEAST_VALUES or len(self._metrics) < LEAST_METRICS:
            return None
        return float(f"1e-{self._most}")


def _decimals(value: float, least: int) -> int:
    """The number of decimals of a value: at least ``least``, at most ``MOST_DECIMALS`` + 1."""
    while least <= MOST_DECIMALS and round(value, least) != value:
        least += 1
    return least


MASKS = "mask_truncated_completions"
"""The setting that leaves truncated completions out of the loss."""
RARE = 0.1
"""Share of micro-batches without a token up to which means over all of them still describe the policy. Their entropy
and KL are logged as 0 (TRL 1.16.0: 0.37 where every token sampled had 3.73)."""


class MaskedLoss:
    """Tracks whether losses held tokens; ``whole`` says that the loss of the newest train row held none.

    ``chance`` (0…1) is the probability that its last step, whose gradient norm is logged, held none; ``diluted`` says
    that its mean entropy and KL include the zeros of many micro-batches without a token. Both use the truncated share
    of the newest generation: it feeds several steps, some of which may get only truncated completions, and the rows
    between carry no share. ``left_out`` says that truncated completions are left out, or may be and all are.
    """

    __slots__ = ("_last_step", "chance", "cut", "diluted", "left_out", "whole")

    def __init__(self) -> None:
        self.whole = self.diluted = False
        self.left_out = False
        self.chance = 0.0
        self.cut = 0.0
        self._last_step = 0

    def add_row(self, row: MetricRow, masks: object, number_of: Callable[[str], float | None]) -> None:
        """Take a train row; ``masks``: the setting (None: unknown); ``number_of`` gives another setting."""
        cut = number(row, "completion_truncated_ratio")
        self.cut = self.cut if cut is None else min(1.0, max(0.0, cut))
        single, self._last_step = row.step == self._last_step + 1, row.step
        left_out = bool(masks) and self.cut > 0.0
        self.left_out = left_out or (masks is None and self.cut == 1.0)
        if not self.left_out:
            self.whole, self.diluted, self.chance = False, False, 0.0
            return
        entropy = number(row, "entropy")
        exact = entropy == 0.0 and row.resolution is None and not number(row, "kl_reference")
        self.whole = self.diluted = exact
        self.chance = float(self.whole)
        if not left_out:
            return
        micro, *others = (
            max(1.0, number_of(name) or 1.0)
            for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "world_size")
        )
        step = micro * others[0] * others[1]
        self.whole |= entropy is None and self.cut == 1.0
        self.diluted = self.whole or self.cut**micro > RARE
        if self.whole:
            self.chance = 1.0
        elif entropy is None or not single:
            self.chance = self.cut**step
