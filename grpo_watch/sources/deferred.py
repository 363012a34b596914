"""Runs heavy work in place or in another process, and hands the results back in the order of submission."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

K = TypeVar("K")


class Future(Protocol):
    """The part of ``concurrent.futures.Future`` that is used."""

    def done(self) -> bool:
        """Whether a result is there."""

    def result(self) -> Any:
        """The result; waits for it, and raises what the work raised."""


Submit: TypeAlias = Callable[..., Future]
"""``submit(function, *arguments)`` with a top-level function and arguments that can be sent to another process."""


class DeferredWork:
    """Work that is done when its result is asked for."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments

    def done(self) -> bool:
        """It may be asked for at any time."""
        return True

    def result(self) -> Any:
        """Do the work."""
        return self._function(*self._arguments)


class Deferred(Generic[K]):
    """A short queue of submitted work, each piece with a key.

    Args:
        submit: None does the work in place, when its result is taken.
        limit: most pieces submitted at once (in place: one, so that nothing is decided earlier than needed).
    """

    def __init__(self, submit: Submit | None, limit: int = 4) -> None:
        self._submit, self._limit = submit, limit if submit is not None else 1
        self._queue: deque[tuple[K, Future]] = deque()

    def room(self) -> bool:
        """Whether another piece may be submitted."""
        return len(self._queue) < self._limit

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, key: K, function: Callable[..., Any], *arguments: Any, first: bool = False) -> None:
        """Start a piece of work; ``first``: its result comes before results of earlier submissions."""
        future = DeferredWork(function, arguments) if self._submit is None else self._submit(function, *arguments)
        (self._queue.appendleft if first else self._queue.append)((key, future))

    def take(self, *, wait: bool = False) -> tuple[K, Any] | None:
        """Key and result of the oldest piece if it is done (with ``wait``: once it is); None when there is none.

        A piece that raised gives the exception in place of its result.
        """
        if not self._queue or not (wait or self._queue[0][1].done()):
            return None
        key, future = self._queue.popleft()
        try:
            return key, future.result()
        except Exception as error:  # noqa: BLE001  a dead worker process must not end the watch
            return key, error
