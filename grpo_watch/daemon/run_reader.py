"""Reads the channels of one run as they grow: opens new channels and feeds a slice of each one's new items."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from grpo_watch.daemon.schedule import LONGEST_WATCHED_SECONDS, SECOND
from grpo_watch.engine.records import CompletionSummary, Cursor, Item, RunConfig, Scalar
from grpo_watch.pipeline.assembler import Assembler
from grpo_watch.pipeline.channel_merge import ChannelMerge, LiveReading, guarded, reading_order
from grpo_watch.pipeline.open_run import (
    OpenedRun,
    OpenedSource,
    open_run,
    unread_evidence,
    user_config,
    without_tables,
)
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.base import Future, KeptTexts, Submit
from grpo_watch.sources.checkpoints.weights import UNLIMITED, ReadLimits
from grpo_watch.sources.discovery.discover import FoundChannel, FoundRun
from grpo_watch.sources.files.reading import inode_of
from grpo_watch.sources.files.rotated import base_of
from grpo_watch.sources.settings.config_files import FROM_USER


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How to watch a run. ``{folder}`` in ``name`` is the discovered name; ``ended``: its input (a pipe) was closed."""

    name: str = "{folder}"
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    examples: KeptTexts = KeptTexts.EXCERPT
    columns: Mapping[str, str] = field(default_factory=dict)
    ended: Callable[[], bool] = lambda: False
    care: ReadLimits = UNLIMITED

    def judges_unlike(self, other: WatchOptions) -> bool:
        """Whether these options change how a run is read or judged."""
        return (self.settings, self.labels, self.examples, self.columns) != (
            other.settings,
            other.labels,
            other.examples,
            other.columns,
        )


SLICE = 2_000
"""Items per slice: about 0.1 s of work, after which other runs have their turn."""
PATIENCE_SECONDS, GOES_ON_SECONDS = 2.0, 60.0
"""Seconds that a first pass waits for completions and checkpoints of a run written to within the last minute: on a busy
machine the process that reads them gets little time. Later ones are judged on arrival."""
LONGEST_POLL_SECONDS = 20.0
"""Longest time between two listings of folders (checkpoints, dumps, configuration) while the run gives nothing …"""
POLL_SHARE = 25.0
"""… the time between them is the run's silence divided by this …"""
CHANGED_SHARE = 5.0
"""… or, if inotify watches the folders, the time without changes there divided by this."""


class TurnResult(NamedTuple):
    """The result of a turn: items read, whether there is more at once, and the logs that grew without giving an item.

    ``ended``: everything present when reading began has been read.
    """

    items: int
    more: bool
    grown: Sequence[str] = ()
    ended: bool = True


