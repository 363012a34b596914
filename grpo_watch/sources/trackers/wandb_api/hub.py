"""Queries a wandb server for all followed runs and watched projects in turn: one client, one budget, one thread.

After failures it retries with growing pauses.
"""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.trackers.wandb_api.client import WandbClient
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import (
    LASTING,
    RemoteError,
    RemotePlace,
    RunInfo,
    RunNews,
    ServerTrouble,
)

log = logging.getLogger("grpo_watch.wandb")

PER_MINUTE = 60.0
"""Requests a minute by default; wandb's documented limits begin at 50 to 200, by plan."""
BURST = 20.0
"""Requests that may follow each other at once after an idle time."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
LASTING_PAUSE = 300.0
"""The first pause after a lasting trouble: a refused key, a deleted run."""


class RequestBudget:
    """A bucket of requests that fills evenly.

    Args:
        per_minute: how fast it fills.
        now: monotonic seconds.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self._rate = per_minute / 60.0
        self._most = min(BURST, max(1.0, per_minute))
        self._left, self._at = self._most, now
        self._held_until = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until a request may be made; 0: now."""
        self._fill(now)
        lacking = max(0.0, 1.0 - self._left) / self._rate
        return max(lacking, self._held_until - now, 0.0)

    def spend(self, requests: int, now: float) -> None:
        """Account for requests made; an excess is paid back by waiting."""
        self._fill(now)
        self._left -= requests

    def hold(self, until: float) -> None:
        """Forbid requests before this moment: the server refused one as too many."""
        self._held_until = max(self._held_until, until)

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now


EVERY = 20.0
"""Seconds between two queries of a run: wandb uploads every 15 s."""
MOST_COUNTS = 5_000
"""Counts of wandb's ``_step`` per query (a step of TRL takes about nine)."""
MOST_WAITING = 10_000
"""Most rows that wait for the engine (one of TRL is about 3 KB); beyond it no more are requested."""
REPORTED_AFTER = 3
"""Failures in a row after which a passing trouble is reported, and tables that take too long are given up."""


class Polled(ABC):
    """A repeated query; ``due`` is its next time (monotonic seconds), ``problem`` the reported trouble."""

    def __init__(self, place: RemotePlace, chance: random.Random, due: float) -> None:
        self.place, self.due, self.problem = place, due, ""
        self._chance, self._failures = chance, 0

    @abstractmethod
    def ask(self, client: ClientProcess, now: float) -> int:
        """Make the due query; returns the requests spent. Raises ``RemoteError``."""

    def failed(self, error: RemoteError, now: float) -> bool:
        """Pause after a failed query; returns whether to report it now, as it lasts and was not reported before.

        Pauses double, each cut by a random share so that many watchers don't return at the same moment.
        """
        lasting = error.trouble in LASTING
        full = min(LONGEST_PAUSE, (LASTING_PAUSE if lasting else FIRST_PAUSE) * 2.0 ** min(self._failures, 10))
        self.due = now + full * self._chance.uniform(0.5, 1.0)
        self._failures += 1
        text = f"{self.place}: {error}"
        if text == self.problem or not (lasting or self._failures >= REPORTED_AFTER):
            return False
        self.problem = text
        self._report(error.trouble)
        return True

    def _report(self, trouble: ServerTrouble | None) -> None:
        """Change ``problem``; None: it is over."""
        del trouble

    def _answered(self) -> None:
        self._failures = 0
        if self.problem:
            self.problem = ""
            self._report(None)


