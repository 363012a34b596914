"""How checkpoints are laid out: what ``keys.yaml`` lists under ``checkpoints``, and the libraries' own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from grpo_watch.frameworks.framework import CheckpointLayout
from grpo_watch.frameworks.framework_tables import frameworks

STATE = "trainer_state.json"
"""transformers 4.51 to 5.23 write it last; it is read to its end before it counts."""

LIBRARIES = (
    CheckpointLayout(folder=re.compile(r"checkpoint-(\d{1,12})"), markers=(STATE,), configured=STATE),  # transformers
    CheckpointLayout(folder=re.compile(r"global_step(\d{1,12})"), trackers=("latest",)),  # DeepSpeed
    CheckpointLayout(folder=re.compile(r"iter_(\d{7})"), trackers=("latest_checkpointed_iteration.txt",)),  # Megatron
)
"""What libraries write for any framework."""
LISTS = ("within", "markers", "trackers")


@cache
def layouts() -> tuple[CheckpointLayout, ...]:
    """Every layout, one per form of a folder's name."""
    by_name: dict[str, list[CheckpointLayout]] = {}
    for layout in (*LIBRARIES, *(layout for table in frameworks().values() for layout in table.checkpoints)):
        by_name.setdefault(layout.folder.pattern, []).append(layout)
    return tuple(_joined(same) for same in by_name.values())


def layout_of(name: str) -> tuple[CheckpointLayout, int] | None:
    """The layout in which a checkpoint has this name, and its step."""
    for layout in layouts():
        if match := layout.folder.fullmatch(name):
            return layout, int(match[1])
    return None


def _joined(same: Sequence[CheckpointLayout]) -> CheckpointLayout:
    lists = {name: tuple(dict.fromkeys(each for one in same for each in getattr(one, name))) for name in LISTS}
    return CheckpointLayout(
        folder=same[0].folder,
        holds=frozenset().union(*(one.holds for one in same)),
        not_below=frozenset().union(*(one.not_below for one in same)),
        unfinished=next(filter(None, (one.unfinished for one in same)), None),
        configured=next(filter(None, (one.configured for one in same)), ""),
        **lists,
    )
