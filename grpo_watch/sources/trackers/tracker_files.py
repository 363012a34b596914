"""The trackers whose files are read: one module and one class each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_watch.sources.trackers.mlflow import MlflowFilesSource, MlflowSource
from grpo_watch.sources.trackers.swanlab import SwanlabSource
from grpo_watch.sources.trackers.tfevents import TfeventsSource
from grpo_watch.sources.trackers.tracker_source import TrackerFile
from grpo_watch.sources.trackers.trackio import TrackioSource
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource

TRACKERS: tuple[type[TrackerFile], ...] = (
    TfeventsSource,
    WandbOfflineSource,
    SwanlabSource,
    TrackioSource,
    MlflowSource,
    MlflowFilesSource,
)
SUFFIXES = tuple(suffix for tracker in TRACKERS for suffix in tracker.SUFFIXES)


def tracker_of(path: Path, roots: Sequence[Path]) -> type[TrackerFile] | None:
    """The tracker that a file is of."""
    named = (tracker for tracker in TRACKERS if path.name.endswith(tracker.SUFFIXES))
    return next((tracker for tracker in named if tracker.holds(path, roots)), None)


def reader(what: str) -> type[TrackerFile] | None:
    """The tracker of a channel by what it holds."""
    return next((tracker for tracker in TRACKERS if what == tracker.WHAT), None)
