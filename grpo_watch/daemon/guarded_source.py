"""Keeps a mistake in one source from ending the watch of all runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from grpo_watch.engine.records import Cursor, EventKind, Item, RunEvent
from grpo_watch.sources.base import Source

log = logging.getLogger("grpo_watch.source")


class GuardedSource(Source):
    """A source that stops and reports it where the one inside raises."""

    def __init__(self, source: Source) -> None:
        self.name, self.stats = source.name, source.stats
        self._source = source
        self._failed = False

    @property
    def behind(self) -> bool:
        """Whether what a server holds of the run is still being fetched for the first time."""
        return self._source.behind and not self._failed

    @property
    def unread(self) -> bool:
        """Whether the last poll ended at its budget."""
        return self._source.unread and not self._failed

    @property
    def held(self) -> int:
        """The inode of the file that is open, while that has a name somewhere."""
        return 0 if self._failed else self._source.held

    @property
    def settling(self) -> bool:
        """Whether something is there that is read once it has kept still for a while."""
        return self._source.settling and not self._failed

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield everything new."""
        return self._guard(lambda: self._source.poll(seen))

    def finish(self) -> Iterator[Item]:
        """Yield what was held back."""
        return self._guard(self._source.finish)

    def cursor(self) -> Cursor:
        """Where reading would continue."""
        return self._source.cursor()

    def close(self) -> None:
        """Free file handles."""
        self._source.close()

    def _guard(self, items: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        if self._failed:
            return
        try:
            yield from items()
        except Exception as error:
            self._failed = True
            self.stats.problem = f"{self.name}: the reader failed ({type(error).__name__}: {error}); please report it"
            log.exception("a source failed and is no longer read", extra={"fields": {"source": self.name}})
            yield RunEvent(self.name, EventKind.SOURCE_PROBLEM, text=self.stats.problem)
