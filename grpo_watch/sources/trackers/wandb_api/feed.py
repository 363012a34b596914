"""Asks a server for what is new in one run, within a budget of requests and with growing pauses after failures."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.trackers.wandb_api.client import ClientProcess, WandbClient
from grpo_watch.sources.trackers.wandb_api.remote import (
    LASTING,
    OVER,
    LoggedCall,
    LoggedCalls,
    RemoteError,
    RemotePlace,
    RunDetails,
    ServerTrouble,
    TableRef,
)

PER_MINUTE = 60.0
"""Requests a minute by default; wandb's documented limits begin at 50 to 200, by plan."""
BURST = 20.0
"""Requests that may follow each other at once after a quiet time."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
LASTING_PAUSE = 300.0
"""The first pause after what does not pass by itself: a refused key, a deleted run."""


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
        """Seconds until a question may be asked; 0: now."""
        self._fill(now)
        lacking = max(0.0, 1.0 - self._left) / self._rate
        return max(lacking, self._held_until - now, 0.0)

    def spend(self, requests: int, now: float) -> None:
        """Account for requests that were made; more than was left is paid back by waiting."""
        self._fill(now)
        self._left -= requests

    def hold(self, until: float) -> None:
        """Nothing may be asked before this moment: the server refused a request as one too many."""
        self._held_until = max(self._held_until, until)

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now


EVERY = 15.0
"""Seconds between two looks for rows: wandb uploads every 15 s."""
DETAILS_EVERY = 60.0
"""Seconds between two looks at a run's state and configuration."""
MOST_COUNTS = 5_000
"""Counts of wandb's ``_step`` that one question covers (a step of TRL takes about nine)."""
LEAST_COUNTS = 50
"""As many where the server's answer for more is too large."""
MOST_TABLES = 20
"""Tables of completions that one question fetches."""
MOST_WAITING = 10_000
"""Answers that wait for the engine (a row of TRL is about 3 KB); beyond it no further ones are requested."""
REPORTED_AFTER = 3
"""Failures in a row after which a trouble that may pass is reported."""


class FeedRewound(NamedTuple):
    """The server's history ends before what was read: it was rewound, and continues behind ``last``."""

    last: int


class FeedProblem(NamedTuple):
    """The run can't be read (``text``), or can be again (empty)."""

    text: str


class FeedEnded(NamedTuple):
    """All was read of a run that is over, in this state."""

    state: str


Entry: TypeAlias = LoggedCall | RunDetails | FeedRewound | FeedProblem | FeedEnded


