"""Turns pieces of rows, as TensorBoard, wandb and trackio log them, into one complete row per optimizer step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, Scalar, Stream
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import own_step_keys

PROFILING = "profiling/"
"""TRL logs each measured duration in a call of its own (0.16 and later; wandb and trackio only)."""
BOTH = frozenset({"epoch", "train/epoch", "num_input_tokens_seen", "train/num_input_tokens_seen"})
"""What transformers adds to the rows of an evaluation as well, under the prefix of training."""
STEP_KEYS = (
    "train/global_step",  # transformers
    *own_step_keys(),
    "trainer/global_step",  # Lightning
    "global_step",
    "step",
)
"""Keys of a logged row that hold the optimizer step, best first: wandb's and trackio's own counters count calls."""
MOST_KEYS = 4_096
"""Keys of one row; a file that has more of them is broken, and what comes after is dropped."""


class ResumePoint(NamedTuple):
    """Where reading continues: at the piece of this order; ``given`` rows of its step were given out already."""

    order: int
    given: int = 0


class AssembledRow(NamedTuple):
    """A complete row. ``time`` is that of its newest piece (Unix seconds), ``after`` where to continue."""

    step: int
    stream: Stream | None
    values: dict[str, float | None]
    time: float | None
    after: ResumePoint


@dataclass(slots=True)
class _Step:
    """The pieces of one step so far, by stream; ``first`` is the order of its first piece."""

    step: int
    first: int
    parts: dict[Stream | None, tuple[dict[str, float | None], float | None]] = field(default_factory=dict)

    def add(self, values: Mapping[str, float | None], stream: Stream | None, time: float | None) -> int:
        """Add a piece, newer values win; the number of values that had no room."""
        held, known = self.parts.get(stream, ({}, None))
        before = len(values)
        if len(held) + before > MOST_KEYS:
            room = MOST_KEYS - len(held)
            new = [key for key in values if key not in held][:room]
            values = {key: values[key] for key in values if key in held or key in new}
        held.update(values)
        self.parts[stream] = (held, known if time is None else time)
        return before - len(values)

    def rows(self) -> list[tuple[Stream | None, dict[str, float | None], float | None]]:
        """The rows of this step, the one of training first."""
        train, evaluation = self.parts.get(None), self.parts.get(Stream.EVAL)
        if train is None or evaluation is None:
            return [(stream, *part) for stream, part in self.parts.items()]
        shared = {key: value for key, value in train[0].items() if key in BOTH}
        evaluated = (Stream.EVAL, {**evaluation[0], **shared}, evaluation[1])
        return [evaluated] if len(shared) == len(train[0]) else [(None, *train), evaluated]


class StepAssembly:
    """Joins pieces by step and holds the newest step back until a later one appears (or ``flush``).

    Pieces come in the order of the channel: ``order`` rises (a byte offset, wandb's ``_step``, a row id). A step that
    goes back and continues from there is a resumed job; a single piece of an older step came late and is dropped
    (``late`` counts those, ``crowded`` the values that a row had no room for). Values under ``profiling/`` are
    dropped.

    A reader that stops is continued by a new assembly made with the ``place`` of the old one and fed with the pieces
    from ``place.order`` on: together they give each row once.

    Args:
        place: where an earlier reader stopped.
    """

    def __init__(self, place: ResumePoint | None = None) -> None:
        self._open: list[_Step] = []  # the held step, and behind it an older one that may be late or a new beginning
        self._skip = place.given if place is not None else 0
        self.late = self.crowded = 0

    def add(
        self, order: int, step: int | None, values: Mapping[str, float | None], time: float | None = None
    ) -> list[AssembledRow]:
        """Add a piece; the rows that it completes, in order.

        Args:
            order: place of the piece in its channel.
            step: its optimizer step; None: it belongs to the newest step (and is dropped when there is none).
            values: raw keys and numbers.
            time: when it was logged (Unix seconds).
        """
        left_out, stream = _kind(tuple(values))
        kept = {key: value for key, value in values.items() if key not in left_out} if left_out else values
        if not kept or (step is None and not self._open):
            return []
        newest = self._open[-1] if self._open else None
        if newest is not None and step in {None, newest.step}:
            self.crowded += newest.add(kept, stream, time)
            return []
        current = step or 0
        done = self._complete(current)
        target = next((one for one in self._open if one.step == current), None)
        if target is None:
            target = _Step(current, order)
            self._open.append(target)
        self.crowded += target.add(kept, stream, time)
        return self._give(done, order)

    def flush(self, order: int) -> list[AssembledRow]:
        """The rows that are held back: nothing more comes before ``order``."""
        done, self._open = self._open, []
        return self._give(done, order)

    def place(self, order: int) -> ResumePoint:
        """Where reading continues when all rows that were made were given out and ``order`` would be read next."""
        return ResumePoint(self._open[0].first, self._skip) if self._open else ResumePoint(order)

    def _complete(self, step: int) -> list[_Step]:
        """Take out the steps that a piece of ``step`` shows to be complete."""
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

    def _give(self, done: list[_Step], order: int) -> list[AssembledRow]:
        """The rows of complete steps, without those that were given out before a restart."""
        made: list[AssembledRow] = []
        for one, following in zip(done, [*done[1:], *self._open[:1], None], strict=False):
            after = following.first if following is not None else order
            parts = one.rows()
            for index, (stream, values, time) in enumerate(parts[self._skip :], self._skip + 1):
                place = ResumePoint(one.first, index) if index < len(parts) else ResumePoint(after)
                made.append(AssembledRow(one.step, stream, values, time, place))
            self._skip = 0
        return made


@lru_cache(maxsize=256)
def _kind(keys: tuple[str, ...]) -> tuple[frozenset[str], Stream | None]:
    """Which of a row's keys are left out, and the stream that the others belong to; most rows have the same keys."""
    left_out = frozenset(key for key in keys if key.startswith(PROFILING))
    return left_out, row_numbers.stream(key for key in keys if key not in left_out)


def step_of(row: Mapping[str, object]) -> int | None:
    """The optimizer step that a logged row names itself, by the first of ``STEP_KEYS`` that holds a whole number."""
    return next((found for key in STEP_KEYS if (found := row_numbers.whole(row.get(key))) is not None), None)


class StepFeed:
    """Takes a channel's records in order and gives items; a cursor between any two covers those given.

    A reader continues at the first piece of the step that it held back, and so reads some records twice. ``_given_to``
    is the last record whose configuration or event was given: those up to it are not given again.

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
        """Forget everything and begin at ``position``: the file is another one."""
        self.read_to, self._given_to = position, -1
        self.last = self._last_given = None
        self._assembly = StepAssembly(ResumePoint(position, given))
        self._ready: deque[tuple[Item | None, ResumePoint, int]] = deque()
        self._after = ResumePoint(position, given)

    @property
    def late(self) -> int:
        """Pieces that came after their step was complete."""
        return self._assembly.late

    @property
    def waits(self) -> bool:
        """Whether anything is ready to be given."""
        return bool(self._ready)

    def add(
        self,
        order: int,
        step: int | None,
        values: Mapping[str, float | None],
        time: float | None = None,
        seen: float | None = None,
    ) -> None:
        """A piece of a row at ``order``."""
        self.last = step if step is not None else self.last
        self._rows(self._assembly.add(order, step, values, time), seen)

    def given_to(self, order: int) -> bool:
        """Whether what the record at ``order`` gives was given before a restart."""
        return order <= self._given_to

    def say(self, order: int, item: Item | None, following: int) -> None:
        """What the record at ``order`` gave once and for all (None: it was noted); the next is at ``following``."""
        if not self.given_to(order):
            self._ready.append((item, self._assembly.place(following), order))

    def flush(self, order: int, seen: float | None = None) -> None:
        """Nothing more of the newest step comes before ``order``."""
        self._rows(self._assembly.flush(order), seen)

    def give(self) -> Iterator[Item]:
        """What is ready, in order."""
        while self._ready:
            item, self._after, given_to = self._ready.popleft()
            self._given_to = max(self._given_to, given_to)
            if isinstance(item, RawRow):
                self._last_given = item.step
            if item is not None:
                yield item

    def position(self, state: Mapping[str, Scalar]) -> tuple[int, dict[str, Scalar]]:
        """Position and state of a cursor that covers exactly what was given."""
        place = self._after if self._ready else self._assembly.place(self.read_to)
        return place.order, {"given": place.given, "told": self._given_to, "last": self._last_given, **state}

    def _rows(self, made: list[AssembledRow], seen: float | None) -> None:
        for row in made:
            self._ready.append((self._raw(row, seen), row.after, -1))

    def _raw(self, row: AssembledRow, seen: float | None) -> RawRow:
        raw = RawRow(self.channel, self.kind, row.step, row.values, row.stream, self.segment)
        return raw._replace(time=row.time, seen=seen)
