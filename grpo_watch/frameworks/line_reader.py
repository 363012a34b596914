"""What frameworks print: the ``READER`` in a ``console.py`` takes metric lines, ``keys.yaml`` has marks of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from grpo_watch.engine.records import Stream
from grpo_watch.frameworks.framework import ConsoleMark, MarkKind
from grpo_watch.frameworks.framework_tables import contributions, frameworks


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


class LineReader:
    """Recognises the metric lines of one framework in a console whose envelopes (Ray, Docker …) were taken off.

    ``marks`` are byte strings of which a line that begins a row contains one; no other line is given to ``feed``
    while ``held`` is False. A mark may be anywhere in the line (a progress bar is glued before it) and may be model
    text: a reader answers with rows, or holds, only where the rest of the line leaves no doubt.

    A row that spans several lines is held (``held`` True: every line comes, other processes' and bars among them) until
    a line ends it; after 1,000 lines it is flushed. It must end by its own last line: while a row is held the source's
    cursor stays before its first line, and a reader that restarts there is a new one. So nothing may be remembered
    from one row to the next but one whole number, ``memory``, which is kept across a restart. ``feed`` never raises.
    """

    framework: str
    marks: Sequence[bytes]
    memory: int | None = None
    """None for a reader whose rows depend on no number above them in the log."""

    @property
    def held(self) -> bool:
        """Whether an unfinished row is held."""
        return False

    def feed(self, line: bytes) -> Sequence[MetricLine]:
        """The rows that this line completes."""
        raise NotImplementedError

    def flush(self) -> Sequence[MetricLine]:
        """The row that is held, if it can stand as it is; nothing is held afterwards."""
        return ()


def readers() -> Sequence[LineReader]:
    """A new reader of each ``<framework>/console.py`` (its ``READER`` class)."""
    return tuple(reader() for reader in contributions("console", "READER"))


@cache
def marks(*kinds: MarkKind) -> tuple[ConsoleMark, ...]:
    """Every framework's marks of these kinds (none given: of all)."""
    found = (mark for table in frameworks().values() for mark in table.marks)
    return tuple(mark for mark in found if not kinds or mark.kind in kinds)