class Polled(ABC):
    """What is asked for again and again; ``due`` is when next (monotonic seconds), ``problem`` what was reported."""

    def __init__(self, place: RemotePlace, chance: random.Random, due: float) -> None:
        self.place, self.due, self.problem = place, due, ""
        self._chance, self._failures = chance, 0

    @abstractmethod
    def ask(self, client: ClientProcess, now: float) -> int:
        """Ask the question that is due; the number of requests it took. Raises ``RemoteError``."""

    def failed(self, error: RemoteError, now: float) -> bool:
        """A question failed: pause; whether it is reported now, as it lasts and was not reported before.

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
        """``problem`` changed; None: it is over."""
        del trouble

    def _answered(self) -> None:
        self._failures = 0
        if self.problem:
            self.problem = ""
            self._report(None)


class Feed(Polled):
    """One run that is followed.

    The poller's thread calls ``ask`` and ``failed``, the engine's ``next_entry``; nothing else is shared than a queue.
    ``behind`` is whether what the server holds was not all read yet.

    Args:
        place: the run.
        first: the counter to read from.
        chance: for the length of pauses.
        examples: what groups keep of the texts.
        due: when to ask first.
    """

    def __init__(
        self,
        place: RemotePlace,
        first: int,
        chance: random.Random,
        *,
        examples: KeptTexts,
        due: float,
    ) -> None:
        super().__init__(place, chance, due)
        self.behind = True
        self.group_size: int | None = None
        self._first, self._examples = first, examples
        self._inbox: deque[Entry] = deque()
        self._pending: deque[LoggedCall] = deque()
        self._details: RunDetails | None = None
        self._details_due = due
        self._counts, self._tables = MOST_COUNTS, MOST_TABLES
        self._over = ""
        self._failing: set[str] = set()
        self._at_end = self._taking = False

    def next_entry(self) -> Entry | None:
        """The oldest answer that was not taken yet.

        While a run is read for the first time there is none, unless too many wait: what it held before the watch began
        is then one piece for the engine, which treats it as past.
        """
        self._taking = self._taking or not self.behind or len(self._inbox) > MOST_WAITING
        if not (self._taking and self._inbox):
            self._taking = False
            return None
        return self._inbox.popleft()

    def ask(self, client: ClientProcess, now: float) -> int:
        """Ask the question that is due; the number of requests it took. Raises ``RemoteError``."""
        if len(self._inbox) > MOST_WAITING:
            self.due = now + 1.0
            return 0
        question: Callable[[ClientProcess, float], int] = self._ask_tables if self._pending else self._ask_pieces
        if self._details is None or (not self._pending and now >= self._details_due):
            question = self._ask_details
        self._failing.add(question.__name__)
        spent = question(client, now)
        self._failing.remove(question.__name__)
        if not self._failing:  # a run whose details are given is not readable for that
            self._answered()
        self._give(now)
        return spent

    def _report(self, trouble: ServerTrouble | None) -> None:
        self.behind = self.behind and trouble is None
        self._inbox.append(FeedProblem(self.problem))

    def _ask_details(self, client: ClientProcess, now: float) -> int:
        details, spent = client.ask(WandbClient.details, self.place)
        self._at_end = False
        if details != self._details:
            self._inbox.append(details)
        self._details, self._details_due = details, now + DETAILS_EVERY
        if details.info.state not in OVER:
            self._over = ""
        return spent

    def _ask_pieces(self, client: ClientProcess, _: float) -> int:
        """Ask for the next stretch; a shorter one next time where this is too much."""
        try:
            found, spent = client.ask(WandbClient.pieces, self.place, self._first, self._counts)
        except RemoteError as error:
            if error.trouble is ServerTrouble.TOO_MUCH:
                self._counts = max(LEAST_COUNTS, self._counts // 10)
            raise
        self._add_pieces(found)
        return spent

    def _add_pieces(self, found: LoggedCalls) -> None:
        if 0 <= found.last < self._first - 1:
            self._inbox.append(FeedRewound(found.last))
            self._first = found.last + 1
            return
        self._pending.extend(found.rows)
        self._first, self._at_end = found.after, found.after > found.last

    def _give(self, now: float) -> None:
        """Hand over pieces up to one whose table has to be fetched first; then return whether all was read."""
        while self._pending and self._ref(self._pending[0]) is None:
            self._inbox.append(self._pending.popleft())
        self.due = now
        if self._at_end and not self._pending:
            self.due = now + EVERY
            self._all_read()

    def _all_read(self) -> None:
        self.behind = False
        state = self._details.info.state if self._details is not None else ""
        if state in OVER and self._over != state:
            self._over = state
            self._inbox.append(FeedEnded(state))

    def _ref(self, piece: LoggedCall) -> TableRef | None:
        """Where the table is that has to be fetched for a piece, if one has."""
        wanted = self._details is None or not self._details.one_per_prompt
        return piece.table if wanted and isinstance(piece.table, TableRef) else None

    def _ask_tables(self, client: ClientProcess, _: float) -> int:
        """Fetch the next tables, several at once; one by one once several could not be had."""
        refs = [ref for ref in map(self._ref, self._pending) if ref is not None][: self._tables]
        found: tuple[Grouping | str, ...]
        try:
            found, spent = client.ask(WandbClient.tables, self.place, refs, self._size(), self._examples)
        except RemoteError as error:
            self._tables = 1
            if len(refs) > 1 or not self._lost(error):
                raise
            found, spent = (f"{refs[0].path}: {error}",), error.requests
        tables = iter(found)
        self._pending = deque(
            piece if self._ref(piece) is None else piece._replace(table=next(tables, piece.table))
            for piece in self._pending
        )
        return spent

    def _lost(self, error: RemoteError) -> bool:
        """Whether a table is given up: it is too large, or took too long again and again."""
        late = error.trouble is ServerTrouble.TIMEOUT and self._failures >= REPORTED_AFTER
        return late or error.trouble is ServerTrouble.TOO_MUCH

    def _size(self) -> int | None:
        """G: what the watcher knows, else the run's own configuration."""
        config = self._details.config if self._details is not None else None
        own = config.settings.get("num_generations") if config is not None else None
        value = own.value if own is not None else None
        return self.group_size or (value if isinstance(value, int) else None)
