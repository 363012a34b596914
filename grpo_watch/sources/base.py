"""The contract of a source, and the counters every source keeps."""

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
    """The part of ``concurrent.futures.Future`` that is used."""

    def done(self) -> bool:
        """Whether a result is there."""

    def result(self) -> Any:
        """The result; waits for it, and raises what the work raised."""


Submit: TypeAlias = Callable[..., Future]
"""``submit(function, *arguments)`` with a top-level function and arguments that can be sent to another process."""


class KeptTexts(IntEnum):
    """What a summary keeps of texts: nothing, an excerpt per odd group, or also how those of the first groups begin."""

    NOTHING = 0
    EXCERPT = 1
    BEGINNINGS = 2


class Skip(str, Enum):
    """Why a piece of input was passed over (the closed set of ``reason`` labels)."""

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
    """What a reader remembers across a restart, as the text of a cursor's state (NaN and infinities included)."""
    return json.dumps(to_builtins(state))


def recalled(kind: type[Remembered], text: Scalar) -> Remembered:
    """The state in such a text; a new one where there is none, or one of another version."""
    try:
        return convert(json.loads(str(text)), kind, str_keys=True) if text else kind()
    except (ValueError, ValidationError):
        return kind()


EACH_END = 150
"""Characters kept at either end of a long detail: paths are long, and what is wrong comes last."""


class SourceStats(Struct):
    """What a source did so far. ``first_bad`` is ``line N: reason: …`` for the first piece that was skipped."""

    records: int = 0
    bytes: int = 0
    skipped: dict[Skip, int] = field(default_factory=dict)
    first_bad: str = ""
    problem: str = ""

    def skip(self, reason: Skip, detail: str = "", count: int = 1) -> None:
        """Count skipped pieces; the first keeps its detail (one line; of a long one both ends) for people to see.

        A duplicate is no trouble (frameworks dump tables again) and keeps none.
        """
        self.skipped[reason] = self.skipped.get(reason, 0) + count
        if not self.first_bad and reason is not Skip.DUPLICATE:
            text = f"{reason.value}: {detail}"
            self.first_bad = text if len(text) <= 2 * EACH_END else f"{text[:EACH_END]} … {text[-EACH_END:]}"


class Source(Protocol):
    """Reads one channel of one run; a class that reads states it as its base, and so has the defaults below.

    ``poll`` yields what is newly readable and returns; it never blocks and never raises on bad input (it counts in
    ``stats``; a channel that can't be opened sets ``stats.problem``). ``seen`` is the driver's clock, copied into the
    items; None offline. ``finish`` yields what was held back, once the input has ended. ``cursor`` may be taken
    between two yielded items and then covers exactly the items yielded so far; a source built with it continues there
    without loss or repetition.
    """

    name: str
    stats: SourceStats
    step_column: str = ""
    """The key that holds the step, where the user named one."""

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield everything new."""

    def finish(self) -> Iterator[Item]:
        """Yield what was held back; the input has ended."""
        return iter(())

    def cursor(self) -> Cursor:
        """Where reading would continue."""

    def close(self) -> None:
        """Free file handles; most keep none open between two polls."""
        return

    @property
    def behind(self) -> bool:
        """Whether what a server holds of the run is still being fetched for the first time."""
        return False

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget: there is more to read at once."""
        return False

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere; 0 otherwise."""
        return 0

    @property
    def settling(self) -> bool:
        """Whether something is there that is read once it has stayed the same for a while."""
        return False


class ChannelSource(Source):
    """A source of a file or folder of a run; ``_begin`` makes what it holds between two polls.

    Args:
        name: the channel's name.
        path: the file or folder.
        roots: folders that links may not lead out of.
        group_size: G as configured, asked at each table; None: derived from the prompts.
        segment: order among the channels of this kind.
        cursor: where an earlier reader stopped.
        examples: what summaries carry of the texts.
        submit: runs heavy reading elsewhere; None reads in place.
        own: what only this source is made with (see its ``_begin``).
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
        """Make what the source holds; everything that all sources are made with is set."""

    @abstractmethod
    def _new(self, seen: float | None) -> Iterator[Item]:
        """What is newly readable (see ``poll``)."""

    def _rest(self) -> Iterator[Item]:
        """What was held back (see ``finish``)."""
        return iter(())

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield everything new, and count it."""
        return self._each(self._new(seen))

    def finish(self) -> Iterator[Item]:
        """Yield what was held back, and count it; the input has ended."""
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
"""Makes the source of a channel that is no file, as of any other."""
