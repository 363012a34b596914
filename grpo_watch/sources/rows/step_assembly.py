"""Joins pieces of rows, as TensorBoard, wandb and trackio log them, into one complete row per optimizer step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct, field

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, Scalar, Stream
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import own_step_keys

PROFILING = "profiling/"
"""TRL logs each measured duration in a separate call (0.16 and later; wandb and trackio only)."""
BOTH = frozenset({"epoch", "train/epoch", "num_input_tokens_seen", "train/num_input_tokens_seen"})
"""Keys that transformers adds to evaluation rows as well, under the prefix of training."""
STEP_KEYS = (
    "train/global_step",  # transformers
    *own_step_keys(),
    "trainer/global_step",  # Lightning
    "global_step",
    "step",
)
"""Keys of a logged row that hold the optimizer step, best first: wandb's and trackio's own counters count calls."""
MOST_KEYS = 4_096
"""Keys of one row; a file with more is broken, and further keys are dropped."""


class ResumePoint(NamedTuple):
    """Where reading continues: at the piece of this order; ``given``: rows of its step that were already given."""

    order: int
    given: int = 0


class _Step(Struct):
    """The pieces of one step so far, by stream; ``first`` is the order of its first piece."""

    step: int
    first: int
    parts: dict[Stream | None, tuple[dict[str, float | None], float | None]] = field(default_factory=dict)

    def add(self, values: Mapping[str, float | None], stream: Stream | None, time: float | None) -> None:
        """Add a piece, newer values win."""
        held, known = self.parts.get(stream, ({}, None))
        if len(held) + len(values) > MOST_KEYS:
            room = MOST_KEYS - len(held)
            new = [key for key in values if key not in held][:room]
            values = {key: values[key] for key in values if key in held or key in new}
        held.update(values)
        self.parts[stream] = (held, known if time is None else time)

    def rows(self) -> list[tuple[Stream | None, dict[str, float | None], float | None]]:
        """Return the rows of this step, the training row first."""
        train, evaluation = self.parts.get(None), self.parts.get(Stream.EVAL)
        if train is None or evaluation is None:
            return [(stream, *part) for stream, part in self.parts.items()]
        shared = {key: value for key, value in train[0].items() if key in BOTH}
        evaluated = (Stream.EVAL, {**evaluation[0], **shared}, evaluation[1])
        return [evaluated] if len(shared) == len(train[0]) else [(None, *train), evaluated]


@lru_cache(maxsize=256)
def _kind(keys: tuple[str, ...]) -> tuple[frozenset[str], Stream | None]:
    """Return the keys to drop, and the stream of the others; cached, as most rows have the same keys."""
    left_out = frozenset(key for key in keys if key.startswith(PROFILING))
    return left_out, row_numbers.stream(key for key in keys if key not in left_out)


def step_of(row: Mapping[str, object]) -> int | None:
    """Return the optimizer step in a logged row: the first of ``STEP_KEYS`` with a whole number."""
    return next((found for key in STEP_KEYS if (found := row_numbers.whole(row.get(key))) is not None), None)


class StepFeed:
    """Turns a channel's records into items, in order: the pieces of a step as one row, and settings and events.

    The newest step is held back until a later one appears (or ``flush``). ``order`` rises (a byte offset, wandb's
    ``_step``, a row id). A step that goes back and continues from there is a resumed job; a single piece of an older
    step came late and is dropped (``late`` counts those). Values under ``profiling/`` are dropped.

    A cursor between any two items covers those given. A reader continues at the first piece of the step that it held
    back, and so reads some records twice: ``_skip`` rows of that step, and the settings and events of records up to
    ``_given_to``, are not given again.

    Args:
        channel: the source's name.
        kind: its kind.
        segment: order among the files of this kind.
        cursor: where an earlier reader stopped.
    """

    def __init__(self, channel: str, kind: ChannelKind, segment: int, cursor: Cursor | None) -> None:
        self.channel, self.kind, self.segment = channel, kind, segment
        state: Mapping[str, Scalar] = cursor.state if cursor is not None else {}
        self.last: int | None
        self._last_given: int | None
        self.restart(cursor.position if cursor is not None else 0, row_numbers.whole(state.get("given")) or 0)
        given_to = row_numbers.whole(state.get("told"))
        self._given_to = -1 if given_to is None else given_to
        self.last = self._last_given = row_numbers.whole(state.get("last"))

    def restart(self, position: int = 0, given: int = 0) -> None:
        """Forget everything and start over at ``position``: the file is another one."""
        self.read_to, self._given_to, self.late = position, -1, 0
        self.last = self._last_given = None
        self._open: list[_Step] = []  # the held step, then an older one that may be late or a new beginning
        self._skip = given
        self._ready: deque[tuple[Item | None, ResumePoint, int]] = deque()
        self._after = ResumePoint(position, given)

    @property
    def waits(self) -> bool:
        """Whether items are ready."""
        return bool(self._ready)

    def add(
        self,
        order: int,
        step: int | None,
        values: Mapping[str, float | None],
        time: float | None = None,
        seen: float | None = None,
    ) -> None:
        """Add a piece of a row.

        Args:
            order: its place in the channel.
            step: its optimizer step; None: it belongs to the newest step (and is dropped when there is none).
            values: raw keys and numbers.
            time: when it was logged (Unix seconds).
            seen: the driver's clock.
        """
        self.last = step if step is not None else self.last
        left_out, stream = _kind(tuple(values))
        kept = {key: value for key, value in values.items() if key not in left_out} if left_out else values
        if not kept or (step is None and not self._open):
            return
        newest = self._open[-1] if self._open else None
        if newest is not None and step in {None, newest.step}:
            newest.add(kept, stream, time)
            return
        current = step or 0
        done = self._complete(current)
        target = next((one for one in self._open if one.step == current), None)
        if target is None:
            target = _Step(current, order)
            self._open.append(target)
        target.add(kept, stream, time)
        self._make_rows(done, order, seen)

    def flush(self, order: int, seen: float | None = None) -> None:
        """Complete the newest step: none of its pieces follows before ``order``."""
        done, self._open = self._open, []
        self._make_rows(done, order, seen)

    def given_to(self, order: int) -> bool:
        """Whether the item of the record at ``order`` was given before a restart."""
        return order <= self._given_to

    def say(self, order: int, item: Item | None, following: int) -> None:
        """Add the item of the record at ``order`` (None: it was only noted); the next record is at ``following``."""
        if not self.given_to(order):
            self._ready.append((item, self._place(following), order))

    def give(self) -> Iterator[Item]:
        """Yield the ready items, in order."""
        while self._ready:
            item, self._after, given_to = self._ready.popleft()
            self._given_to = max(self._given_to, given_to)
            if isinstance(item, RawRow):
                self._last_given = item.step
            if item is not None:
                yield item

    def position(self, state: Mapping[str, Scalar]) -> tuple[int, dict[str, Scalar]]:
        """Return position and state of a cursor that covers exactly the given items."""
        place = self._after if self._ready else self._place(self.read_to)
        return place.order, {"given": place.given, "told": self._given_to, "last": self._last_given, **state}

    def _place(self, order: int) -> ResumePoint:
        """Return where reading continues once all ready items were given and ``order`` would be read next."""
        return ResumePoint(self._open[0].first, self._skip) if self._open else ResumePoint(order)

    def _complete(self, step: int) -> list[_Step]:
        """Take out the steps that a piece of ``step`` completes."""
        if not self._open:
            return []
        held = self._open[0]
        behind = self._open[1] if len(self._open) > 1 else None
        if behind is not None and (step >= held.step or step < behind.step):
            self.late += 1
            self._open.remove(behind)
            behind = None
        if behind is None and step <= held.step:
            return []
        done, self._open = self._open, []
        return done

    def _make_rows(self, done: list[_Step], order: int, seen: float | None) -> None:
        """Queue the rows of complete steps, except those given before a restart."""
        for one, following in zip(done, [*done[1:], *self._open[:1], None], strict=False):
            after = following.first if following is not None else order
            parts = one.rows()
            for index, (stream, values, time) in enumerate(parts[self._skip :], self._skip + 1):
                place = ResumePoint(one.first, index) if index < len(parts) else ResumePoint(after)
                row = RawRow(self.channel, self.kind, one.step, values, stream, self.segment)
                self._ready.append((row._replace(time=time, seen=seen), place, -1))
            self._skip = 0
