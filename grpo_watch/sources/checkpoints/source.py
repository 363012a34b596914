"""Turns a run's checkpoint folders into checksums once they are complete."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from grpo_watch.engine.record_parts import Movement
from grpo_watch.engine.records import CheckpointDigest, CheckpointKind, Cursor, Item
from grpo_watch.errors import ChangedWhileReadError, SourceError
from grpo_watch.frameworks.framework_tables import layout_of
from grpo_watch.sources.base import Skip
from grpo_watch.sources.checkpoints.checkpoint_folder import CheckpointFolder, list_checkpoints, marker_is_whole
from grpo_watch.sources.checkpoints.comparison import movement, still_base, unrelated
from grpo_watch.sources.checkpoints.extents import human
from grpo_watch.sources.checkpoints.weights import UNLIMITED, CheckpointWeights, ReadLimits, digest_checkpoint
from grpo_watch.sources.files.reading import inside, real_path
from grpo_watch.sources.step_folder import EntryResult, StepFolder, SweepEntry

log = logging.getLogger("grpo_watch.checkpoints")

SETTLED = 120.0
"""Seconds without a change after which weights newer than the marker are judged anyway (copied files)."""


class CheckpointOutcome(EntryResult, frozen=True):
    """The result for one checkpoint folder."""

    weights: CheckpointWeights | None = None
    movement: Movement | None = None
    unrelated: tuple[int, int] = (0, 0)
    base: str = ""


def judge_checkpoint(
    folder: Path,
    roots: Sequence[Path],
    limits: ReadLimits = UNLIMITED,
    before: tuple[Path, Mapping[str, str]] | None = None,
) -> CheckpointOutcome:
    """Digest one folder. Top-level with plain arguments, so that a worker process can run it; never raises.

    Args:
        folder: the checkpoint's folder.
        roots: folders that links may not lead out of.
        limits: how its files are read.
        before: folder and checksums of the previous checkpoint; None for the first, which is compared with its base.
    """
    try:
        weights = digest_checkpoint(folder, roots, limits)
    except FileNotFoundError:
        return CheckpointOutcome(gone=True)
    except ChangedWhileReadError as error:
        return CheckpointOutcome(skip=Skip.TRUNCATED, failure=f"{folder.name}: {error}")
    except (SourceError, OSError) as error:
        return CheckpointOutcome(
            skip=Skip.OUTSIDE if _leads_out(folder, roots) else Skip.UNREADABLE, failure=str(error)
        )
    if weights is None:
        return CheckpointOutcome(gone=True)
    if before is None:
        return CheckpointOutcome(weights, base=still_base(folder, weights, roots, limits))
    return _beside(*before, folder, weights, roots)


def _beside(
    before: Path, checksums: Mapping[str, str], folder: Path, weights: CheckpointWeights, roots: Sequence[Path]
) -> CheckpointOutcome:
    """Return the outcome with the comparison's results; errors of the comparison leave the digest valid."""
    both = (before, checksums, folder, weights.tensors, roots)
    try:
        likeness = unrelated(*both) if weights.kind is CheckpointKind.FULL else (0, 0)
        return CheckpointOutcome(weights, movement=movement(*both), unrelated=likeness)
    except Exception:
        log.exception("%s is not compared with the checkpoint before", folder.name)
        return CheckpointOutcome(weights)


def _leads_out(folder: Path, roots: Sequence[Path]) -> bool:
    try:
        return not all(inside(item, roots) for item in folder.iterdir())
    except OSError:
        return False


