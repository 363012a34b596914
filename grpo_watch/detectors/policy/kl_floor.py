"""Tells a KL that lies on a constant floor of noise from the first row on from one that grows with a moving policy."""

from __future__ import annotations

from collections import deque
from statistics import median

from grpo_watch.detectors.shared.checkpoint_history import CheckpointHistory, changed, comparable
from grpo_watch.detectors.shared.logprob_gap import ranks
from grpo_watch.engine.records import SAVED, CheckpointDigest, Reading, Severity, Verdict
from grpo_watch.engine.window import correlation

BEGINS_BY = 10
"""Step by which the first row must come: a log that begins later begins on a plateau (10: ``logging_steps`` of 10)."""
STEPS, ROWS = 50, 25
"""Optimizer steps and rows over which there must be no trend."""
FIRST_WITHIN = 3.0
"""Factor within which the first row lies at the level: where policy and reference share kernels it is 0."""
LEVEL_WITHIN = 1.3
"""Factor between the medians of the first and the last quarter that is no trend."""
NO_ORDER = 0.4
"""Rank correlation with time that is no trend: three standard deviations of that of 50 independent rows."""
LEFT = 1.5
"""Factor at which the newest rows have left the level: from then on the KL reflects the policy."""


class NoiseFloor:
    """Follows the rows of a run's first attempt; ``level`` is the KL of the floor while it lies on one, else None.

    ``frozen`` says whether the newest pair of checkpoints was byte-identical.
    """

    def __init__(self) -> None:
        self.level: float | None = None
        self.first_step = 0
        self.frozen = False
        self._values: list[float] = []
        self._newest: deque[float] = deque(maxlen=10)
        self._over = False
        self._history = CheckpointHistory()

    def push(self, step: int, kl: float) -> None:
        """Take the absolute KL of a row."""
        if self._over:
            return
        if self.level is not None:
            self._stay(kl)
            return
        if not self._values:
            self.first_step = step
        self._values.append(kl)
        if kl == 0.0 or self.first_step > BEGINS_BY:
            self._over = True
        elif step - self.first_step >= STEPS - 1 and len(self._values) >= ROWS:
            self.level, self._over = self._found()

    def _found(self) -> tuple[float | None, bool]:
        values = self._values
        level, quarter = median(values), len(values) // 4
        early, late = median(values[:quarter]), median(values[-quarter:])
        flat = max(early, late) <= LEVEL_WITHIN * min(early, late)
        first = level / FIRST_WITHIN <= values[0] <= level * FIRST_WITHIN
        order = correlation(range(len(values)), ranks(values))
        self._values = []
        return (level, False) if flat and first and abs(order) <= NO_ORDER else (None, True)

    def _stay(self, kl: float) -> None:
        self._newest.append(kl)
        now, level = median(self._newest), self.level or 0.0
        if len(self._newest) == self._newest.maxlen and not level / LEFT <= now <= level * LEFT:
            self.level, self._over = None, True

    def take_checkpoint(self, digest: CheckpointDigest) -> None:
        """Compare the weights of a complete checkpoint with those of the one before it."""
        if digest.kind not in SAVED or not digest.complete or digest.problems:
            return
        before = self._history.before(digest)
        names = [] if before is None else comparable(before, digest)
        if before is not None and names:
            self.frozen = not changed(before, digest, names)

    def reading(self, kl: float) -> Reading:
        """What a KL on the floor says: nothing about the policy, unless checkpoints show that it does not change."""
        level = float(f"{self.level or 0.0:.4g}")
        proof = "and the last two checkpoints are byte-identical: the policy does not move"
        doubt = "it comes from different kernels, not from learning; only checkpoints show whether the weights move"
        return Reading(
            Verdict.BREACH,
            value=kl,
            threshold=level,
            severity=None if self.frozen else Severity.INFO,
            message=f"KL has been flat near {level:.3g} since the first row; {proof if self.frozen else doubt}",
            evidence={"kl_reference": kl, "level": level, "checkpoints_identical": self.frozen},
            first_step=self.first_step,
        )
