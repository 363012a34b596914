"""How checkpoints are laid out: what ``<framework>/checkpoints.py`` lists in ``LAYOUTS``, and the libraries' own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from grpo_watch.frameworks.framework_tables import contributions

STATE = "trainer_state.json"
"""transformers 4.51 to 5.23 write it last; it is read to its end before it counts."""


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """One way to lay checkpoints out; those with one ``folder`` are used as one.

    Attributes:
        folder: matches a checkpoint's name, its group is the step.
        within: the folders that may hold the weights, the best first.
        markers: files in the checkpoint that are written last.
        trackers: files next to the checkpoints that name the newest step whose save was completed.
        holds: names of which one lies in the folder, where the folder's name alone proves nothing.
        not_below: parents whose folders of this name are no checkpoints.
        unfinished: matches folders that are being written or replaced.
        configured: the marker of a checkpoint that holds the run's configuration.
    """

    folder: re.Pattern[str]
    within: tuple[str, ...]
    markers: tuple[str, ...] = ()
    trackers: tuple[str, ...] = ()
    holds: frozenset[str] = frozenset()
    not_below: frozenset[str] = frozenset()
    unfinished: re.Pattern[str] | None = None
    configured: str = ""


LIBRARIES = (
    CheckpointLayout(re.compile(r"checkpoint-(\d{1,12})"), ("",), markers=(STATE,), configured=STATE),  # transformers
    CheckpointLayout(re.compile(r"global_step(\d{1,12})"), ("",), trackers=("latest",)),  # DeepSpeed
    CheckpointLayout(re.compile(r"iter_(\d{7})"), ("",), trackers=("latest_checkpointed_iteration.txt",)),  # Megatron
)
"""What libraries write for any framework."""


@cache
def layouts() -> tuple[CheckpointLayout, ...]:
    """Every layout, one per form of a folder's name."""
    by_name: dict[str, list[CheckpointLayout]] = {}
    for listed in (LIBRARIES, *contributions("checkpoints", "LAYOUTS")):
        for one in listed:
            by_name.setdefault(one.folder.pattern, []).append(one)
    return tuple(_joined(same) for same in by_name.values())


def layout_of(name: str) -> tuple[CheckpointLayout, int] | None:
    """The layout in which a checkpoint has this name, and its step."""
    for layout in layouts():
        if match := layout.folder.fullmatch(name):
            return layout, int(match[1])
    return None


def _joined(same: Sequence[CheckpointLayout]) -> CheckpointLayout:
    return CheckpointLayout(
        folder=same[0].folder,
        within=tuple(dict.fromkeys(name for one in same for name in one.within)),
        markers=tuple(dict.fromkeys(name for one in same for name in one.markers)),
        trackers=tuple(dict.fromkeys(name for one in same for name in one.trackers)),
        holds=frozenset().union(*(one.holds for one in same)),
        not_below=frozenset().union(*(one.not_below for one in same)),
        unfinished=next((one.unfinished for one in same if one.unfinished is not None), None),
        configured=next((one.configured for one in same if one.configured), ""),
    )