class RunReader:
    """The channels of one run.

    Args:
        found: what discovery found.
        options: the user's settings of the run.
        stored: returns the stored cursor of each channel.
        submit: runs heavy work in another process.
    """

    def __init__(
        self,
        found: FoundRun,
        options: WatchOptions,
        stored: Callable[[], Mapping[str, Cursor]],
        submit: Submit,
    ) -> None:
        self._options, self._stored, self._submit = options, stored, submit
        self.found = found
        """The newest result of discovery; ``open`` opens its new channels."""
        self.lacks = False
        """Whether stored tables are no longer read, and the channel with better texts has not been read yet."""
        self._silent: frozenset[str] = frozenset()
        """Channels that were opened without their tables."""
        self._opened = OpenedRun()
        self.read_at: dict[str, float] = {}
        self._parts: set[tuple[str, int]] = set()
        """Channels, with their inodes, that were read as a log and have since been rotated to a numbered name."""
        self._futures: list[Future] = []
        self._assembler = Assembler("")
        self._merge: ChannelMerge | None = None
        self._items: Iterator[Item | None] = iter(())
        self._read_bytes: dict[str, int] = {}
        self._gave: set[str] = set()
        self._slow_at = self._gave_at = self._changed_at = 0.0
        self._lists_soon = False
        self.logs: frozenset[Path] = frozenset()
        """The files that rows are read from …"""
        self.places: frozenset[Path] = frozenset()
        """… and all files and folders in or below which a change may concern the run."""
        self._log_folders: frozenset[Path] = frozenset()
        self._listed: frozenset[Path] = frozenset()
        self._rings = False
        self._merged_at, self._hurries = math.inf, False
        self.reads = 0
        """How often channels were opened or read; while it is unchanged, so is everything known about them."""

    @property
    def channels(self) -> Sequence[OpenedSource]:
        """The opened channels, in the order of reading."""
        return self._opened.sources

    @property
    def waiting(self) -> bool:
        """Whether data is still outstanding: another process is reading it, or a file must first stop changing."""
        return self._worked_on() or any(one.source.settling for one in self._opened.sources)

    @property
    def has_more(self) -> bool:
        """Whether a turn would find something at once: another process has a result, or reading is not finished."""
        return any(future.done() for future in self._futures) or self.unread or self._behind

    @property
    def unread(self) -> bool:
        """Whether a channel holds more than one turn reads."""
        return any(one.source.unread for one in self._opened.sources)

    @property
    def bytes(self) -> int:
        """How many bytes of the channels were read."""
        return sum(source.stats.bytes for source in self._opened.sources)

    def held(self) -> frozenset[int]:
        """The inodes of open files that still have a name somewhere."""
        return frozenset(filter(None, (source.source.held for source in self._opened.sources)))

    def has_all(self, found: FoundRun) -> bool:
        """Whether discovery's result is unchanged and all its channels are open."""
        return self.found == found and len(self._opened.sources) == len(found.channels)

    def as_set_now(self, items: Iterable[Item]) -> Iterator[Item]:
        """Stored items as they would be read now: with the current user settings, without superseded tables."""
        silent, stored = without_tables(self.found), self._stored()
        for number, item in enumerate(items):
            if not number:
                yield from user_config(self._options.settings, self._options.columns)
            outdated = isinstance(item, RunConfig) and item.precedence == FROM_USER
            if isinstance(item, CompletionSummary) and item.channel in silent:
                self.lacks = self.lacks or silent[item.channel].isdisjoint(stored)
            elif not outdated:
                yield item

    def reads_unlike(self, found: FoundRun) -> bool:
        """Whether the new result of discovery changes how a known channel is read.

        A new channel has better texts than it, or its file now holds several runs.
        """
        fewer = without_tables(found).keys() - without_tables(self.found).keys() - self._silent
        known = {channel.name for channel in self.found.channels} | {source.name for source in self._opened.sources}
        parted = {channel.whole for channel in found.channels if channel.run}
        return not (fewer | parted).isdisjoint(known)

    def open(self, pipeline: Pipeline) -> Sequence[Item]:
        """Open the channels that are not open yet; returns the items that announce them."""
        self.reads += 1
        self._assembler = pipeline.assembler
        known = {source.name for source in self._opened.sources}
        fresh = [channel for channel in self.found.channels if channel.name not in known]
        parts = {channel.name for channel in fresh if self._is_part(channel)}
        if known and len(parts) == len(fresh):
            pipeline.state.refused = unread_evidence(self.found)
            return ()
        opened = open_run(
            self.found,
            pipeline,
            None if known else self._options.settings,
            self._stored(),
            self._tracked,
            examples=self._options.examples,
            columns=self._options.columns,
            care=self._options.care,
            known=known | parts,
        )
        self._silent |= without_tables(self.found).keys() - known
        self._opened.sources = sorted([*self._opened.sources, *opened.sources], key=reading_order)
        self._slow_at = 0.0
        self._note_places()
        return opened.announcements

    def _is_part(self, channel: FoundChannel) -> bool:
        """Whether a channel is the numbered file that a log already read was rotated to.

        Discovery can't know all of them: between the renaming and the first line of the new file there is no log that
        the numbered file could be a part of, and after a restart only the stored cursor shows it.
        """
        base = base_of(channel.path)
        if base is None or channel.opens is not None:
            return False
        with suppress(OSError):
            place = (channel.name, channel.path.stat().st_ino)
            cursor = self._cursors().get(channel.name.removesuffix(channel.path.name) + base.name)
            if cursor is not None and inode_of(cursor.identity) == place[1]:
                self._parts.add(place)
            return place in self._parts
        return False

    def _note_places(self) -> None:
        """Note where writes concern the run; for a log that is a link, inotify reports them in its target's folder."""
        places = {one.path: one.path if one.path.is_dir() else one.path.parent for one in self._opened.sources}
        rows = {one.path for one in self._opened.sources if one.kind is not None}
        self.logs = frozenset(path for path in rows if path != places[path])  # a Trainer's state is read from a folder
        self._log_folders = frozenset(path.resolve().parent if path.is_symlink() else places[path] for path in rows)
        self._listed = frozenset(places.values())
        self.places = self.logs | self._log_folders | self._listed

    def note_changed(self, path: Path) -> None:
        """Note a change of a file or folder: unless it is one of the run's logs, folders are listed soon."""
        self._lists_soon = self._lists_soon or path not in self.logs

    def lists_at(self, now: float, listing: float = SECOND) -> float | None:
        """When to list folders before the run's next read: after a change, or while a file settles; None if neither.

        ``listing``: seconds between two listings (``intervals``).
        """
        wanted = self._lists_soon or self._rings or any(one.source.settling for one in self._opened.sources)
        return min(now, self._slow_at) + self._pause(now, listing) if wanted else None

    def lies_in(self, folders: Collection[Path]) -> bool:
        """Whether all its logs lie in these watched folders; also notes whether all folders it lists do."""
        self._rings = bool(self._listed) and all(one in folders for one in self._listed)
        return bool(self._log_folders) and not self.found.remote and all(one in folders for one in self._log_folders)

    def begin(self, seen: float, now: float) -> None:
        """Let ``read`` first return everything the channels hold now, as seen at ``seen`` (Unix seconds)."""
        self._merged_at = self._gave_at = now
        self._gave.update(source.name for source in self._opened.sources)
        self._start(self._opened.sources, LiveReading(now, seen, self._holds_up))

    def _start(self, sources: Sequence[OpenedSource], live: LiveReading) -> None:
        self._merge = ChannelMerge(sources, self._assembler, live)
        self._items, self._begun = self._merge.items(), {source.name: source.stats.bytes for source in sources}

    def hurry(self, now: float) -> None:
        """After ``PATIENCE_SECONDS``, stop waiting for other processes if the run is still being written to."""
        if not self._hurries and now - self._merged_at >= PATIENCE_SECONDS:
            self._hurries = 0.0 <= now - (self.written() or 0.0) < GOES_ON_SECONDS

    def _holds_up(self) -> bool:
        return (self.unread or self._behind) if self._hurries else self._worked_on()

    def read(self, now: float, feed: Callable[[Item], None], listing: float = SECOND) -> TurnResult:
        """Feed a slice of each channel's new items; ``listing``: seconds between two listings of folders."""
        self.reads += 1
        if self._merge is None:
            self._start(self._due(now, listing), LiveReading(now, now))
        taken = 0
        for item in islice(self._items, SLICE):
            if item is None:
                return self._read(now, taken, ended=False)
            feed(item)
            taken += 1
        return self._read(now, taken, ended=taken < SLICE)

    def _due(self, now: float, listing: float) -> Sequence[OpenedSource]:
        """The channels to read in this turn: all that give rows, and folders if their listing is due."""
        slow = abs(now - self._slow_at) >= self._pause(now, listing)  # the clock may be set back
        going_on = [future for future in self._futures if not future.done()]
        if self._lists_soon and slow:
            self._changed_at = now
        if slow or len(going_on) < len(self._futures):  # finished work is taken in this turn
            slow, self._slow_at, self._lists_soon, self._futures = True, now, False, going_on
        return [one for one in self._opened.sources if one.kind is not None or slow or one.source.unread]

    def _read(self, now: float, taken: int, *, ended: bool) -> TurnResult:
        lanes, grown = self._merge.lanes if self._merge is not None else (), list[str]()
        self._gave.update(lane.source.name for lane in lanes if lane.given)
        if taken:
            self._gave_at = now
        if ended:
            self._merge = None
            self.read_at |= dict.fromkeys((lane.source.name for lane in lanes), now)
            rows = [lane.source for lane in lanes if lane.source.kind is not None and not lane.given]
            grown = [source.name for source in rows if source.stats.bytes != self._begun[source.name]]
        return TurnResult(taken, taken == SLICE or self.unread, grown, ended)

    def finish(self, feed: Callable[[Item], None]) -> None:
        """Feed the items that the channels held back, at the end of the input."""
        for source in self._opened.sources:
            for item in guarded(source, source.source.finish):
                feed(item)

    def written(self) -> float | None:
        """When any channel's file or folder was last written to, or its server last got data (Unix seconds)."""
        times = [self.found.written] if self.found.written else []
        for source in self._opened.sources:
            with suppress(OSError):
                times.append(source.path.stat().st_mtime)
        return max(times, default=None)

    def touched(self) -> Iterator[OpenedSource]:
        """Channels that read something since the last ``stored``."""
        for source in self._opened.sources:
            if source.name in self._gave or source.stats.bytes != self._read_bytes.get(source.name, 0):
                yield source

    def cursors(self) -> dict[str, Cursor]:
        """The cursor of each touched channel after the items fed so far."""
        ahead = self._merge.cursors() if self._merge is not None else {}
        return {source.name: ahead.get(source.name) or source.source.cursor() for source in self.touched()}

    def stored(self) -> None:
        """Note that everything read so far is being stored."""
        self._read_bytes = {source.name: source.stats.bytes for source in self._opened.sources}
        self._gave.clear()

    def close(self) -> None:
        """Free all file handles."""
        self._opened.close()

    def _worked_on(self) -> bool:
        """Whether another process works for this run, or a channel has more to read at once."""
        return not all(future.done() for future in self._futures) or self.unread or self._behind

    @property
    def _behind(self) -> bool:
        return any(one.source.behind for one in self._opened.sources)

    def _pause(self, now: float, least: float) -> float:
        """Seconds between two listings of the folders."""
        if any(one.source.settling for one in self._opened.sources):
            return SECOND
        if self._lists_soon:
            return least
        if self._rings:  # except for writes inside the folder of a new checkpoint
            return max(least, min(LONGEST_WATCHED_SECONDS, abs(now - self._changed_at) / CHANGED_SHARE))
        return max(least, min(LONGEST_POLL_SECONDS, abs(now - self._gave_at) / POLL_SHARE))

    def _cursors(self) -> Mapping[str, Cursor]:
        """The current cursor of each channel; the stored one if no channel is open yet."""
        stored = {} if self._opened.sources else self._stored()
        return stored or {source.name: source.source.cursor() for source in self._opened.sources}

    def _tracked(self, function: Callable[..., Any], *arguments: Any) -> Future:
        future = self._submit(function, *arguments)
        self._futures.append(future)
        return future
