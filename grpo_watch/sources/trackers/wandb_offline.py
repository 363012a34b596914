"""Turns a run's ``.wandb`` file, written offline or during an upload, into rows, settings, completions and its end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import ChannelKind, CompletionSummary, Cursor, EventKind, Item, RunConfig, RunEvent
from grpo_watch.errors import SourceError
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_table import columns_of
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.files.growing_file import FileFrame, GrowingFile
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.settings.logged_config import logged_config
from grpo_watch.sources.trackers import wandb_log, wandb_record
from grpo_watch.sources.trackers.tracker_source import TrackerSource

TABLE = re.compile(r"media/table/[\w.-]{1,200}\.table\.json")
LARGEST_TABLE = 32 << 20
MOST_WAITING = 16
"""Tables whose file is not there yet: the client copies them beside its log."""
INTERRUPTED = 255
"""The exit code that the client stores after Ctrl-C."""
TIME, COUNTER, OWN = "_timestamp", "_step", ("_step", "_runtime", "_timestamp", "_wandb")


class WandbOfflineSource(TrackerSource):
    """Reads the log that wandb's client keeps beside its upload (or instead of it).

    wandb's own ``_step`` counts calls of ``log``; rows are joined by the step that the framework logs, or by ``_step``
    in a run that never logs one. The client writes whole blocks, so the newest 32 KiB may be missing.

    Args:
        name: the channel's name.
        path: the file; completion tables lie in ``files/`` next to it.
        roots: folders that links may not lead out of.
        group_size: G as configured, asked at each table.
        segment: order among the files of this kind.
        cursor: where an earlier reader stopped.
        examples: what summaries carry of the texts.
        tables: whether completion tables are read (not where the run has them in another channel).
    """

    def __init__(  # noqa: PLR0913 (the arguments that all sources share, and three of its own)
        self,
        name: str,
        path: Path,
        roots: Sequence[Path],
        group_size: Callable[[], int | None],
        segment: int = 0,
        cursor: Cursor | None = None,
        *,
        examples: KeptTexts = KeptTexts.EXCERPT,
        tables: bool = True,
    ) -> None:
        super().__init__(name, ChannelKind.WANDB, group_size, segment, cursor, examples=examples)
        self._roots, self._read_tables = tuple(roots), tables
        self._file = GrowingFile(path, roots, cursor)
        self._waiting = dict.fromkeys(str(self._known.get("waiting") or "").split())
        self._config: dict[str, Any] = {}
        self._configured: RunConfig | None = None

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield what the log's new records give."""
        yield from self._read(seen, ended=False)

    def finish(self) -> Iterator[Item]:
        """Yield the newest step; tables that never came are counted."""
        yield from self._read(None, ended=True)
        yield from super().finish()
        for path in self._waiting:
            self.stats.skip(Skip.UNREADABLE, f"{path}: no such table, or not whole")
        self._waiting = {}

    def cursor(self) -> Cursor:
        """The first record of the step held back."""
        return self._file.cursor(self.name, *self._position(waiting=" ".join(self._waiting)))

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere."""
        return self._file.held

    def close(self) -> None:
        """Free the file handle."""
        self._file.close()

    def _read(self, seen: float | None, *, ended: bool) -> Iterator[Item]:
        yield from self._give()
        for path in tuple(self._waiting):
            yield from self._late_table(path, seen)
        problem = ""
        if self._file.ready(self._feed.read_to):
            if self._file.restarted:
                self._feed.restart()
                self._begin_steps({})
                self._config, self._configured = {}, None
            if wandb_log.is_one(self._file.read):
                yield from self._frames(seen, ended=ended)
            else:
                problem = f"{self._file.path}: no log of wandb's (its first bytes are others)"
        self.stats.bytes, self.stats.problem = self._file.bytes, self._file.problem or problem

    def _frames(self, seen: float | None, *, ended: bool) -> Iterator[Item]:
        for frame in wandb_log.frames(self._file.read, self._feed.read_to, ended=ended):
            self._feed.read_to = frame.end
            self._take(frame, seen)
            yield from self._give()

    def _take(self, frame: FileFrame, seen: float | None) -> None:
        if frame.damage:
            self.stats.skip(Skip.UNREADABLE, f"byte {frame.start}: {frame.damage}")
            return
        try:
            record = wandb_record.decode(frame.payload)
        except ValueError as error:
            self.stats.skip(Skip.BAD_VALUE, f"byte {frame.start}: no record: {error}")
            return
        if isinstance(record, wandb_record.WandbHistory):
            self._history(record, frame, seen)
        elif isinstance(record, wandb_record.WandbConfig):
            self._configure(record.update, frame)
        elif isinstance(record, wandb_record.WandbExit):
            self._feed.flush(frame.start, seen)
            self._feed.say(frame.start, self._end(record.code, seen), frame.end)

    def _history(self, record: wandb_record.WandbHistory, frame: FileFrame, seen: float | None) -> None:
        row = {key: record.row[key] for key in sorted(record.row) if key not in OWN}  # the client shuffles each row's
        values = self._values(row, f"byte {frame.start}", table=bool(record.tables))
        step, time = self._step(row, values, record.row.get(COUNTER)), record.row.get(TIME)
        self._feed.add(frame.start, step, values, time if isinstance(time, float) else None, seen)
        for path in record.tables.values():
            if self._read_tables and TABLE.fullmatch(path) and not self._feed.given_to(frame.start):
                self._feed.say(frame.start, self._table(path, seen), frame.end)

    def _configure(self, update: Mapping[str, Any], frame: FileFrame) -> None:
        self._config.update(update)
        config = logged_config(self._config, "wandb config", self.name, self.segment)
        if config is not None and config != self._configured:
            self._configured = config
            self._feed.say(frame.start, config, frame.end)

    def _end(self, code: int, seen: float | None) -> RunEvent:
        kind, text = EventKind.CRASH_SUMMARY, f"wandb stored the exit code {code}"
        if code == 0:
            kind, text = EventKind.FINISHED, ""
        elif code == INTERRUPTED:
            kind, text = EventKind.KILLED, "interrupted, by wandb's exit code"
        return self._event(kind, text, step=self._feed.last, seen=seen)

    def _table(self, path: str, seen: float | None) -> CompletionSummary | None:
        """The summary of a table; one that can't be read yet is waited for."""
        try:
            return self._tables.summary(columns_of(self._bytes(path)), self.stats, seen)
        except SourceError as error:
            self.stats.skip(Skip.OUTSIDE, str(error))
        except (OSError, ValueError):
            if len(self._waiting) < MOST_WAITING:
                self._waiting[path] = None
        return None

    def _late_table(self, path: str, seen: float | None) -> Iterator[Item]:
        del self._waiting[path]
        item = self._table(path, seen)
        if item is not None:
            self.stats.records += 1
            self._tables.given()
            yield item

    def _bytes(self, path: str) -> bytes:
        """The table's file.

        Raises:
            SourceError: it is not in the run's folder, or no regular file.
            OSError: it can't be read.
            ValueError: it is too large.
        """
        with os.fdopen(open_regular(self._file.path.parent / "files" / path, self._roots), "rb") as file:
            data = file.read(LARGEST_TABLE + 1)
        if len(data) > LARGEST_TABLE:
            raise ValueError("too large")
        return data
