"""Reads trackio's SQLite database, read-only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import EventKind, Item, RunConfig, Scalar, Stream
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_table import by_name
from grpo_watch.sources.completions.completion_table import decode as decode_any
from grpo_watch.sources.completions.rollout_dumps import group_by_key
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.completions.text_reduction import CollectedRows
from grpo_watch.sources.console.markers import readable
from grpo_watch.sources.files.reading import BUDGET
from grpo_watch.sources.rows.jsonl import decode
from grpo_watch.sources.rows.step_assembly import BOTH, step_of
from grpo_watch.sources.settings.config_files import logged_config
from grpo_watch.sources.trackers.database import (
    BATCH,
    LAST,
    LONGEST_TEXT,
    DatabaseSource,
    NoTableError,
    query,
    row_size,
)
from grpo_watch.sources.trackers.tfevents import AT_END, END
from grpo_watch.sources.trackers.tracker_source import LoggedRun, iso_seconds

NAMES = (
    "SELECT substr(run_name, 1, 1000) FROM configs UNION"
    " SELECT substr(run_name, 1, 1000) FROM (SELECT run_name FROM metrics ORDER BY id DESC LIMIT 100)"
)
"""Query for the runs: each has a configuration once it logged; the newest rows reveal those without."""
CONFIG = (
    f"SELECT CASE WHEN length(config) <= {LONGEST_TEXT} THEN config END"  # noqa: S608  a constant
    " FROM configs WHERE run_name = ? ORDER BY id DESC LIMIT 1"
)
OF_ROLLOUTS = (
    " FROM traces WHERE run_name = ? AND rowid >= ? AND typeof(step) = 'integer' AND key = 'rollouts'"
    " ORDER BY rowid LIMIT ?"
)
TRACES = (
    f"SELECT rowid, step, CASE WHEN length(messages) <= {LONGEST_TEXT} THEN messages END,"
    f" CASE WHEN length(metadata) <= {LONGEST_TEXT} THEN metadata END{OF_ROLLOUTS}"
)
"""Query for the rollouts that TRL's asynchronous trainer logs: up to 16 per step (1.16)."""
STEPS = f"SELECT rowid, step, NULL, NULL{OF_ROLLOUTS}"
OF_TRACES, OF_ALERTS = frozenset({"traces"}), frozenset({"alerts", "metrics"})
ALERTS = (
    "SELECT rowid, CAST(substr(level, 1, 20) AS TEXT), CAST(substr(title, 1, 200) AS TEXT),"  # noqa: S608  a constant
    " CAST(substr(text, 1, 300) AS TEXT),"
    f" (SELECT CASE WHEN length(metrics) <= {LONGEST_TEXT} THEN metrics END FROM metrics"
    " WHERE run_name = alerts.run_name AND metrics.step <= alerts.step ORDER BY id DESC LIMIT 1)"
    f" FROM alerts WHERE run_name = ? AND rowid >= ? AND rowid < {LAST} ORDER BY rowid LIMIT ?"
)
"""Query for ``trackio.alert()`` calls; their ``step`` counts calls, too."""
ALERTS_AT_ONCE = 50
TOO_LONG = f"more than {LONGEST_TEXT >> 20} MiB"
NOT_YET = -1
LEAST_OF_GROUP = 2
SCORES = ("rewards/", "reward", "advantage")


