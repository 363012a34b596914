"""A large share of tokens is clipped: updates leave the trust region, or the rollouts are stale."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading

CISPO = "cispo_clip_ratio"
"""Logged instead under loss_type cispo (TRL from 0.26 on, ms-swift): tokens whose ratio exceeds epsilon_high itself."""
CAP = (
    "Set --epsilon_high 5.0: with loss_type cispo it caps the importance ratio itself, not its distance from 1, so a "
    "value below 1 (0.28, or epsilon's default of 0.2) clips unchanged tokens too. If it is above 1, lower "
    "--num_iterations or --learning_rate."
)


class ClipFractionHigh(Detector):
    """On-policy rows show zero, so only rows with clipping are judged, against the run's own first ones."""

    explained_by = ("kl-explosion",)

    needs = (("policy_clip_ratio",),)
    share: float = param(0.3, "median clipped share that is a breach", 0, 1)
    share_from_start: float = param(0.6, "the same, if clipping was high from the start (sequence level)", 0, 1)
    rows: int = param(10, "number of rows with clipping in the judged median", minimum=3)
    window: int = param(40, "they must be among this many newest rows", minimum=3)

    def setup(self) -> None:
        """Nothing seen yet."""
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
            at_once = self.clipped[0][0] <= self.rows  # else it was low at first and rose
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
