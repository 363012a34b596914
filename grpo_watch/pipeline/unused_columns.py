"""Says which of the columns that a user explained no row had, so that a spelling mistake shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grpo_watch.sources.discovery.sniff import ChannelContent

NAMES_ITS_STEP = frozenset(
    {"metrics jsonl", "metrics table", "metrics jsonl, several lines per step", "wandb offline", "trackio"}
)
"""Channels whose step may be named; the others number their rows themselves."""
STEP = "step"


def unused(
    columns: Mapping[str, str] | None, unread: Mapping[str, str], channels: Sequence[ChannelContent]
) -> Iterator[str]:
    """One line for each column that had no effect.

    Args:
        columns: canonical metric (or ``step``) → the run's own key, as the user gave it.
        unread: own keys that no row had, and their metrics.
        channels: what the run's channels with rows hold.
    """
    for key, metric in unread.items():
        yield f"columns: {metric}: no row has a key {key!r}"
    if columns and STEP in columns and channels and NAMES_ITS_STEP.isdisjoint(what.value for what in channels):
        kinds = ", ".join(sorted({what.value for what in channels}))
        yield f"columns: step: has no effect here: the rows of {kinds} carry their step themselves"
