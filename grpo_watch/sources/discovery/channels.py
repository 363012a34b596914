"""The contents of channels: the reader of each, and the items that it gives."""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Any

from grpo_watch.engine.records import ChannelKind
from grpo_watch.sources.base import Source
from grpo_watch.sources.trackers.mlflow import MlflowFilesSource, MlflowSource
from grpo_watch.sources.trackers.swanlab import SwanlabSource
from grpo_watch.sources.trackers.tfevents import TfeventsSource
from grpo_watch.sources.trackers.tracker_source import TrackerFile
from grpo_watch.sources.trackers.trackio import TrackioSource
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource

_ROWS, _GROUPS = "metric rows", "completions by group"
_JSONL, _CONSOLE, _STATE = ChannelKind.JSONL, ChannelKind.CONSOLE, ChannelKind.TRAINER_STATE
_DUMPS = "completions.rollout_dumps.CompletionDumpsSource"
_SERVED = "metric rows, settings, completions, over the network"
_SAVED = "metric rows at full precision, once per checkpoint"
_IN_MEMORY = "checksums of the weights in memory, settings"


class ChannelContent(str, Enum):
    """The content of a channel.

    Attributes:
        reader: the tracker whose file it is; else module and name of its source, imported when a run has such a channel
            (a third of the start of ``check``).
        gives: the items read from it, in words.
        kind: the kind of its metric rows; None if it has none.
        files: stands for the files in its name, if it is a folder.
    """

    reader: type[TrackerFile] | str
    gives: str
    kind: ChannelKind | None
    files: str

    def __new__(  # noqa: PYI034  no Self before 3.11
        cls,
        value: str,
        reader: type[TrackerFile] | str,
        gives: str = "",
        kind: ChannelKind | None = None,
        files: str = "",
    ) -> ChannelContent:
        """Make a member from its name and attributes; a tracker class brings its own."""
        made = str.__new__(cls, value)
        made._value_, made.reader, made.files = value, reader, files
        made.gives, made.kind = (gives, kind) if isinstance(reader, str) else (reader.GIVES, reader.KIND)
        return made

    JSONL = "metrics jsonl", "rows.jsonl.JsonlSource", _ROWS, _JSONL
    JSONL_PIECES = "metrics jsonl, several lines per step", "rows.jsonl.JsonlPiecesSource", _ROWS, _JSONL
    CONSOLE = "console", "console.source.ConsoleSource", "metric rows, progress, tracebacks", _CONSOLE
    TRAINER_STATE = (
        *("trainer state", "rows.trainer_state.TrainerStateSource", _SAVED, _STATE),
        "checkpoint-*/trainer_state.json",
    )
    COMPLETIONS_JSONL = "completions jsonl", "completions.jsonl_source.CompletionsJsonlSource", _GROUPS
    COMPLETIONS_PARQUET = (
        *("completions parquet", "completions.parquet.CompletionsParquetSource", _GROUPS, None),
        "completions_*.parquet",
    )
    CHECKPOINTS = (
        *("checkpoints", "checkpoints.source.CheckpointSource", "checksums of the saved weights", None),
        "checkpoint-*",
    )
    RUN_CONFIG = "run config", "settings.run_config.RunConfigSource", "settings of the run"
    TFEVENTS = "tensorboard events", TfeventsSource
    WANDB_OFFLINE = "wandb offline", WandbOfflineSource
    WANDB_API = "wandb api", "trackers.wandb_api.source.WandbApiSource", _SERVED, ChannelKind.WANDB
    TRACKIO = "trackio", TrackioSource
    SWANLAB = "swanlab", SwanlabSource
    MLFLOW = "mlflow", MlflowSource
    MLFLOW_FILES = "mlflow run", MlflowFilesSource
    TABLE = "metrics table", "console.notebook.table_source", _ROWS, _JSONL
    COMPLETION_DUMPS = "completion dumps", _DUMPS, _GROUPS, None, "*.jsonl"
    ROLLOUT_SUMMARIES = (
        *("rollout summaries", _DUMPS, "metric rows, one per file", _STATE),
        "*_rollout_summaries.jsonl",
    )
    WANDB_TABLES = (
        *("wandb completion tables", "completions.completion_table.WandbTablesSource", _GROUPS, None),
        "*.table.json",
    )
    NOTEBOOK = "notebook", "console.notebook.NotebookSource", "metric rows, settings, errors", _CONSOLE
    JSON_DOCUMENT = "metrics json", "rows.document.DocumentSource", _ROWS, _STATE
    ROW_PIECES = "metrics, a file per step or metric", "rows.pieces.PiecesSource", _ROWS, _STATE, "*"
    PROBE = (
        *("checksums of weights in memory", "checkpoints.probe_source.ProbeSource", _IN_MEMORY, None),
        "grpo-watch-probe-*.jsonl",
    )

    @property
    def tracker(self) -> type[TrackerFile] | None:
        """The tracker whose file it is."""
        return None if isinstance(self.reader, str) else self.reader

    def open(self, *arguments: Any, **options: Any) -> Source:
        """Return the source of such a channel; arguments as of ``ChannelSource``."""
        made: Any = self.reader
        if isinstance(made, str):
            module, _, name = made.rpartition(".")
            made = getattr(import_module(f"grpo_watch.sources.{module}"), name)
        source: Source = made(*arguments, **options)
        return source


TRACKERS = tuple((content, content.tracker) for content in ChannelContent if content.tracker is not None)
"""The contents that are trackers' files, and their readers."""
COMPLETIONS = frozenset(
    {ChannelContent.COMPLETIONS_JSONL, ChannelContent.COMPLETIONS_PARQUET, ChannelContent.COMPLETION_DUMPS}
)
"""If a run has one of these, the tables that it also logs to a tracker are not read."""
