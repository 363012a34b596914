"""How the two drivers read the sources of a run that are merged: to their end, or as far as they have grown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from grpo_watch.engine.records import Cursor, Item
from grpo_watch.pipeline.open_run import OpenedSource

QUIET_POLLS = 2
"""A source has nothing more when so many polls in a row gave nothing (a checkpoint is looked at twice)."""

MOST_POLLS = 20
"""A log that grows faster than it is read is left to the turns that follow."""

ENDED_SECONDS = 600.0
"""While other channels continue, one with a file unchanged for this long no longer gives the run's rows: TensorBoard's
writer flushes every two minutes, and a step of GRPO may take several."""


class SourceReading(Protocol):
    """How a driver reads the sources that are merged."""

    def items(self, source: OpenedSource) -> Iterator[Item | None]:
        """What a source holds, in its order; None: another process still works on the next item, ask again later."""

    def cursor(self, source: OpenedSource) -> Cursor | None:
        """Where reading the source would continue; None where reading is never resumed."""

    def ended(self, source: OpenedSource) -> bool:
        """Whether no more rows of the source are expected."""


class ReadToEnd:
    """Reads complete files: ``check``."""

    def items(self, source: OpenedSource) -> Iterator[Item | None]:
        """Everything, with what the source holds back until the input ends."""
        yield from source.source.poll(None)
        yield from source.source.finish()

    def cursor(self, source: OpenedSource) -> Cursor | None:  # noqa: ARG002  the contract of a reading
        """Reading is never resumed."""
        return None

    def ended(self, source: OpenedSource) -> bool:  # noqa: ARG002  the contract of a reading
        """All files are complete."""
        return True


class ReadSoFar:
    """Reads files that may still grow, as far as they have grown: the daemon's first pass.

    Args:
        seen: when the files were written by (Unix seconds), for the items.
        now: Unix seconds.
        waiting: whether another process works on items of the source of this name.
    """

    def __init__(self, seen: float, now: float, waiting: Callable[[str], bool]) -> None:
        self._seen, self._now, self._waiting = seen, now, waiting

    def items(self, source: OpenedSource) -> Iterator[Item | None]:
        """What is there now; configuration is never waited for."""
        quiet = polls = 0
        while (waits := not source.early and self._waiting(source.name)) or (
            quiet < QUIET_POLLS and polls < MOST_POLLS
        ):
            polls += not waits
            quiet += 1
            for item in source.source.poll(self._seen):
                quiet = 0
                yield item
            if quiet and not source.early and self._waiting(source.name):
                quiet = 0
                yield None

    def cursor(self, source: OpenedSource) -> Cursor | None:
        """Where a restarted daemon would continue."""
        return source.source.cursor()

    def ended(self, source: OpenedSource) -> bool:
        """Whether its file was not written for a while; False of a server's run."""
        try:
            return self._now - source.path.stat().st_mtime >= ENDED_SECONDS
        except OSError:
            return False
