"""Opens the channels that discovery found: one source each, and the items that announce them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_watch.core.records import ChannelKind, ChannelOpened, Cursor, Item, RunConfig
from grpo_watch.runtime.pipeline import Pipeline
from grpo_watch.sources.base import Source
from grpo_watch.sources.checkpoints import CheckpointSource
from grpo_watch.sources.completions import CompletionsJsonlSource, CompletionsParquetSource
from grpo_watch.sources.console import ConsoleSource
from grpo_watch.sources.discover import FoundChannel, FoundRun, What
from grpo_watch.sources.jsonl import JsonlSource
from grpo_watch.sources.run_config import RunConfigSource, from_user
from grpo_watch.sources.trainer_state import TrainerStateSource

KINDS: Mapping[What, ChannelKind] = {
    What.JSONL: ChannelKind.JSONL,
    What.CONSOLE: ChannelKind.CONSOLE,
    What.TRAINER_STATE: ChannelKind.TRAINER_STATE,
}
"""The channels that give metric rows."""


@dataclass(slots=True)
class OpenedSource:
    """A source with what the drivers must know of it. ``early`` sources are read before all others (configuration)."""

    source: Source
    what: str
    kind: ChannelKind | None
    segment: int
    path: Path
    early: bool = False

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.source.name


@dataclass(slots=True)
class OpenedRun:
    """All opened channels of one run."""

    name: str
    sources: list[OpenedSource] = field(default_factory=list)
    announcements: list[Item] = field(default_factory=list)

    def modified(self) -> Iterator[tuple[str, float]]:
        """When each metric channel's file was last written (Unix seconds)."""
        for source in self.sources:
            if source.kind is not None:
                try:
                    yield source.name, source.path.stat().st_mtime
                except OSError:
                    continue

    def close(self) -> None:
        """Free all file handles."""
        for source in self.sources:
            source.source.close()
