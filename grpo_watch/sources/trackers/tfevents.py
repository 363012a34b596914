"""Turns a TensorBoard event file into raw rows, settings and the end of training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item, RunConfig, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip
from grpo_watch.sources.rows.step_assembly import PROFILING
from grpo_watch.sources.settings import config_files
from grpo_watch.sources.settings.config_files import FROM_CHECKPOINT, logged_config
from grpo_watch.sources.trackers import tf_event, tfrecord
from grpo_watch.sources.trackers.tracker_source import FramedLog

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


class TfeventsSource(FramedLog):
    """Reads one event file; each scalar is a record of its own, and those of one step make a row.

    The newest step is held back until a later one appears, transformers logs its end, or the input ends. Values are
    32-bit floats as they are in the file.
    """

    WHAT, KIND, SUFFIXES = "tensorboard events", ChannelKind.TFEVENTS, ()
    frames, decode = staticmethod(tfrecord.frames), staticmethod(tf_event.decode)

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:  # noqa: ARG003
        """Whether a file is called like one."""
        return ".tfevents." in path.name

    def _begin(self, cursor: Cursor | None) -> None:
        super()._begin(cursor)
        ending = row_numbers.whole(self._known.get("ending"))
        self._ending = NOT_YET if ending is None else ending
        self._last = NOT_YET
        self._piece: _Piece | None = None

    def finish(self) -> Iterator[Item]:
        """Yield the newest step."""
        yield from super().finish()
        if self._ending != NOT_YET and self._last == NOT_YET:
            self._end(self._ending, self._feed.read_to, None)
        yield from self._give()

    def _state(self) -> dict[str, Scalar]:
        """Where the end of training began if it was not passed on yet."""
        ended = self._last != NOT_YET and self._feed.given_to(self._last)
        return {"ending": NOT_YET if ended else self._ending}

    def _start_over(self) -> None:
        self._ending = self._last = NOT_YET

    def _turn_over(self, seen: float | None) -> None:
        self._add(seen)

    def _fault(self) -> str:
        at = self._feed.read_to
        if not tfrecord.stuck(self._file.read, at):
            return ""
        return f"{self._path}: byte {at}: no readable record follows; the rest of the file can't be used"

    def take(self, start: int, following: int, record: tf_event.SummaryEvent, seen: float | None) -> None:
        """One logged number, or several at once, or a text."""
        if self._joins(record):
            if self._piece is None or self._piece.step != record.step or len(self._piece.values) == MOST_JOINED:
                self._add(seen)
                self._piece = _Piece(start, record.step or 0, {})
            self._piece.values.update(record.scalars)
            self._piece.time = record.time
            return
        self._add(seen)
        for tag, text in record.texts.items():
            config = self._config(tag, text, start)
            if config is not None:
                self._feed.say(start, config, following)
        if record.scalars and record.step is None:
            self.stats.skip(Skip.NO_STEP, f"byte {start}: a negative step")
        elif record.scalars:
            self._scalars(start, following, record, seen)

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

    def _scalars(self, start: int, following: int, event: tf_event.SummaryEvent, seen: float | None) -> None:
        if self._last != NOT_YET:
            self._ending = self._last = NOT_YET
        if END in event.scalars:
            self._ending = start
        if NOT_YET < self._ending <= start and LAST in event.scalars:
            self._feed.flush(start, seen)
            self._end(start, following, seen)
            return
        values: dict[str, float | None] = {tag: event.scalars[tag] for tag in event.scalars if tag not in AT_END}
        self._feed.add(start, event.step, values, event.time, seen)

    def _end(self, at: int, following: int, seen: float | None) -> None:
        self._last = at
        self._feed.say(at, self._event(EventKind.FINISHED, step=self._feed.last, seen=seen), following)

    def _config(self, tag: str, text: str, start: int) -> RunConfig | None:
        try:
            if tag in ARGUMENTS:
                return logged_config(config_files.json_object(text), "tensorboard: args", self.name, self.segment)
            if tag in MODEL:
                found = config_files.model_config(text, "tensorboard: model_config")
                return RunConfig(None, None, found.settings, self.name, self.segment, FROM_CHECKPOINT)
        except (ValueError, json.JSONDecodeError) as error:
            self.stats.skip(Skip.NOT_JSON, f"byte {start}: {tag}: {error}")
        return None
