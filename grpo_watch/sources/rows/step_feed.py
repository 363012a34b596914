"""What sources share whose rows arrive in pieces: assembly by step, items that are given once, and a cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, Scalar
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.rows.step_assembly import AssembledRow, ResumePoint, StepAssembly


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
        return RawRow(
            channel=self.channel,
            kind=self.kind,
            step=row.step,
            values=row.values,
            stream=row.stream,
            segment=self.segment,
            time=row.time,
            seen=seen,
        )
