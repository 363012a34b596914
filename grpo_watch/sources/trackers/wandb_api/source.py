"""Turns a remote run's data into rows, completion summaries, configuration and the run's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from grpo_watch.engine.records import ChannelKind, Cursor, EventKind, Item
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.trackers.tracker_source import TrackerSource
from grpo_watch.sources.trackers.wandb_api.hub import Feed, Hub
from grpo_watch.sources.trackers.wandb_api.remote import LoggedCall, RemotePlace, RunDetails, RunNews

LOST_HEARTBEAT = "crashed"
"""wandb's word for a run without a heartbeat; such a run resumes if only the network was down."""
ENDS = {
    "finished": (EventKind.FINISHED, ""),
    "failed": (EventKind.CRASH_SUMMARY, "wandb says that the run failed: its process ended with an error"),
    "killed": (EventKind.KILLED, "wandb says that the run was killed"),
    "preempted": (EventKind.KILLED, "wandb says that the run was preempted"),
    LOST_HEARTBEAT: (EventKind.KILLED, "wandb lost the run: its process, its machine or its network is gone"),
}
ONE_PER_PROMPT = "the run's tables keep one completion per prompt (log_unique_prompts)"


class WandbApiSource(TrackerSource):
    """Reads one run of a wandb server.

    The cursor is the counter (``_step``) of the first call of the held-back step. A table precedes its step's row. If
    the server's history ends before the cursor (a rewound run), a new attempt begins.
    """

    KIND = ChannelKind.WANDB

    def _begin(self, *, place: RemotePlace, hub: Hub, pause: Callable[[float], object] | None = None) -> None:
        """Follow the run.

        Args:
            place: the run.
            hub: reads it.
            pause: sleeps for seconds; if given, ``poll`` reads all available data (``check``). None: it takes the data
                read by the hub's thread.
        """
        super()._begin()
        self._place, self._hub, self._pause = place, hub, pause
        self._over = str(self._known.get("over") or "")
        self._unique_reported = False
        self._remote: Feed = hub.follow(place, self._feed.read_to, examples=self._examples)

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._remote.group_size = self._group_size()
        if self._pause is not None:
            self._hub.until(lambda: not self._remote.behind, self._pause)
        while (entry := self._remote.next_entry()) is not None:
            if isinstance(entry, str):
                yield self._problem(entry)
            else:
                yield from self._news(entry, seen)

    @property
    def behind(self) -> bool:
        """Whether the run's data on the server is still being read for the first time."""
        return self._remote.behind

    def cursor(self) -> Cursor:
        """Where reading continues."""
        return Cursor(self.name, str(self._place), *self._position(config=self._config, over=self._over))

    def close(self) -> None:
        """Stop following the run."""
        self._hub.leave(self._remote)

    def _news(self, news: RunNews, seen: float | None) -> Iterator[Item]:
        yield from self._details(news.details, seen)
        if news.calls.after < self._feed.read_to:
            yield from self._flush(seen)
            self._feed.restart(news.calls.after)
            yield self._event(EventKind.STARTED, "wandb's history of the run was rewound", seen=seen)
        for call in news.calls.rows:
            yield from self._logged(call, seen)
        state = news.details.info.state
        if news.at_end and state in ENDS and (state != self._over or not news.calls.rows):
            yield from self._flush(seen)
            if state != self._over:
                self._over = state
                yield self._event(*ENDS[state], seen=seen)

    def _logged(self, call: LoggedCall, seen: float | None) -> Iterator[Item]:
        order, table = call.order, call.table
        if isinstance(table, str):
            self.stats.skip(Skip.UNREADABLE, f"_step {order}: {table}")
        values = self._values(call.row, f"_step {order}", table=table is not None)
        step = self._step(call.row, values, order)
        self._feed.read_to = order + 1
        self._feed.add(order, step, values, call.time, seen)
        if isinstance(table, Grouping):
            known = table.step if table.step is not None else step or 0
            self._feed.say(order, self._tables.once(known, table, self.stats, seen), order + 1)
        yield from self._give()

    def _details(self, details: RunDetails, seen: float | None) -> Iterator[Item]:
        own = details.config and replace(details.config, channel=self.name, segment=self.segment)
        if (config := self._new_config(own)) is not None:
            yield config
        if details.one_per_prompt and not self._unique_reported:
            self._unique_reported = True
            self.stats.skip(Skip.NOT_A_ROW, ONE_PER_PROMPT)
        if self._over and details.info.state not in ENDS:
            over, self._over = self._over, ""
            if over != LOST_HEARTBEAT:
                yield self._event(EventKind.STARTED, "wandb reports that the run continues", seen=seen)

    def _problem(self, problem: str) -> Item:
        self.stats.problem = problem
        kind = EventKind.SOURCE_PROBLEM if problem else EventKind.SOURCE_RECOVERED
        return self._event(kind, problem)
