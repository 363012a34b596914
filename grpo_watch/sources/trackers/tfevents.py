"""Turns a TensorBoard event file (protobuf ``SummaryEvent``) into raw rows, settings and the end of training."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from grpo_watch.engine.records import ChannelKind, EventKind, Item, RunConfig, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip
from grpo_watch.sources.settings import config_files
from grpo_watch.sources.settings.config_files import FROM_CHECKPOINT, logged_config
from grpo_watch.sources.settings.documents import json_object
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.tracker_source import FramedLog

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT = 1, 4

FLOAT, DOUBLE, STRING = 1, 2, 7
"""TensorFlow's data types of scalars (``tf.summary.scalar`` casts to float; torch may keep doubles) and texts."""
UNPACKS = {FLOAT: struct.Struct("<f"), DOUBLE: struct.Struct("<d")}
PACKED = {5: FLOAT, 6: DOUBLE}
"""Tensor fields with floats and doubles."""
STRINGS = 8


class SummaryEvent(NamedTuple):
    """The content of one event. ``step``: None if negative; ``time``: the writer's clock (Unix seconds)."""

    step: int | None
    time: float | None
    scalars: dict[str, float]
    texts: dict[str, str]


def decode_event(payload: bytes) -> SummaryEvent:
    """Decode an event's scalars (plain, or a tensor of one number as Keras and newer writers store them) and texts.

    Pictures, histograms and larger tensors are left out.

    Raises:
        ValueError: the payload is no such message.
    """
    step, time, scalars, texts = 0, None, dict[str, float](), dict[str, str]()
    for number, value in framing.fields(payload):
        if number == _STEP and isinstance(value, int):
            step = framing.signed(value)
        elif number == _WALL_TIME:
            time = framing.double(value)
        elif number == _SUMMARY and isinstance(value, bytes):
            for tag, found in _values(value):
                if isinstance(found, str):
                    texts[tag] = found
                else:
                    scalars[tag] = found
    return SummaryEvent(step if step >= 0 else None, time, scalars, texts)


def _values(summary: bytes) -> Iterator[tuple[str, float | str]]:
    for number, value in framing.fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        tag = ""
        found: float | str | None = None
        for field, content in framing.fields(value):
            if field == _TAG:
                tag = framing.text(content)
            elif field == _SIMPLE:
                found = framing.single(content)
            elif field == _TENSOR and isinstance(content, bytes):
                found = _tensor(content)
        if tag and found is not None:
            yield tag, found


def _tensor(tensor: bytes) -> float | str | None:
    """Return the one number or text in a tensor; None for other tensors."""
    dtype, numbers, strings = 0, list[float](), list[str]()
    for number, value in framing.fields(tensor):
        if number == _DTYPE and isinstance(value, int):
            dtype = value
        elif number == STRINGS:
            strings.append(framing.text(value))
        elif isinstance(value, bytes) and (number == _CONTENT or number in PACKED):
            unpack = UNPACKS.get(PACKED.get(number, dtype))
            numbers += unpack.unpack(value) if unpack is not None and len(value) == unpack.size else ()
    found: list[float] | list[str] = strings if dtype == STRING else numbers
    return found[0] if len(found) == 1 else None


ARGUMENTS = frozenset({"args/text_summary", "args"})
MODEL = frozenset({"model_config/text_summary", "model_config"})
"""Texts that transformers' callback logs first (4.51 to 5.23), as tagged by torch's and tensorboardX's writers."""
END = "train/train_runtime"
AT_END = frozenset({END, "train/train_samples_per_second", "train/train_steps_per_second"}) | {
    "train/train_loss",
    "train/total_flos",
    "train/train_tokens_per_second",
}
"""Scalars that transformers logs once, when training is over; ``epoch`` comes last."""
LAST = "train/epoch"
NOT_YET = -1


class TfeventsSource(FramedLog):
    """Reads one event file; each scalar is stored as a record, and those of one step make a row.

    The newest step is held back until a later one appears, transformers logs its end, or the input ends. Values are
    32-bit floats as they are in the file.
    """

    GIVES = "metric rows, settings"
    KIND, SUFFIXES = ChannelKind.TFEVENTS, ()
    frames, decode = staticmethod(framing.tf_frames), staticmethod(decode_event)

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:  # noqa: ARG003
        """Whether a file is named like an event file."""
        return ".tfevents." in path.name

    def _open(self) -> None:
        super()._open()
        ending = row_numbers.whole(self._known.get("ending"))
        self._ending = NOT_YET if ending is None else ending
        self._last = NOT_YET

    def _rest(self) -> Iterator[Item]:
        yield from super()._rest()
        if self._ending != NOT_YET and self._last == NOT_YET:
            self._end(self._ending, self._feed.read_to, None)
        yield from self._give()

    def _state(self) -> dict[str, Scalar]:
        """Return where the end of training began if it was not yet emitted."""
        ended = self._last != NOT_YET and self._feed.given_to(self._last)
        return {"ending": NOT_YET if ended else self._ending}

    def _start_over(self) -> None:
        self._ending = self._last = NOT_YET

    def _fault(self) -> str:
        at = self._feed.read_to
        if not framing.stuck(self._file.read, at):
            return ""
        return f"{self._path}: byte {at}: no readable record follows; the rest of the file can't be used"

    def read_record(self, start: int, following: int, record: SummaryEvent, seen: float | None) -> None:
        """Read one logged number, several at once, or a text."""
        for tag, text in record.texts.items():
            config = self._settings_in(tag, text, start)
            if config is not None:
                self._feed.say(start, config, following)
        if record.scalars and record.step is None:
            self.stats.skip(Skip.NO_STEP, f"byte {start}: a negative step")
        elif record.scalars:
            self._scalars(start, following, record, seen)

    def _scalars(self, start: int, following: int, event: SummaryEvent, seen: float | None) -> None:
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

    def _settings_in(self, tag: str, text: str, start: int) -> RunConfig | None:
        try:
            if tag in ARGUMENTS:
                return logged_config(json_object(text), "tensorboard: args", self.name, self.segment)
            if tag in MODEL:
                found = config_files.model_config(text, "tensorboard: model_config")
                return RunConfig(None, None, found.settings, self.name, self.segment, FROM_CHECKPOINT)
        except (ValueError, json.JSONDecodeError) as error:
            self.stats.skip(Skip.NOT_JSON, f"byte {start}: {tag}: {error}")
        return None
