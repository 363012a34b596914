"""The first names of reward functions: each costs memory and time for as long as the run is watched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grpo_watch.engine.metric_names import MAX_FUNCTIONS

if TYPE_CHECKING:
    from grpo_watch.engine.records import CompletionSummary

ADVANTAGE = "advantage"
"""Not a function, but given beside them in dumps."""


class FunctionNames:
    """The names of reward functions in the order in which they came, ``MAX_FUNCTIONS`` at most."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def admits(self, name: str) -> bool:
        """Whether a function of this name is read; a new one is noted while there is room."""
        if name not in self._known and len(self._known) < MAX_FUNCTIONS:
            self._known.add(name)
        return name in self._known

    def admitted(self, batch: CompletionSummary) -> CompletionSummary:
        """The batch with the scores of functions that are read, and with its advantages."""
        names = dict.fromkeys(name for group in batch.groups for name in group.rewards)
        refused = {name for name in names if name != ADVANTAGE and not self.admits(name)}
        if not refused:
            return batch
        groups = [
            replace(group, rewards={name: scores for name, scores in group.rewards.items() if name not in refused})
            for group in batch.groups
        ]
        return replace(batch, groups=tuple(groups))
