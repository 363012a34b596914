"""Opens the channels of a found run: one source each, the items that announce them, and the unread ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.records import ChannelKind, ChannelOpened, Cursor, Item, RunConfig, Scalar
from grpo_watch.engine.snapshot import ROWS
from grpo_watch.extras import without_parquet
from grpo_watch.frameworks.framework_tables import layout_of
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.base import KeptTexts, Source, SourceStats, Submit
from grpo_watch.sources.discovery.channels import COMPLETIONS, ChannelContent
from grpo_watch.sources.discovery.discover import FoundChannel, FoundRun
from grpo_watch.sources.discovery.look import LEADS_OUT
from grpo_watch.sources.settings.run_config import from_user

if TYPE_CHECKING:
    from grpo_watch.sources.checkpoints.weights import ReadLimits


def unread_evidence(found: FoundRun) -> Mapping[str, str]:
    """Map each kind of evidence (``completions``, ``checkpoints`` or rows) to why it isn't read, and the fix.

    Args:
        found: the run, from discovery; each line of its problems begins with a path.
    """
    unread: dict[str, str] = {}
    for problem in found.problems:
        path, out, _ = problem.partition(f": {LEADS_OUT}")
        if out:
            name = PurePath(path).name
            unread.setdefault(_need(name), f"{name} leads out of the run's folder, list its target under allow_roots")
    if missing := _unread_parquet(found):
        unread.setdefault("completions", missing)
    return unread


def _unread_parquet(found: FoundRun) -> str:
    """Return why the run's Parquet dumps are not read; empty if they are, or if there are none."""
    dumps = any(channel.what is ChannelContent.COMPLETIONS_PARQUET for channel in found.channels)
    return without_parquet() if dumps else ""


def _need(name: str) -> str:
    if layout_of(name) is not None:
        return "checkpoints"
    return "completions" if "completions" in name or "rollout" in name else ROWS


MAPPED = frozenset({ChannelContent.JSONL, ChannelContent.TABLE, ChannelContent.CONSOLE})
"""Channels whose columns a user may map to metrics."""
SHOW_TEXTS = COMPLETIONS | {ChannelContent.WANDB_OFFLINE, ChannelContent.WANDB_TABLES, ChannelContent.TRACKIO}
"""Channels that show the texts of the tables that TRL prints to the console."""
STEP = "step"
"""The name of the step in ``columns``; it is no metric."""


@dataclass(slots=True)
class OpenedSource:
    """A source with its channel, for the drivers. ``early`` sources are read before all others (configuration)."""

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

    @property
    def stats(self) -> SourceStats:
        """How much the source read and skipped so far."""
        return self.source.stats


@dataclass(slots=True)
class OpenedRun:
    """All opened channels of one run."""

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


def open_run(  # noqa: PLR0913  all that a run is opened with
    found: FoundRun,
    pipeline: Pipeline,
    settings: Mapping[str, Scalar] | None = None,
    cursors: Mapping[str, Cursor] | None = None,
    submit: Submit | None = None,
    *,
    examples: KeptTexts = KeptTexts.EXCERPT,
    columns: Mapping[str, str] | None = None,
    care: ReadLimits | None = None,
    known: Collection[str] = (),
) -> OpenedRun:
    """Open every readable channel of a run.

    Args:
        found: the run, from discovery.
        pipeline: asked for the group size once the configuration is known.
        settings: the user's (``--set``); they win over all settings read from files.
        cursors: where reading continues, by channel name.
        submit: runs heavy work elsewhere (checksums, Parquet); None runs it in place.
        examples: how much of the completions is kept.
        columns: canonical metric (or ``step``) → its name in the run's own logs.
        care: how weights are read; None: without limits.
        known: names of channels to leave out: they are open, or parts of an open channel.
    """
    opened, silent, names = OpenedRun(), without_tables(found), columns or {}
    pipeline.state.refused = unread_evidence(found)
    opened.announcements += user_config(settings or {}, names)

    place = (found.roots or (found.root,), partial(_group_size, pipeline))
    for channel in found.channels:
        if channel.name in known:
            continue
        own = _own_of(channel, names, care, tables=channel.name not in silent)
        if channel.what is ChannelContent.SWANLAB:
            own["tables"] = not any(one.what is ChannelContent.CONSOLE for one in found.channels)
        if channel.what is ChannelContent.ROLLOUT_SUMMARIES:
            own = {"longest": partial(pipeline.state.number, "max_completion_length")}
        cursor = (cursors or {}).get(channel.name)
        source = (channel.opens or channel.what.open)(
            channel.name, channel.path, *place, channel.segment, cursor, examples=examples, submit=submit, **own
        )
        source.step_column = names.get(STEP, "")
        kind, early = channel.what.kind, channel.what is ChannelContent.RUN_CONFIG
        opened.sources.append(OpenedSource(source, channel.what.value, kind, channel.segment, channel.path, early))
        if kind is not None:
            opened.announcements.append(
                ChannelOpened(channel.name, kind, channel.segment, channel.shows_end, channel.in_folder)
            )
    return opened


def without_tables(found: FoundRun) -> Mapping[str, frozenset[str]]:
    """Map channels whose completion tables aren't read to the run's better channels that show the texts."""
    unread = frozenset({ChannelContent.COMPLETIONS_PARQUET}) if _unread_parquet(found) else frozenset[ChannelContent]()
    texts, completions = (
        frozenset(channel.name for channel in found.channels if channel.what in shown - unread)
        for shown in (SHOW_TEXTS, COMPLETIONS)
    )
    tables = {
        channel.name: texts if channel.what is ChannelContent.CONSOLE else completions
        for channel in found.channels
        if channel.what is ChannelContent.CONSOLE or channel.what.tracker is not None
    }
    return {name: better for name, better in tables.items() if better}


def user_config(settings: Mapping[str, Scalar], columns: Mapping[str, str]) -> list[RunConfig]:
    """Return an item with the user's settings and column names of a run; empty without any."""
    named = {name: column for name, column in columns.items() if name != STEP}
    return [replace(from_user(settings), columns=named)] if settings or named else []


def _own_of(
    channel: FoundChannel, columns: Mapping[str, str], care: ReadLimits | None, *, tables: bool
) -> dict[str, Any]:
    """Return the arguments that only this channel's source takes."""
    own: dict[str, Any] = {"columns": columns} if channel.what in MAPPED else {}
    if channel.run:
        own |= {"run": channel.run, "named_by": channel.named_by}
    if channel.what is ChannelContent.CONSOLE:
        own["tables"] = tables
    elif channel.what is ChannelContent.CHECKPOINTS and care is not None:
        own = {"limits": care}
    elif channel.what.tracker is not None:
        own = {"run": channel.run, "tables": tables}
    return own


def _group_size(pipeline: Pipeline) -> int | None:
    size = pipeline.state.number("num_generations")
    return int(size) if size is not None else None
