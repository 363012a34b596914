"""What the sources of wandb's and SwanLab's files share: a growing log in blocks, read record by record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_watch.engine.records import ChannelKind, Cursor, Item, Scalar
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.growing_file import GrowingFile
from grpo_watch.sources.files.throttle import TurnBudget
from grpo_watch.sources.trackers import block_log
from grpo_watch.sources.trackers.tracker_source import TrackerFile


class BlockLogSource(TrackerFile):
    """Reads a log in blocks, payload by payload; see ``TrackerFile``."""

    KIND = ChannelKind.WANDB
    HEADERS: tuple[bytes, ...]
    """How its files begin."""

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:  # noqa: ARG003
        """Whether a file is called like such a log; it may still be empty."""
        return path.name.endswith(cls.SUFFIXES)

    @staticmethod
    @abstractmethod
    def time_of(record: bytes) -> float | None:
        """When a row was logged (Unix seconds); None where the record is none.

        Raises:
            ValueError: it can't be decoded.
        """

    def _begin(self, cursor: Cursor | None) -> None:
        self._file = GrowingFile(self._path, self._roots, cursor)
        self._budget = TurnBudget()

    def _state(self) -> dict[str, Scalar]:
        """What the subclass must remember across a restart."""
        return {}

    def _before(self, seen: float | None) -> Iterator[Item]:  # noqa: ARG002
        """What there is to give before the next record."""
        yield from ()

    def _start_over(self) -> None:
        """The file is another one."""

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield what the log's new records give."""
        yield from self._read(seen, ended=False)

    def finish(self) -> Iterator[Item]:
        """Yield the newest step."""
        yield from self._read(None, ended=True)
        yield from super().finish()

    def cursor(self) -> Cursor:
        """The first record of the step held back."""
        return self._file.cursor(self.name, *self._position(**self._state()))

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget."""
        return self._budget.spent

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere."""
        return self._file.held

    def close(self) -> None:
        """Free the file handle."""
        self._file.close()

    def _read(self, seen: float | None, *, ended: bool) -> Iterator[Item]:
        yield from self._give()
        yield from self._before(seen)
        problem = ""
        if self._file.ready(self._feed.read_to):
            if self._file.restarted:
                self._feed.restart()
                self._begin_steps({})
                self._start_over()
            if block_log.begins(self._file.read, *self.HEADERS):
                yield from self._frames(seen, ended=ended)
            else:
                problem = f"{self._file.path}: not such a log (its first bytes are others)"
        self.stats.bytes, self.stats.problem = self._file.bytes, self._file.problem or problem

    def _frames(self, seen: float | None, *, ended: bool) -> Iterator[Item]:
        self._budget.begin(self._feed.read_to, live=seen is not None)
        for frame in block_log.frames(self._file.read, self._feed.read_to, ended=ended):
            self._feed.read_to = frame.end
            if frame.damage:
                self.stats.skip(Skip.UNREADABLE, f"byte {frame.start}: {frame.damage}")
            else:
                self.take(frame.start, frame.end, frame.payload, seen)
            yield from self._give()
            if self._budget.ends(frame.end):
                break
