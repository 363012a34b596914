"""Compares the rollout engine's own weights with the trainer's progress: do they follow?"""

from __future__ import annotations

from grpo_watch.core.checkpoints import CheckpointHistory, changed, comparable
from grpo_watch.core.records import CheckpointDigest, CheckpointKind


class EngineWeights:
    """Counts syncs after which the engine's weights were the same although the trainer's had changed."""

    def __init__(self) -> None:
        self._history = CheckpointHistory()
        self._moved_at = 0
        self.unchanged = 0
        self.since = 0

    def take(self, digest: CheckpointDigest) -> bool:
        """Account for a digest of either side; whether it says something about the engine."""
        before = None if digest.problems else self._history.before(digest)
        if before is None:
            return False
        moved = bool(changed(before, digest, comparable(before, digest)))
        if digest.kind is not CheckpointKind.ROLLOUT_ENGINE:
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
