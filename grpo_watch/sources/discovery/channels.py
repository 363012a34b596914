"""What channels hold: what reads each of them, and what it gives."""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Any, NamedTuple

from grpo_watch.engine.records import ChannelKind
from grpo_watch.sources.base import Source
from grpo_watch.sources.trackers.mlflow import MlflowFilesSource, MlflowSource
from grpo_watch.sources.trackers.swanlab import SwanlabSource
from grpo_watch.sources.trackers.tfevents import TfeventsSource
from grpo_watch.sources.trackers.tracker_source import TrackerFile
from grpo_watch.sources.trackers.trackio import TrackioSource
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource


class ChannelFacts(NamedTuple):
    """What is known of one kind of channel.

    Attributes:
        source: the tracker whose file it is; else module and name of what reads it, imported when a run has such a
            channel (a third of the start of ``check``).
        gives: what is read of it, in words.
        kind: of its metric rows; None where it gives none.
        files: what stands in its name for its files, where it is a folder.
    """

    source: type[TrackerFile] | str
    gives: str
    kind: ChannelKind | None = None
    files: str = ""


def _tracker(source: type[TrackerFile]) -> ChannelFacts:
    return ChannelFacts(source, source.GIVES, source.KIND)


_DUMPS = "completions.rollout_dumps.CompletionDumpsSource"
_ROWS, _GROUPS = "metric rows", "completions by group"


class ChannelContent(str, Enum):
    """What a channel holds; ``facts`` says what reads it."""

    facts: ChannelFacts

    def __new__(cls, value: str, facts: ChannelFacts) -> ChannelContent:  # noqa: PYI034  no Self before 3.11
        """A text with facts."""
        made = str.__new__(cls, value)
        made._value_, made.facts = value, facts
        return made

    JSONL = "metrics jsonl", ChannelFacts("rows.jsonl.JsonlSource", _ROWS, ChannelKind.JSONL)
    JSONL_PIECES = (
        "metrics jsonl, several lines per step",
        ChannelFacts("rows.jsonl.JsonlPiecesSource", _ROWS, ChannelKind.JSONL),
    )
    CONSOLE = (
        "console",
        ChannelFacts("console.source.ConsoleSource", "metric rows, progress, tracebacks", ChannelKind.CONSOLE),
    )
    TRAINER_STATE = (
        "trainer state",
        ChannelFacts(
            "rows.trainer_state.TrainerStateSource",
            "metric rows at full precision, once per checkpoint",
            ChannelKind.TRAINER_STATE,
            "checkpoint-*/trainer_state.json",
        ),
    )
    COMPLETIONS_JSONL = (
        "completions jsonl",
        ChannelFacts("completions.jsonl_source.CompletionsJsonlSource", _GROUPS),
    )
    COMPLETIONS_PARQUET = (
        "completions parquet",
        ChannelFacts("completions.parquet.CompletionsParquetSource", _GROUPS, files="completions_*.parquet"),
    )
    CHECKPOINTS = (
        "checkpoints",
        ChannelFacts("checkpoints.source.CheckpointSource", "checksums of the saved weights", files="checkpoint-*"),
    )
    RUN_CONFIG = "run config", ChannelFacts("settings.run_config.RunConfigSource", "settings of the run")
    TFEVENTS = "tensorboard events", _tracker(TfeventsSource)
    WANDB_OFFLINE = "wandb offline", _tracker(WandbOfflineSource)
    WANDB_API = (
        "wandb api",
        ChannelFacts(
            "trackers.wandb_api.source.WandbApiSource",
            "metric rows, settings, completions, over the network",
            ChannelKind.WANDB,
        ),
    )
    TRACKIO = "trackio", _tracker(TrackioSource)
    SWANLAB = "swanlab", _tracker(SwanlabSource)
    MLFLOW = "mlflow", _tracker(MlflowSource)
    MLFLOW_FILES = "mlflow run", _tracker(MlflowFilesSource)
    TABLE = "metrics table", ChannelFacts("console.notebook.table_source", _ROWS, ChannelKind.JSONL)
    COMPLETION_DUMPS = "completion dumps", ChannelFacts(_DUMPS, _GROUPS, files="*.jsonl")
    ROLLOUT_SUMMARIES = (
        "rollout summaries",
        ChannelFacts(_DUMPS, "metric rows, one per file", ChannelKind.TRAINER_STATE, "*_rollout_summaries.jsonl"),
    )
    WANDB_TABLES = (
        "wandb completion tables",
        ChannelFacts("completions.completion_table.WandbTablesSource", _GROUPS, files="*.table.json"),
    )
    NOTEBOOK = (
        "notebook",
        ChannelFacts("console.notebook.NotebookSource", "metric rows, settings, errors", ChannelKind.CONSOLE),
    )
    JSON_DOCUMENT = "metrics json", ChannelFacts("rows.document.DocumentSource", _ROWS, ChannelKind.TRAINER_STATE)
    ROW_PIECES = (
        "metrics, a file per step or metric",
        ChannelFacts("rows.pieces.PiecesSource", _ROWS, ChannelKind.TRAINER_STATE, "*"),
    )
    PROBE = (
        "checksums of weights in memory",
        ChannelFacts(
            "checkpoints.probe_source.ProbeSource",
            "checksums of the weights in memory, settings",
            files="grpo-watch-probe-*.jsonl",
        ),
    )

    @property
    def tracker(self) -> type[TrackerFile] | None:
        """The tracker whose file it is."""
        return None if isinstance(self.facts.source, str) else self.facts.source

    def open(self, *arguments: Any, **options: Any) -> Source:
        """The source of such a channel; arguments as of ``ChannelSource``."""
        made: Any = self.facts.source
        if isinstance(made, str):
            module, _, name = made.rpartition(".")
            made = getattr(import_module(f"grpo_watch.sources.{module}"), name)
        source: Source = made(*arguments, **options)
        return source


TRACKERS = tuple((content, content.tracker) for content in ChannelContent if content.tracker is not None)
"""The channels that are a tracker's files, and what reads them."""
COMPLETIONS = frozenset(
    {ChannelContent.COMPLETIONS_JSONL, ChannelContent.COMPLETIONS_PARQUET, ChannelContent.COMPLETION_DUMPS}
)
"""Where a run has one of these, the tables that it logs to a tracker as well are not read."""