class Feed(Polled):
    """Follows one run.

    The poller's thread calls ``ask`` and ``failed``, the engine's ``next_entry``; they share only a queue. ``behind``:
    not all data on the server was read yet.

    Args:
        place: the run.
        first: the counter to read from.
        chance: randomises the length of pauses.
        examples: how much of the texts groups keep.
        due: time of the first query.
    """

    def __init__(
        self, place: RemotePlace, first: int, chance: random.Random, *, examples: KeptTexts, due: float
    ) -> None:
        super().__init__(place, chance, due)
        self.behind = True
        self.group_size: int | None = None
        self._first, self._examples, self._tables = first, examples, True
        self._inbox: deque[RunNews | str] = deque()
        self._taking = False

    def next_entry(self) -> RunNews | str | None:
        """Return the oldest untaken result; a text is why the run can't be read (empty: it can again).

        During a run's first read there is none, unless too many wait, so that the engine gets the run's past in one
        piece.
        """
        self._taking = bool(self._inbox) and (self._taking or not self.behind or self._full())
        return self._inbox.popleft() if self._taking else None

    def ask(self, client: ClientProcess, now: float) -> int:
        """Query new data; returns the requests spent. Raises ``RemoteError``."""
        if self._full():
            self.due = now + 1.0
            return 0
        question = (self.place, self._first, MOST_COUNTS, self.group_size, self._examples, self._tables)
        news, spent = client.ask(WandbClient.news, *question)
        self._answered()
        self._inbox.append(news)
        self._first, self._tables = news.calls.after, True
        self.behind, self.due = self.behind and not news.at_end, now + EVERY if news.at_end else now
        return spent

    def failed(self, error: RemoteError, now: float) -> bool:
        """Pause after a failed query; after repeated timeouts, the next query omits tables, the likely cause."""
        report_it = super().failed(error, now)
        self._tables = error.trouble is not ServerTrouble.TIMEOUT or self._failures < REPORTED_AFTER
        return report_it

    def _full(self) -> bool:
        return sum(len(news.calls.rows) for news in self._inbox if isinstance(news, RunNews)) > MOST_WAITING

    def _report(self, trouble: ServerTrouble | None) -> None:
        self.behind = self.behind and trouble is None
        self._inbox.append(self.problem)


LIST_EVERY = 60.0
"""Seconds between two lists of a project's runs, and queries of a run's state."""
MOST_RUNS = 200
"""Most runs of a project that are listed, newest first."""
IDLE = 1.0
"""Longest time between two checks for due queries: a run may be added meanwhile."""
OF_THE_KEY = frozenset({ServerTrouble.NO_CLIENT, ServerTrouble.NO_KEY, ServerTrouble.REFUSED})
"""Troubles of every run that is read with the same key: logged once."""


class ListedRuns(NamedTuple):
    """The runs of a watched place. ``runs`` None: not known yet; ``problem``: why not, or why not any more."""

    runs: tuple[RunInfo, ...] | None = None
    problem: str = ""


class _Watch(Polled):
    """Lists a project's runs, or a run's state."""

    listed = ListedRuns()

    def ask(self, client: ClientProcess, now: float) -> int:
        """List the runs; returns the requests spent. Raises ``RemoteError``."""
        if self.place.run:
            details, spent = client.ask(WandbClient.details, self.place)
            runs: tuple[RunInfo, ...] = (details.info,)
        else:
            runs, spent = client.ask(WandbClient.runs, self.place, MOST_RUNS)
        self._answered()
        self.listed, self.due = ListedRuns(runs), now + LIST_EVERY
        return spent

    def _report(self, trouble: ServerTrouble | None) -> None:
        """Keep the earlier list, except for a place that is gone."""
        self.listed = ListedRuns(() if trouble is ServerTrouble.GONE else self.listed.runs, self.problem)


class Hub:
    """Makes all queries to one server.

    ``step`` makes at most one query and returns the time to wait; ``start`` does so in a separate thread. Runs may be
    followed and left from any thread.

    Args:
        client: queries the server.
        timer: monotonic seconds.
        chance: randomises the length of pauses.
        per_minute: most requests a minute, all runs together.
        wake: called when there are new results.
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
        """Follow a run from a counter on."""
        feed = Feed(place, first, self._chance, examples=examples, due=self._timer())
        with self._lock:
            self._tasks.append(feed)
        return feed

    def leave(self, feed: Feed) -> None:
        """Stop following a run."""
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
        """Return the current list of a watched place."""
        return self._watches[place].listed

    def step(self) -> float:
        """Make the query that is longest overdue, if the budget allows; returns the seconds to wait."""
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
        """Stop all queries at once."""
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