class CheckpointSource(StepFolder):
    """Watches a folder and digests each complete checkpoint in it, by rising step.

    Complete means: it has weight files, the file that the framework writes last (``CheckpointLayout``) is whole, and
    there is no ``checkpoint-is-incomplete.txt``; or the tracker next to the folders names this step or a later one.
    Live, two polls must also see the same weight files, and if these are newer than the marker (a resumed run saves the
    same step again beside the old marker), nothing may have changed for two minutes. Folders without weight files, and
    those that vanish meanwhile, are not judged.

    ``finish`` also accepts folders without the marker if no checkpoint here has it (stripped when the run was packed,
    or never written by the framework) and their weights are whole; else a folder without its marker counts as an
    interrupted save.

    Links to other checkpoints of this folder are skipped; links out of the roots are refused and reported in
    ``stats.problem``. A step saved again with the same bytes is not emitted again.
    """

    AT_ONCE = 1

    def _begin(self, *, limits: ReadLimits = UNLIMITED, **_: Any) -> None:
        """``limits``: how weights are read."""
        super()._begin()
        self._limits = limits
        self._last: tuple[int, Path, Mapping[str, str]] | None = None
        self._found: dict[int, CheckpointFolder] = {}
        self._since: dict[int, tuple[CheckpointFolder, float]] = {}
        self._judged: dict[int, CheckpointFolder] = {}
        self._emitted: dict[int, str] = {}
        self._reported: set[str] = set()
        self._reading: dict[int, CheckpointFolder] = {}
        self._no_markers = self._settling = False

    @property
    def settling(self) -> bool:
        """Whether the last poll saw a checkpoint that is judged once it has stayed unchanged for a while."""
        return self._settling

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._settling = False
        planned = self._sweep.plan(self._entries(seen))
        self._settling |= not planned
        yield from self._advance(seen, wait=False)

    def _rest(self) -> Iterator[Item]:
        yield from self._advance(None, wait=True)
        self._entries(None)
        self._no_markers = not any(found.marker for found in self._found.values())
        yield from super()._rest()
        for found in self._found.values():
            if found.unfinished or (not found.marker and not self._no_markers):
                self.stats.skip(Skip.TRUNCATED, f"{found.path.name}: the save was cut short: {_lacks(found)}")

    def cursor(self) -> Cursor:
        """Where reading continues."""
        return self._sweep.cursor(self.name, {})

    def _listed(self, seen: float | None) -> Mapping[int, SweepEntry]:
        listed = list_checkpoints(self._path, self._roots)
        self._found = {found.step: found for found in listed.folders}
        for problem in listed.refused:
            self._tell(Skip.OUTSIDE, problem)
        for reason in listed.not_read:
            self._tell(Skip.NOT_READ, reason, refused=False)
        return {
            step: SweepEntry(found.newest, found.weights)
            for step, found in self._found.items()
            if self._is_ready(found, seen)
        }

    def _is_ready(self, found: CheckpointFolder, seen: float | None) -> bool:
        if self._judged.get(found.step) == found:
            return True
        if found.unfinished:
            return False
        if not found.marker:
            return self._no_markers
        if found.state is not None and not marker_is_whole(found.state, self._roots):
            return False
        settled = seen is None or self._is_settled(found, seen)
        self._settling |= not settled
        return settled

    def _is_settled(self, found: CheckpointFolder, seen: float) -> bool:
        """Whether an earlier poll saw the same files; long enough ago if the marker is older than the weights."""
        known, since = self._since.get(found.step, (None, seen))
        if known != found:
            self._since[found.step] = found, seen
            return False
        return found.marker >= found.newest or seen - since >= SETTLED

    def _read(self, step: int) -> None:
        found = self._found.get(step)
        if found is None:  # deleted by rotation since it was planned
            self._sweep.done(step, None)
            return
        self._reading[step] = found
        before = self._last[1:] if self._last is not None and self._last[0] < step else None
        log.info("reading a checkpoint", extra={"fields": self._size_of(found)})
        self._work(step, judge_checkpoint, found.path, self._roots, self._limits, before)

    def _collect(self, step: int, result: CheckpointOutcome | Exception, seen: float | None) -> Iterator[Item]:
        found = self._reading.pop(step)
        if isinstance(result, Exception):
            result = CheckpointOutcome(skip=Skip.UNREADABLE, failure=f"{found.path}: the reader failed: {result}")
        if result.weights is not None and result.weights.problems:
            there = all(os.path.lexists(found.path / name) for name, _, _ in found.weights)
            result = result if there else CheckpointOutcome(gone=True)  # rotation deleted it while it was read
        if self._done(step, found.weights, result):
            self._judged[step] = found
        if result.weights is not None:
            yield from self._emit(found, result.weights, result, seen)

    def _size_of(self, found: CheckpointFolder) -> dict[str, str]:
        """Return for people who wait how much there is to read, and how long that takes at the limit."""
        size = sum(size for _, size, _ in found.weights)
        described = {"checkpoint": _shown(found.path, self._roots), "size": human(size)}
        return {**described, "seconds": f"{size / self._limits.io_limit:.0f}"} if self._limits.io_limit else described

    def _emit(
        self, found: CheckpointFolder, weights: CheckpointWeights, outcome: CheckpointOutcome, seen: float | None
    ) -> Iterator[Item]:
        if not found.marker and weights.problems:
            self.stats.skip(Skip.TRUNCATED, f"{found.path.name}: {weights.problems[0]}")
            return
        self.stats.bytes += sum(size for _, size, _ in found.weights)
        joint = joint_digest(weights)
        if self._emitted.get(found.step) == joint:
            self.stats.skip(Skip.DUPLICATE, f"{found.path.name}: saved again with the same bytes")
            return
        self._emitted[found.step] = joint
        self._last = found.step, found.path, {name: one.checksum for name, one in weights.tensors.items()}
        if weights.remarks and not self._refusal:
            self._refusal = self.stats.problem = f"{found.path.name}: {weights.remarks[0]}"
        yield CheckpointDigest(
            channel=self.name,
            step=found.step,
            path=_shown(found.path, self._roots),
            complete=True,
            tensors=weights.tensors,
            kind=weights.kind,
            segment=self.segment,
            seen=seen,
            problems=weights.problems,
            adapter=weights.adapter,
            replicas=weights.replicas,
            optimizer=weights.optimizer,
            movement=outcome.movement,
            unrelated=outcome.unrelated,
            base=outcome.base,
        )

    def _count(self, result: EntryResult) -> None:
        self._tell(result.skip or Skip.UNREADABLE, result.failure)

    def _tell(self, reason: Skip, problem: str, *, refused: bool = True) -> None:
        """Count a problem once; a refusal is also a problem of the channel."""
        if problem not in self._reported:
            self._reported.add(problem)
            self.stats.skip(reason, problem)
        if refused:
            self._refusal = self.stats.problem = problem


def _lacks(found: CheckpointFolder) -> str:
    """Return the marker that the framework writes last and that is missing."""
    layout = layout_of(found.path.name) or next(
        filter(None, (layout_of(folder.name) for folder in found.path.parents)), None
    )
    last = (*layout[0].markers, *layout[0].trackers) if layout else ()
    return f"no {last[0]}" if last and layout and layout[0].markers else f"{' or '.join(last)} has not reached it"


def joint_digest(weights: CheckpointWeights) -> str:
    """Return one hash over all tensors (names, types, shapes, bytes) and problems."""
    parts = [f"{name}\0{one.dtype}{one.shape}{one.checksum}" for name, one in sorted(weights.tensors.items())]
    return str(xxhash.xxh3_128_hexdigest("\0".join([*parts, *weights.problems]).encode("utf-8", "surrogatepass")))


def _shown(path: Path, roots: Sequence[Path]) -> str:
    """Return the path relative to the run folder if it lies in it, however either was named; else absolute."""
    places = (path, real_path(path.parent) / path.name)
    below = (place.relative_to(root) for root in roots for place in places if place.is_relative_to(root))
    return next(map(Path.as_posix, below), str(places[-1]))
