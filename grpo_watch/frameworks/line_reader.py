"""What frameworks print: a ``console.py`` has the ``READER`` of metric lines and the ``MARKS`` of other lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Protocol, runtime_checkable

from grpo_watch.engine.records import Stream
from grpo_watch.frameworks.framework_tables import contributions


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One complete row as printed.

    ``step`` None: the line names none (it is counted, or a progress bar tells). ``resolution``: numbers below it print
    as zero (0.0005 for ``:.3f``; None: exact). ``lost``: pieces of the row that were broken and could not be read.
    """

    step: int | None
    values: Mapping[str, float | None]
    stream: Stream | None = None
    max_steps: int | None = None
    resolution: float | None = None
    lost: int = 0


class LineReader(Protocol):
    """Recognises the metric lines of one framework in a console whose envelopes (Ray, Docker …) were taken off.

    ``marks`` are byte strings of which a line that begins a row contains one; no other line is given to ``feed``
    while ``held`` is False. A mark may be anywhere in the line (a progress bar is glued before it) and may be model
    text: a reader answers with rows, or holds, only where the rest of the line leaves no doubt.

    A row that spans several lines is held (``held`` True: every line comes, other processes' and bars among them) until
    a line ends it; after 1,000 lines it is flushed. It must end by its own last line: while a row is held the source's
    cursor stays before its first line, and a reader that restarts there is a new one. So nothing may be remembered
    from one row to the next but the number of a ``RemembersNumber``. ``feed`` never raises; ``flush`` gives up or
    gives out what is held.
    """

    framework: str
    marks: Sequence[bytes]

    @property
    def held(self) -> bool:
        """Whether an unfinished row is held."""

    def feed(self, line: bytes) -> Sequence[MetricLine]:
        """The rows that this line completes."""

    def flush(self) -> Sequence[MetricLine]:
        """The row that is held, if it can stand as it is; nothing is held afterwards."""


@runtime_checkable
class RemembersNumber(LineReader, Protocol):
    """A reader whose rows depend on one whole number above them in the log; it is kept across a restart."""

    memory: int


def readers() -> Sequence[LineReader]:
    """A new reader of each ``<framework>/console.py`` (its ``READER`` class)."""
    return tuple(reader() for reader in contributions("console", "READER"))


class MarkKind(Enum):
    """What a mark means. A line with marks of several kinds has the meaning of the first of these."""

    FINISHED = "the job came to its end"
    RESUMED = "group 1 is the step that the job resumes from"
    TOTAL = "group 1 is the number of steps planned"
    EPOCH = "group 1 is the number of optimizer steps in an epoch"
    COMMAND = "the job's command line; its arguments follow"
    VERSION = "group 1 is the framework's version"
    PACKAGE = "group 1 is the version of the package with the framework's name"
    NAME = "the line is the framework's own"
    SIZES = "group 1 is the number of training examples, group 2 that of epochs"
    PROCESSES = "group 1 is the number of training processes"
    PROMPTS = "group 1 is the number of prompts of a step"
    DATASET = "a print of the training set begins; a line 'num_rows: N' follows"


@dataclass(frozen=True, slots=True)
class ConsoleMark:
    """One kind of line.

    ``sign``: a short expression that finds all such lines, for the one search that every line of a log goes through;
    empty where another mark's sign is in the same line.
    """

    framework: str
    kind: MarkKind
    pattern: re.Pattern[bytes]
    sign: bytes = b""


@cache
def marks(*kinds: MarkKind) -> tuple[ConsoleMark, ...]:
    """Every framework's marks of these kinds (none given: of all)."""
    return tuple(
        one for listed in contributions("console", "MARKS") for one in listed if not kinds or one.kind in kinds
    )
