"""Compares the rollout engine's own weights with the trainer's progress: do they follow, and are they the same?"""

from __future__ import annotations

from grpo_watch.core.checkpoints import TRAINED, CheckpointHistory, changed, comparable
from grpo_watch.core.fused import unlike
from grpo_watch.core.records import CheckpointDigest, CheckpointKind

APART = 8
"""Steps of which a digest waits for that of the other side."""


class EngineWeights:
    """Counts syncs after which the engine's weights were the same although the trainer's had changed.

    ``unlike``: tensors (of so many compared) in which the engine differs from the trainer right after it was synced.
    None while nobody said that it was, nothing can be compared, or no tensor was ever the same (an engine may lay its
    weights out otherwise).
    """

    def __init__(self) -> None:
        self._history = CheckpointHistory()
        self._waiting: dict[int, CheckpointDigest] = {}
        self.unlike: tuple[list[str], int] | None = None
        self._alike = False
        self._moved_at = 0
        self.unchanged = 0
        self.since = 0

    def take(self, digest: CheckpointDigest) -> bool:
        """Account for a digest of either side; whether it says something about the engine."""
        if digest.problems or digest.kind is CheckpointKind.FROZEN:
            return False
        compared = self._compare(digest)
        return self._follow(digest) or compared

    def _compare(self, digest: CheckpointDigest) -> bool:
        """Hold an engine that was just synced against what was read in memory at the same step."""
        synced = digest.kind is CheckpointKind.ROLLOUT_ENGINE and digest.synced
        if not synced and digest.kind is not CheckpointKind.PROBE:
            return False
        other = self._waiting.pop(digest.step, None)
        if other is None or other.kind is digest.kind:
            self._waiting[digest.step] = digest
            while len(self._waiting) > APART:
                del self._waiting[min(self._waiting)]
            return False
        trainer, engine = (other, digest) if synced else (digest, other)
        apart, compared = unlike(trainer.tensors, engine.tensors)
        self._alike = self._alike or len(apart) < compared
        self.unlike = (apart, compared) if self._alike else None
        return self._alike and compared > 0

    def _follow(self, digest: CheckpointDigest) -> bool:
        before = self._history.before(digest)
        if before is None:
            return False
        moved = bool(changed(before, digest, comparable(before, digest)))
        if digest.kind in TRAINED:
            self._moved_at = digest.step if moved else self._moved_at
            return False
        if moved:
            self.unchanged = 0
        elif self._moved_at > before.step:
            self.since = self.since if self.unchanged else before.step
            self.unchanged += 1
        else:
            return False
        return True
