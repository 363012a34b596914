"""Two gauges that no framework logs: the share of tensors that changed, and of completions that repeat."""

from __future__ import annotations

from collections import deque

from grpo_watch.engine.records import TRAINED, CheckpointDigest, CompletionSummary

RECENT_BATCHES = 64
"""This many batches of completions are remembered, to know one that comes again through another channel."""


class ChangedShare:
    """Compares each checkpoint, and each probe of what is trained, with the one of a lower step and the same kind."""

    def __init__(self) -> None:
        self._last: dict[str, CheckpointDigest] = {}

    def of(self, digest: CheckpointDigest) -> float | None:
        """Share (0…1) of common tensors whose checksum changed; None where there is nothing to compare."""
        if not digest.complete or digest.problems or digest.kind not in TRAINED:
            return None
        before = self._last.get(digest.kind.value)
        if before is not None and digest.step == before.step:
            return None
        self._last[digest.kind.value] = digest
        if before is None or digest.step < before.step:
            return None
        common = digest.tensors.keys() & before.tensors.keys()
        if not common:
            return None
        changed = sum(digest.tensors[name].checksum != before.tensors[name].checksum for name in common)
        return changed / len(common)


class RecentDumps:
    """The newest batches of completions, and which channel gave each."""

    def __init__(self) -> None:
        self._batches: deque[tuple[tuple[int, tuple[str, ...]], str]] = deque(maxlen=RECENT_BATCHES)

    def known_elsewhere(self, summary: CompletionSummary) -> bool:
        """Whether another channel gave this batch (TRL writes it to Parquet and logs it to wandb)."""
        batch = (summary.step, tuple(group.digest for group in summary.groups))
        comparable = summary.groups and all(group.digest for group in summary.groups)
        known = dict(self._batches).get(batch, summary.channel) if comparable else summary.channel
        if known == summary.channel:
            self._batches.append((batch, summary.channel))
        return known != summary.channel


def duplicate_ratio(summary: CompletionSummary) -> float | None:
    """Share (0…1) of non-empty completions that repeat another one of their group; None without groups."""
    total = repeated = 0
    for group in summary.groups:
        total += group.size - group.empty
        distinct = group.unique - (group.empty > 0)
        repeated += max(0, group.size - group.empty - distinct)
    return repeated / total if total else None