class TrackioSource(DatabaseSource):
    """Reads one run of a project's database (schemas of trackio 0.20 to 0.43).

    trackio's own ``step`` counts calls; rows are joined by the step that the framework logs, or by that counter in a
    run that never logs one. NaN and infinities come as texts.
    """

    GIVES = "metric rows, settings, completions by group"
    OWN_TABLES = frozenset({"metrics", "configs"})
    ROWS = (
        "SELECT id, substr(timestamp, 1, 40), CASE WHEN typeof(step) = 'integer' THEN step END,"  # noqa: S608  a constant
        f" CASE WHEN length(metrics) <= {LONGEST_TEXT} THEN metrics END"
        " FROM metrics WHERE run_name = ? AND id >= ? ORDER BY id LIMIT ?"
    )
    NUMBERS = "SELECT id, NULL, NULL, NULL FROM metrics WHERE run_name = ? AND id >= ? ORDER BY id LIMIT ?"

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:
        """Return the runs of a database by name; empty if it can't be read."""
        try:
            names = sorted(str(name) for (name,) in query(path, roots, cls.OWN_TABLES, NAMES))
        except (SourceError, OSError):
            return []
        return [LoggedRun(name, name) for name in names]

    def _open(self) -> None:
        super()._open()
        ended = row_numbers.whole(self._known.get("ended"))
        self._ended = NOT_YET if ended is None else ended
        self._traced = row_numbers.whole(self._known.get("traced")) or 0
        self._alerted = row_numbers.whole(self._known.get("alerted")) or 0

    def _new(self, seen: float | None) -> Iterator[Item]:
        yield from super()._new(seen)
        yield from self._alerts(seen)
        more = self._read_tables and not self.stats.problem
        while more:
            try:
                traces = self._batch(OF_TRACES, TRACES, STEPS, self._traced)
            except (NoTableError, FileNotFoundError):
                return  # older databases have no such table
            except (SourceError, OSError) as error:
                self.stats.problem = str(error)
                return
            steps = [list(members) for _, members in groupby(traces, key=itemgetter(1))]
            cut = len(traces) == BATCH or row_size(chain.from_iterable(traces)) >= BUDGET
            for members in steps[:-1] if cut and len(steps) > 1 else steps:
                whole = [trace for trace in members if None not in trace]
                if lost := len(members) - len(whole):
                    self.stats.skip(Skip.TOO_LONG, f"step {members[0][1]}: a trace of {TOO_LONG}", lost)
                grouping = self._grouped(whole)
                self._traced = members[-1][0] + 1
                if grouping is not None:
                    yield grouping.summary(self.name, members[0][1], Stream.TRAIN, self.segment, seen)
            more = cut and seen is None  # live, the rest comes at the next poll

    def _alerts(self, seen: float | None) -> Iterator[Item]:
        """Yield the job's alerts, at the optimizer step of the newest row logged before each."""
        more = True
        while more:
            try:
                alerts = query(self._path, self._roots, OF_ALERTS, ALERTS, self._run, self._alerted, ALERTS_AT_ONCE)
            except (SourceError, OSError):
                return  # older databases have no such table
            for number, level, title, text, metrics in alerts:
                self._alerted = number + 1
                step = step_of(decode(_bytes(metrics)) or {})
                said = readable(": ".join(filter(None, (f"trackio {level}", title, text))).encode("utf-8", "replace"))
                yield self._event(EventKind.NOTED, said, step=step, seen=seen)
            more = bool(alerts) and seen is None  # live, the rest comes at the next poll

    def _grouped(self, traces: Sequence[Sequence[Any]]) -> Grouping | None:
        """Return the groups of a step's traces, as far as stored; a prompt ends at the model's first text."""
        rows, groups, scores = CollectedRows(), list[object](), list[Mapping[str, object]]()
        facts = [decode(_bytes(metadata)) or {} for *_, metadata in traces]
        sizes = Counter(str(fact.get("group_id")) for fact in facts if "group_id" in fact)
        for (_, _, messages, _), fact in zip(traces, facts, strict=True):
            talk, group = decode_any(_bytes(messages)), str(fact.get("group_id"))
            if sizes[group] < LEAST_OF_GROUP or not isinstance(talk, list):
                continue
            said = (at for at, one in enumerate(talk) if isinstance(one, dict) and one.get("role") == "assistant")
            begins = next(said, len(talk))
            rows.add(talk[:begins], talk[begins:])
            groups.append(group)
            scores.append({key.removeprefix("rewards/"): fact[key] for key in fact if key.startswith(SCORES)})
        return group_by_key(rows, groups, by_name(scores), None, examples=self._examples) if groups else None

    def _state(self, position: int) -> dict[str, Scalar]:
        return {
            **super()._state(position),
            "ended": self._ended if position == self._ended else NOT_YET,
            "traced": self._traced,
            "alerted": self._alerted,
        }

    def _settings(self) -> RunConfig | None:
        stored = self._query(CONFIG, self._run)
        raw = decode(_bytes(stored[0][0])) if stored else None
        return logged_config(raw or {}, "trackio config", self.name, self.segment)

    def read_record(self, start: int, following: int, record: Sequence[object], seen: float | None) -> None:
        """Read a logged call: time, trackio's counter, its numbers and tables as JSON."""
        order, (logged, counter, metrics) = start, record
        if metrics is None:
            self.stats.skip(Skip.TOO_LONG, f"row {order}: {TOO_LONG}")
            return
        row = decode(_bytes(metrics))
        if row is None:
            self.stats.skip(Skip.NOT_JSON, f"row {order}: no JSON object")
            return
        self.stats.bytes += len(_bytes(metrics))
        table = any(isinstance(value, dict) and "_type" in value for value in row.values())
        values = self._values(row, f"row {order}", table=table or not row)  # an empty row belongs to traces
        step, ends = self._step(row, values, counter), END in row
        values = {key: value for key, value in values.items() if key not in AT_END}
        if order != self._ended and not (ends and values.keys() <= BOTH):
            self._feed.add(order, step, values, iso_seconds(logged), seen)
        self._add_tables(order, row, step, seen)
        if ends:
            self._ended = order
            self._feed.flush(order, seen)
            self._feed.say(order, self._event(EventKind.FINISHED, step=self._feed.last, seen=seen), following)

    def _add_tables(self, order: int, row: Mapping[str, object], step: int | None, seen: float | None) -> None:
        for value in row.values():
            lines = value.get("_value") if isinstance(value, dict) and value.get("_type") == "trackio.table" else None
            if not isinstance(lines, list) or self._feed.given_to(order):
                continue
            whole = [line for line in lines if isinstance(line, dict)]
            self._feed.say(order, self._tables.summary(by_name(whole), self.stats, seen, step), order + 1)


def _bytes(value: object) -> bytes:
    """Return the JSON text, which trackio stores as text or as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
