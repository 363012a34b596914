"""Reads trackio's SQLite database, read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_watch.engine.records import Cursor, EventKind, RunConfig, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip
from grpo_watch.sources.rows.jsonl import decode
from grpo_watch.sources.rows.step_assembly import BOTH
from grpo_watch.sources.settings.logged_config import logged_config
from grpo_watch.sources.trackers.database import LONGEST_TEXT, DatabaseSource, query
from grpo_watch.sources.trackers.tfevents import AT_END, END
from grpo_watch.sources.trackers.tracker_source import LoggedRun, iso_seconds

NAMES = (
    "SELECT substr(run_name, 1, 1000) FROM configs UNION"
    " SELECT substr(run_name, 1, 1000) FROM (SELECT run_name FROM metrics ORDER BY id DESC LIMIT 100)"
)
"""Every run has a configuration once it logged; the newest rows are looked at for those that have none."""
CONFIG = (
    f"SELECT CASE WHEN length(config) <= {LONGEST_TEXT} THEN config END"  # noqa: S608  a constant
    " FROM configs WHERE run_name = ? ORDER BY id DESC LIMIT 1"
)
NOT_YET = -1


class TrackioSource(DatabaseSource):
    """Reads one run of a project's database (schemas of trackio 0.20 to 0.43).

    trackio's own ``step`` counts calls; rows are joined by the step that the framework logs, or by that counter in a
    run that never logs one. NaN and infinities come as texts.
    """

    WHAT = "trackio"
    OWN_TABLES = frozenset({"metrics", "configs"})
    ROWS = (
        "SELECT id, substr(timestamp, 1, 40), CASE WHEN typeof(step) = 'integer' THEN step END,"  # noqa: S608  a constant
        f" CASE WHEN length(metrics) <= {LONGEST_TEXT} THEN metrics END"
        " FROM metrics WHERE run_name = ? AND id >= ? ORDER BY id LIMIT ?"
    )

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:
        """The runs of a database by name; none where it can't be read."""
        try:
            names = sorted(str(name) for (name,) in query(path, roots, cls.OWN_TABLES, NAMES))
        except (SourceError, OSError):
            return []
        return [LoggedRun(name, name) for name in names]

    def _begin(self, cursor: Cursor | None) -> None:
        super()._begin(cursor)
        ended = row_numbers.whole(self._known.get("ended"))
        self._ended = NOT_YET if ended is None else ended

    def _state(self, position: int) -> dict[str, Scalar]:
        return {**super()._state(position), "ended": self._ended if position == self._ended else NOT_YET}

    def _settings(self) -> RunConfig | None:
        stored = self._query(CONFIG, self._run)
        raw = decode(_bytes(stored[0][0])) if stored else None
        return logged_config(raw or {}, "trackio config", self.name, self.segment)

    def take(self, start: int, following: int, record: Sequence[object], seen: float | None) -> None:
        """A logged call: when, trackio's counter, its numbers and tables as JSON."""
        order, (logged, counter, metrics) = start, record
        if metrics is None:
            self.stats.skip(Skip.TOO_LONG, f"row {order}: more than {LONGEST_TEXT >> 20} MiB")
            return
        row = decode(_bytes(metrics))
        if row is None:
            self.stats.skip(Skip.NOT_JSON, f"row {order}: no JSON object")
            return
        self.stats.bytes += len(_bytes(metrics))
        table = any(isinstance(value, dict) and "_type" in value for value in row.values())
        values = self._values(row, f"row {order}", table=table)
        step, ends = self._step(row, values, counter), END in row
        values = {key: value for key, value in values.items() if key not in AT_END}
        if order != self._ended and not (ends and values.keys() <= BOTH):
            self._feed.add(order, step, values, iso_seconds(logged), seen)
        self._take_tables(order, row, step, seen)
        if ends:
            self._ended = order
            self._feed.flush(order, seen)
            self._feed.say(order, self._event(EventKind.FINISHED, step=self._feed.last, seen=seen), following)

    def _take_tables(self, order: int, row: Mapping[str, object], step: int | None, seen: float | None) -> None:
        for value in row.values():
            lines = value.get("_value") if isinstance(value, dict) and value.get("_type") == "trackio.table" else None
            if not isinstance(lines, list) or self._feed.given_to(order):
                continue
            whole = [line for line in lines if isinstance(line, dict)]
            names = dict.fromkeys(name for line in whole for name in line)
            columns = {str(name): [line.get(name) for line in whole] for name in names}
            self._feed.say(order, self._tables.summary(columns, self.stats, seen, step), order + 1)


def _bytes(value: object) -> bytes:
    """The JSON text, which trackio stores as text or as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
