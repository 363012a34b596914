"""Which rows and dumps belong to a generation batch, and how many optimizer steps and batches one row covers."""

from __future__ import annotations

from grpo_watch.engine.detector import RunView
from grpo_watch.engine.evidence import is_zero, number
from grpo_watch.engine.records import MetricRow


def steps_off_policy(run: RunView) -> bool:
    """Whether one generation feeds several optimizer steps by the configuration (False if it doesn't say).

    Only then must the policy differ from the one that generated: on-policy a policy-update KL of exactly 0 is healthy.
    """
    return run.steps_per_batch > 1


def completions_per_row(run: RunView) -> float | None:
    """Completions sampled for one row, including those that dynamic sampling drops; None if unknown."""
    prompts = max(run.number("prompts_per_step") or 0.0, run.number("prompts_drawn") or 0.0)
    completions = run.number("generation_batch_size") or prompts * (run.number("num_generations") or 0.0)
    return completions * (run.number("logging_steps") or 1.0) or None


def update_is_zero(row: MetricRow) -> bool:
    """Whether the KL between new and old policy and, where it is logged, the share of clipped tokens are exactly 0.

    The share alone proves nothing: at usual learning rates no ratio leaves the clip range in a few steps.
    """
    kl, clipped = number(row, "kl_policy_update"), number(row, "policy_clip_ratio")
    if kl is None or not is_zero(kl, row.resolution):
        return False
    return clipped is None or is_zero(clipped, row.resolution)


class LoggingInterval:
    """How many ``steps`` a row covers: the smallest gap between rows, since rows may be missing; 1 before any gap."""

    __slots__ = ("_known", "_last", "steps")

    def __init__(self) -> None:
        self.steps, self._known = 1, False
        self._last: int | None = None

    def add_row(self, step: int) -> None:
        """Take the step of a new row."""
        apart = 0 if self._last is None else step - self._last
        if apart > 0 and (apart < self.steps or not self._known):
            self.steps, self._known = apart, True
        self._last = step


class BatchesPerRow:
    """How many generation batches a row averages (TRL and ms-swift average between two logs).

    One if some rows lack the judged metrics: then several rows use the same batch.
    """

    __slots__ = ("_between", "_interval")

    def __init__(self) -> None:
        self._interval = LoggingInterval()
        self._between = False

    def add_row(self, row: MetricRow, *, tells: bool) -> None:
        """Take a train row; ``tells``: it carries the judged metrics."""
        if not row.supplement:
            self._interval.add_row(row.step)
            self._between |= not tells

    def count(self, run: RunView) -> float:
        """Batches per row, at least 1; too high if the log does not show that batches are used again."""
        return 1.0 if self._between else max(1.0, self._interval.steps / run.steps_per_batch)


MOST = 64
"""Rows without a reward after which it is no longer logged, not a batch in use (real runs: 1 to 8 steps per batch)."""


class GenerationRows:
    """Counts rows since the newest one with a reward.

    Rows of one batch share its texts, so an anomaly shows on all of them and is one piece of evidence.
    """

    __slots__ = ("_known", "_since")

    def __init__(self) -> None:
        self._known = False
        self._since = 0

    def begins(self, row: MetricRow) -> bool:
        """Whether a batch begins with this row; True for every row if none carries a reward, or none does any more."""
        if "reward_mean" in row.values:
            self._known, self._since = True, 0
            return True
        self._since += 1
        return not self._known or self._since > MOST
