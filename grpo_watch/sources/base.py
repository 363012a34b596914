"""The contract of sources, and the counters that each of them keeps."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct, ValidationError, convert, field, to_builtins

from grpo_watch.engine.records import Cursor, Item, Scalar
from grpo_watch.sources.files.reading import TurnBudget


class Future(Protocol):
    """The part of ``concurrent.futures.Future`` in use here."""

    def done(self) -> bool:
        """Whether a result is there."""

    def result(self) -> Any:
        """Return the result; waits for it, and raises the work's exception."""


Submit: TypeAlias = Callable[..., Future]
"""``submit(function, *arguments)`` with a top-level function and arguments that can be pickled for another process."""


class KeptTexts(IntEnum):
    """How much of its texts a summary keeps: nothing, excerpts of odd groups, or also beginnings in some groups."""

    NOTHING = 0
    EXCERPT = 1
    BEGINNINGS = 2


class Skip(str, Enum):
    """Why a piece of input was skipped (the closed set of ``reason`` labels)."""

    NOT_JSON = "not-json"
    NOT_A_ROW = "not-a-row"
    NO_STEP = "no-step"
    TOO_LONG = "too-long"
    BAD_VALUE = "bad-value"
    UNREADABLE = "unreadable"
    OUTSIDE = "outside-run-folder"
    TRUNCATED = "truncated"
    LOST = "lost"
    DUPLICATE = "duplicate"
    NOT_READ = "not-read-yet"


Remembered = TypeVar("Remembered", bound=Struct)


def remembered(state: Struct) -> str:
    """Serialise a reader's state for a cursor (NaN and infinities included)."""
    return json.dumps(to_builtins(state))


def recalled(kind: type[Remembered], text: Scalar) -> Remembered:
    """Restore a serialised state; a new one if it is missing or of another version."""
    try:
        return convert(json.loads(str(text)), kind, str_keys=True) if text else kind()
    except (ValueError, ValidationError):
        return kind()


EACH_END = 150
"""Characters kept at either end of a long detail: paths are long, and the reason comes last."""


class SourceStats(Struct):
    """Counters of a source. ``first_bad`` is ``line N: reason: …`` of the first skipped piece."""

    records: int = 0
    bytes: int = 0
    skipped: dict[Skip, int] = field(default_factory=dict)
    first_bad: str = ""
    problem: str = ""

    def skip(self, reason: Skip, detail: str = "", count: int = 1) -> None:
        """Count skipped pieces; the first one's detail is kept for people (one line; of a long one both ends).

        Duplicates are harmless (frameworks dump tables again), so their details are dropped.
        """
        self.skipped[reason] = self.skipped.get(reason, 0) + count
        if not self.first_bad and reason is not Skip.DUPLICATE:
            text = f"{reason.value}: {detail}"
            self.first_bad = text if len(text) <= 2 * EACH_END else f"{text[:EACH_END]} … {text[-EACH_END:]}"


class Source(Protocol):
    """Reads one channel of one run; every reader derives from it and inherits the defaults below.

    ``poll`` yields the new items and returns; it never blocks and never raises on bad input (it counts in ``stats``; a
    channel that can't be opened sets ``stats.problem``). ``seen`` is the driver's clock, copied into the items; None
    offline. ``finish`` yields the held-back items once the input has ended. ``cursor`` may be taken between two yielded
    items and then covers exactly the items yielded so far; a source built with it continues there without loss or
    repetition.
    """

    name: str
    stats: SourceStats
    step_column: str = ""
    """The key that holds the step, if the user named one."""

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield all new items."""

    def finish(self) -> Iterator[Item]:
        """Yield the held-back items; the input has ended."""
        return iter(())

    def cursor(self) -> Cursor:
        """Where reading continues."""

    def close(self) -> None:
        """Close files; most sources keep none open between two polls."""
        return

    @property
    def behind(self) -> bool:
        """Whether a run on a server is still being fetched for the first time."""
        return False

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget: there is more to read at once."""
        return False

    @property
    def held(self) -> int:
        """The inode of the open file while it has a name; 0 otherwise."""
        return 0

    @property
    def settling(self) -> bool:
        """Whether an input waits to be read until it has stayed unchanged for a while."""
        return False


class ChannelSource(Source):
    """A source of a file or folder of a run; ``_begin`` sets up its own state.

    Args:
        name: the channel's name.
        path: the file or folder.
        roots: folders that links may not lead out of.
        group_size: G as configured, asked at each table; None: derived from the prompts.
        segment: order among the channels of this kind.
        cursor: where an earlier reader stopped.
        examples: how much of the texts summaries carry.
        submit: runs heavy reading elsewhere; None reads in place.
        own: further arguments of this source alone (see its ``_begin``).
    """

    def __init__(  # noqa: PLR0913  the arguments that all of them share
        self,
        name: str,
        path: Path,
        roots: Sequence[Path],
        group_size: Callable[[], int | None] = lambda: None,
        segment: int = 0,
        cursor: Cursor | None = None,
        *,
        examples: KeptTexts = KeptTexts.EXCERPT,
        submit: Submit | None = None,
        **own: Any,
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._path, self._roots, self._group_size = path, tuple(roots), group_size
        self._start, self._examples, self._submit = cursor, examples, submit
        self._known: Mapping[str, Scalar] = cursor.state if cursor is not None else {}
        self._budget = TurnBudget()
        self._begin(**own)

    @abstractmethod
    def _begin(self, *_: Any, **own: Any) -> None:
        """Set up the source's own state, after the arguments common to all sources are stored."""

    @abstractmethod
    def _new(self, seen: float | None) -> Iterator[Item]:
        """Yield the new items (see ``poll``)."""

    def _rest(self) -> Iterator[Item]:
        """Yield the held-back items (see ``finish``)."""
        return iter(())

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield all new items, and count them."""
        return self._each(self._new(seen))

    def finish(self) -> Iterator[Item]:
        """Yield the held-back items, and count them; the input has ended."""
        return self._each(self._rest())

    def _each(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            self.stats.records += 1
            yield item

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget: there is more to read at once."""
        return self._budget.spent


Opens: TypeAlias = Callable[..., ChannelSource]
"""Makes the source of a channel that is no file, with the arguments of ``ChannelSource``."""
