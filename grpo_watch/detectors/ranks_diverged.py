"""Ranks that should hold the same weights hold different ones."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.records import CheckpointDigest, Reading, Verdict


class RanksDiverged(Detector):
    """Compares the checksums that several ranks took at the same step, tensor by tensor."""

    reads = (CheckpointDigest,)
    needs = (("checkpoints",),)
    params = MappingProxyType({"steps": Param(4, "steps whose digests are kept while ranks still arrive", minimum=1)})
    steps: int

    def setup(self) -> None:
        """No digests."""
        self.known: dict[int, tuple[int, dict[str, str]]] = {}

    def observe(self, record: CheckpointDigest, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Judge one rank's digest against the first rank's of its step."""
        if record.rank is None:
            return no_data("the checkpoints do not say which rank took them")
        if record.problems or not record.tensors:
            return SILENT
        own = {name: tensor.checksum for name, tensor in record.tensors.items()}
        first = self.known.get(record.step)
        if first is None:
            self.known[record.step] = (record.rank, own)
            while len(self.known) > self.steps:
                del self.known[min(self.known)]
            return no_data("a second rank is needed")
        rank, theirs = first
        shared = own.keys() & theirs.keys()
        if rank == record.rank or not shared:
            return SILENT
        apart = sorted(name for name in shared if own[name] != theirs[name])
        if not apart:
            return QUIET
        return (
            Reading(
                Verdict.BREACH,
                value=len(apart) / len(shared),
                message=f"{len(apart)} of {len(shared)} tensors differ between rank {rank} and rank {record.rank}",
                evidence={"ranks": f"{rank}, {record.rank}", "differ": len(apart), "first": apart[0]},
                immediate=True,
            ),
        )
