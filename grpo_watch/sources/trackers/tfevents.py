"""Turns a TensorBoard event file into raw rows, settings and the end of training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RunConfig, RunEvent
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.files.growing_file import FileFrame, GrowingFile
from grpo_watch.sources.files.throttle import TurnBudget
from grpo_watch.sources.rows.step_assembly import PROFILING, StepFeed
from grpo_watch.sources.settings import config_files
from grpo_watch.sources.settings.logged_config import logged_config
from grpo_watch.sources.settings.run_config import FROM_CHECKPOINT
from grpo_watch.sources.trackers import tf_event, tfrecord

ARGUMENTS = frozenset({"args/text_summary", "args"})
MODEL = frozenset({"model_config/text_summary", "model_config"})
"""Texts that transformers' callback logs first (4.51 to 5.23), as torch's and tensorboardX's writers tag them."""
END = "train/train_runtime"
AT_END = frozenset({END, "train/train_samples_per_second", "train/train_steps_per_second"}) | {
    "train/train_loss",
    "train/total_flos",
    "train/train_tokens_per_second",
}
"""What transformers logs once, when training is over; ``epoch`` comes last."""
LAST = "train/epoch"
NOT_YET = -1
APART = (*row_numbers.EVALUATION, PROFILING)
"""Beginnings of tags that are not joined with those of train rows."""
MOST_JOINED = 1_024
"""Numbers that are joined before they are passed on: fewer than a row may have."""


@dataclass(slots=True)
class _Piece:
    """Numbers of one step that were logged one after the other; ``order`` is the place of the first."""

    order: int
    step: int
    values: dict[str, float | None]
    time: float | None = None


class TfeventsSource(Source):
    """Reads one event file; each scalar is a record of its own, and those of one step make a row.

    The newest step is held back until a later one appears, transformers logs its end, or the input ends. Values are
    32-bit floats as they are in the file.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._file = GrowingFile(path, roots, cursor)
        self._feed = StepFeed(name, ChannelKind.TFEVENTS, segment, cursor)
        ending = row_numbers.whole(cursor.state.get("ending")) if cursor is not None else None
        self._ending = NOT_YET if ending is None else ending
        self._last = NOT_YET
        self._budget = TurnBudget()
        self._piece: _Piece | None = None

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the rows that were completed."""
        yield from self._read(seen, ended=False)

    def finish(self) -> Iterator[Item]:
        """Yield the newest step."""
        yield from self._read(None, ended=True)
        self._feed.flush(self._feed.read_to)
        if self._ending != NOT_YET and self._last == NOT_YET:
            self._end(self._ending, self._feed.read_to, None)
        yield from self._give()

    def cursor(self) -> Cursor:
        """The first record of the step held back, and where the end of training began if it was not passed on yet."""
        ended = self._last != NOT_YET and self._feed.given_to(self._last)
        position, state = self._feed.position({"ending": NOT_YET if ended else self._ending})
        return self._file.cursor(self.name, position, state)

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget."""
        return self._budget.spent

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere."""
        return self._file.held

    def close(self) -> None:
        """Free the file handle."""
        self._file.close()

    def _read(self, seen: float | None, *, ended: bool) -> Iterator[Item]:
        yield from self._give()
        if self._file.ready(self._feed.read_to):
            if self._file.restarted:
                self._feed.restart()
                self._ending = self._last = NOT_YET
            self._budget.begin(self._feed.read_to, live=seen is not None)
            for frame in tfrecord.frames(self._file.read, self._feed.read_to, ended=ended):
                self._take(frame, seen)
                self._feed.read_to = frame.end
                if self._feed.waits:
                    yield from self._give()
                if self._budget.ends(frame.end):
                    break
            self._add(seen)
            yield from self._give()
        self.stats.bytes, self.stats.problem = self._file.bytes, self._file.problem or self._stuck()

    def _give(self) -> Iterator[Item]:
        for item in self._feed.give():
            self.stats.records += 1
            yield item

    def _stuck(self) -> str:
        at = self._feed.read_to
        if not tfrecord.stuck(self._file.read, at):
            return ""
        return f"{self._file.path}: byte {at}: no readable record follows; the rest of the file can't be used"

    def _take(self, frame: FileFrame, seen: float | None) -> None:
        if frame.damage:
            self.stats.skip(Skip.UNREADABLE, f"byte {frame.start}: {frame.damage}")
            return
        try:
            event = tf_event.decode(frame.payload)
        except ValueError as error:
            self.stats.skip(Skip.BAD_VALUE, f"byte {frame.start}: no event: {error}")
            return
        if self._joins(event):
            if self._piece is None or self._piece.step != event.step or len(self._piece.values) == MOST_JOINED:
                self._add(seen)
                self._piece = _Piece(frame.start, event.step or 0, {})
            self._piece.values.update(event.scalars)
            self._piece.time = event.time
            return
        self._add(seen)
        for tag, text in event.texts.items():
            config = self._config(tag, text, frame)
            if config is not None:
                self._feed.say(frame.start, config, frame.end)
        if event.scalars and event.step is None:
            self.stats.skip(Skip.NO_STEP, f"byte {frame.start}: a negative step")
        elif event.scalars:
            self._scalars(event, frame, seen)

    def _joins(self, event: tf_event.SummaryEvent) -> bool:
        """Whether an event is one more number of a train row, and says nothing about the end of training."""
        if event.step is None or event.texts or len(event.scalars) != 1 or self._ending != NOT_YET:
            return False
        (tag,) = event.scalars
        return tag not in AT_END and not tag.startswith(APART) and event.time is not None

    def _add(self, seen: float | None) -> None:
        """Pass the numbers on that were joined."""
        piece, self._piece = self._piece, None
        if piece is not None:
            self._feed.add(piece.order, piece.step, piece.values, piece.time, seen)

    def _scalars(self, event: tf_event.SummaryEvent, frame: FileFrame, seen: float | None) -> None:
        if self._last != NOT_YET:
            self._ending = self._last = NOT_YET
        if END in event.scalars:
            self._ending = frame.start
        if NOT_YET < self._ending <= frame.start and LAST in event.scalars:
            self._feed.flush(frame.start, seen)
            self._end(frame.start, frame.end, seen)
            return
        values: dict[str, float | None] = {tag: event.scalars[tag] for tag in event.scalars if tag not in AT_END}
        self._feed.add(frame.start, event.step, values, event.time, seen)

    def _end(self, at: int, following: int, seen: float | None) -> None:
        self._last = at
        event = RunEvent(self.name, EventKind.FINISHED, self._feed.last, segment=self.segment, seen=seen)
        self._feed.say(at, event, following)

    def _config(self, tag: str, text: str, frame: FileFrame) -> RunConfig | None:
        try:
            if tag in ARGUMENTS:
                return logged_config(config_files.json_object(text), "tensorboard: args", self.name, self.segment)
            if tag in MODEL:
                found = config_files.model_config(text, "tensorboard: model_config")
                return RunConfig(None, None, found.settings, self.name, self.segment, FROM_CHECKPOINT)
        except (ValueError, json.JSONDecodeError) as error:
            self.stats.skip(Skip.NOT_JSON, f"byte {frame.start}: {tag}: {error}")
        return None
