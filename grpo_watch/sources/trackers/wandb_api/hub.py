"""Asks a wandb server for all followed runs and watched projects in turn: one client, one budget, one thread."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import NamedTuple

from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.trackers.wandb_api.client import ClientProcess, WandbClient
from grpo_watch.sources.trackers.wandb_api.feed import PER_MINUTE, Feed, Polled, RequestBudget
from grpo_watch.sources.trackers.wandb_api.remote import RemoteError, RemotePlace, RunInfo, ServerTrouble

LIST_EVERY = 60.0
"""Seconds between two looks for new runs of a project, and at the state of a run."""
MOST_RUNS = 200
"""Newest runs of a project that are looked at."""
IDLE = 1.0
"""Longest time between two looks at what is due: a run may be added meanwhile."""
OF_THE_KEY = frozenset({ServerTrouble.NO_CLIENT, ServerTrouble.NO_KEY, ServerTrouble.REFUSED})
"""Concerns every run that is read with the same key: logged once."""

log = logging.getLogger("grpo_watch.wandb")


class ListedRuns(NamedTuple):
    """What is known of a watched place. ``runs`` None: not known yet; ``problem``: why not, or why not any more."""

    runs: tuple[RunInfo, ...] | None = None
    problem: str = ""


class _Watch(Polled):
    """A project whose runs are listed, or a run whose state is."""

    listed = ListedRuns()

    def ask(self, client: ClientProcess, now: float) -> int:
        """List the runs; the number of requests it took. Raises ``RemoteError``."""
        if self.place.run:
            details, spent = client.ask(WandbClient.details, self.place)
            runs: tuple[RunInfo, ...] = (details.info,)
        else:
            runs, spent = client.ask(WandbClient.runs, self.place, MOST_RUNS)
        self._answered()
        self.listed, self.due = ListedRuns(runs), now + LIST_EVERY
        return spent

    def _report(self, trouble: ServerTrouble | None) -> None:
        """What was listed before stays, but for a place that is gone."""
        self.listed = ListedRuns(() if trouble is ServerTrouble.GONE else self.listed.runs, self.problem)


class Hub:
    """All that is asked of one server.

    ``step`` asks one question at most and returns the time to wait; ``start`` does so in a thread of its own. Runs may
    be followed and left from any thread.

    Args:
        client: asks the server.
        timer: monotonic seconds.
        chance: for the length of pauses.
        per_minute: most requests a minute, all runs together.
        wake: called when there is something new to take.
    """

    def __init__(
        self,
        client: ClientProcess,
        *,
        timer: Callable[[], float],
        chance: random.Random,
        per_minute: float = PER_MINUTE,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._timer, self._chance, self._wake = client, timer, chance, wake
        self._budget = RequestBudget(per_minute, timer())
        self._tasks: list[Polled] = []
        self._watches: dict[RemotePlace, _Watch] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reported: set[ServerTrouble] = set()
        self.thread = threading.Thread(target=self._run, name="wandb", daemon=True)

    def follow(self, place: RemotePlace, first: int, *, examples: KeptTexts) -> Feed:
        """Read a run from a counter on."""
        feed = Feed(place, first, self._chance, examples=examples, due=self._timer())
        with self._lock:
            self._tasks.append(feed)
        return feed

    def leave(self, feed: Feed) -> None:
        """Stop reading a run."""
        with self._lock:
            if feed in self._tasks:
                self._tasks.remove(feed)

    def watch(self, place: RemotePlace) -> None:
        """List the runs of a project (or the state of a run) from now on."""
        with self._lock:
            if place not in self._watches:
                self._watches[place] = watch = _Watch(place, self._chance, self._timer())
                self._tasks.append(watch)

    def listed(self, place: RemotePlace) -> ListedRuns:
        """What is known of a watched place by now."""
        return self._watches[place].listed

    def step(self) -> float:
        """Ask the one question that is longest due, if the budget allows; for how many seconds to wait then."""
        now = self._timer()
        with self._lock:
            task = min(self._tasks, key=lambda one: one.due, default=None)
        if task is None:
            return IDLE
        pause = max(task.due - now, self._budget.wait(now))
        if pause > 0:
            return min(pause, IDLE)
        self._ask(task)
        return 0.0

    def until(self, done: Callable[[], bool], pause: Callable[[float], object]) -> None:
        """Step in the caller's thread until ``done``."""
        while not done() and not self._stopping.is_set():
            seconds = self.step()
            if seconds:
                pause(seconds)

    def start(self) -> None:
        """Step in a thread; if that dies, ``thread`` is not alive any more and the daemon ends."""
        self.thread.start()

    def close(self) -> None:
        """Stop asking, at once."""
        self._stopping.set()
        self._client.interrupt()
        if self.thread.is_alive():
            self.thread.join(5.0)
        self._client.close()

    def _run(self) -> None:
        self.until(lambda: False, self._stopping.wait)

    def _ask(self, task: Polled) -> None:
        try:
            spent = task.ask(self._client, self._timer())
        except RemoteError as error:
            spent = error.requests
            self._failed(task, error)
        else:
            self._answered()
        self._budget.spend(spent, self._timer())
        self._wake()

    def _failed(self, task: Polled, error: RemoteError) -> None:
        if self._stopping.is_set():
            return
        report_it = task.failed(error, self._timer())
        if error.trouble is ServerTrouble.LIMITED:
            self._budget.hold(task.due)
        if report_it and not (error.trouble in OF_THE_KEY and error.trouble in self._reported):
            self._reported.add(error.trouble)
            log.error("a wandb server can't be read", extra={"fields": {"place": str(task.place), "error": str(error)}})

    def _answered(self) -> None:
        if self._reported & OF_THE_KEY:
            log.warning("the wandb server answers again")
        self._reported.clear()
