"""The history of one run's checkpoints: which one a new checkpoint is to be compared with."""

from __future__ import annotations

from grpo_watch.core.records import CheckpointDigest, CheckpointKind

REMEMBERED = 8
"""Checkpoints kept per kind: a resume goes back by a few at most."""


class CheckpointHistory:
    """Keeps the newest checkpoints of each kind, so that each is compared with its nearest lower step."""

    def __init__(self) -> None:
        self._known: dict[CheckpointKind, dict[int, CheckpointDigest]] = {}

    def before(self, digest: CheckpointDigest) -> CheckpointDigest | None:
        """The usable checkpoint of the same kind with the highest lower step, or None; remembers ``digest``.

        A checkpoint that repeats a step already known (a final save, a best-model copy, a replayed step after a
        resume, a run begun anew in the same folder) replaces it and is never compared with it.
        """
        known = self._known.setdefault(digest.kind, {})
        known[digest.step] = digest
        for step in sorted(known)[:-REMEMBERED]:
            del known[step]
        lower = [step for step in known if step < digest.step]
        return known[max(lower)] if lower else None


def comparable(before: CheckpointDigest, after: CheckpointDigest) -> list[str]:
    """Names of the tensors that both checkpoints hold with at least one element, sorted."""
    return sorted(name for name in before.tensors.keys() & after.tensors.keys() if after.tensors[name].elements)


def changed(before: CheckpointDigest, after: CheckpointDigest, names: list[str]) -> list[str]:
    """Which of ``names`` differ in their exact bytes."""
    return [name for name in names if before.tensors[name].checksum != after.tensors[name].checksum]


WHOLE_FILE = "FILE"
"""The data type of a file whose tensors can't be told apart."""


def proves_nothing(digest: CheckpointDigest, moved: list[str]) -> bool:
    """Whether all that differs are files hashed as a whole: two saves of the same weights may differ in their bytes."""
    return bool(moved) and all(digest.tensors[name].dtype == WHOLE_FILE for name in moved)


def optimizer_between(before: CheckpointDigest, after: CheckpointDigest) -> dict[str, bool]:
    """Whether ``moments`` and ``masters`` of the optimizer changed between two checkpoints; only what both tell."""
    both = before.optimizer.keys() & after.optimizer.keys() & {"moments", "masters"}
    return {kind: before.optimizer[kind] != after.optimizer[kind] for kind in sorted(both)}
