"""Keeps of the newest checkpoints which tensors changed, as a map of layer × kind, for the status page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from grpo_watch.detectors.shared.checkpoint_history import CheckpointHistory, changed, comparable
from grpo_watch.engine.records import CheckpointDigest

LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d{1,6})\.")
"""The number of a transformer layer in a tensor's name."""
CHECKPOINTS = 8
LAYERS = 200
KINDS = 40
"""Checkpoints kept, and layers and kinds shown of each: 64 KB of one run at most. What lies beyond is counted only."""
ABSENT = 255
"""A cell without a tensor; the others hold the percentage of their tensors that changed."""
OUTSIDE = -1
"""The layer of embeddings, heads and final norms."""
_ATTENTION = re.compile(r"attn\.|attention\.")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_WRAPPERS = re.compile(r"^(?:base_model\.model\.|_orig_mod\.|module\.|model\.|transformer\.)+")


@dataclass(frozen=True, slots=True)
class WeightsView:
    """One checkpoint against the one before: ``cells`` row by row, a layer each, a percentage for each kind.

    ``before`` is None for the first checkpoint, of which there is nothing to compare. ``optimizer`` says of moments
    and masters whether they changed. ``kind`` is of the checkpoint (full, adapter, rollout-engine), ``rank`` the one
    that saved it where ranks are compared.
    """

    step: int
    before: int | None
    kind: str
    rank: int | None
    tensors: int
    changed: int
    layers: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    cells: bytes = b""
    problems: tuple[str, ...] = ()


class TensorMap:
    """The newest checkpoints of a run, each compared with its nearest lower step."""

    def __init__(self, kept: tuple[WeightsView, ...] = ()) -> None:
        self.kept = kept
        self._known: dict[int | None, CheckpointHistory] = {}

    def take(self, digest: CheckpointDigest) -> None:
        """Account for a checkpoint."""
        usable = digest.complete and not digest.problems
        before = self._known.setdefault(digest.rank, CheckpointHistory()).before(digest) if usable else None
        view = compared(before, digest)
        same = (view.step, view.kind, view.rank)
        others = tuple(old for old in self.kept if (old.step, old.kind, old.rank) != same)
        self.kept = (*others, view)[-CHECKPOINTS:]


def compared(before: CheckpointDigest | None, after: CheckpointDigest) -> WeightsView:
    """The map of one checkpoint."""
    view = WeightsView(
        after.step, None, after.kind.value, after.rank, len(after.tensors), 0, problems=after.problems[:8]
    )
    if before is None:
        return view
    names = comparable(before, after)
    moved = set(changed(before, after, names))
    places = {name: place_of(name) for name in names}
    layers = sorted({layer for layer, _ in places.values()})[:LAYERS]
    kinds = list(dict.fromkeys(kind for _, kind in sorted(set(places.values()), key=_order)))[:KINDS]
    totals: Counter[tuple[int, str]] = Counter(places.values())
    hits: Counter[tuple[int, str]] = Counter(place for name, place in places.items() if name in moved)
    return replace(
        view,
        before=before.step,
        tensors=len(names),
        changed=len(moved),
        layers=tuple(layers),
        kinds=tuple(kinds),
        cells=bytes(_percent(hits[layer, kind], totals[layer, kind]) for layer in layers for kind in kinds),
    )


def place_of(name: str) -> tuple[int, str]:
    """The layer of a tensor (``OUTSIDE``: none) and its kind; the experts of a layer are of one kind."""
    found = LAYER.search(name)
    if found is None:
        return OUTSIDE, _WRAPPERS.sub("", name).removesuffix(".weight")
    return int(found[1]), _EXPERT.sub(".experts.*.", name[found.end() :]).removesuffix(".weight")


def _percent(hit: int, total: int) -> int:
    """0 and 100 only where none or all changed."""
    if not total:
        return ABSENT
    if hit in {0, total}:
        return 100 if hit else 0
    return min(99, max(1, round(100 * hit / total)))


def _order(place: tuple[int, str]) -> tuple[bool, bool, str]:
    """What lies in layers first, and of that attention."""
    layer, kind = place
    return layer == OUTSIDE, not _ATTENTION.search(kind), kind
