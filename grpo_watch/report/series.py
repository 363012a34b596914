"""Keeps the rows of a run, watched or replayed, as columns over its steps, for charts and comparisons."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from itertools import accumulate, pairwise
from math import inf, isfinite, isnan, nan
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.records import CompletionSummary, MetricRow, Record
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import UsageError
from grpo_watch.extras import install
from grpo_watch.report.blindness import coverage_line, headline
from grpo_watch.report.view import views
from grpo_watch.report.words import label_of
from grpo_watch.safe_text import visible

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_NUMBERS = 40_000_000
"""Most numbers kept of one run: a million rows of 40 metrics; a run takes years to log more."""
MOST_ROWS = 1_000_000
"""Most rows kept of one run, however few metrics they have."""
LIVE_NUMBERS = 60_000
"""Most numbers kept of a watched run: 1,500 rows of 40 metrics; of longer runs rows with extremes stay."""
LIVE_ROWS = 2_000
"""Most rows kept of a watched run, however few metrics they have: with the numbers at most 1 MB."""
NEWEST = 64
"""Newest rows, which are never thinned."""
MOST_METRICS = 128
"""Most metrics kept of one run: the canonical ones, and room for some eighty reward functions."""


@dataclass(frozen=True, slots=True)
class ThinnedColumns:
    """Columns of one length, by attempt and step; None is a missing value.

    ``odd`` counts values that are no numbers, by metric; ``rows`` is how many rows were logged.
    """

    attempts: Sequence[int] = ()
    steps: Sequence[int] = ()
    columns: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    odd: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0


class Series:
    """The rows of one run, one per step of an attempt; metrics that arrive later for a step join its row.

    A value that was not logged, or not as a finite number, is NaN in a column. ``logged`` counts rows, ``taken`` calls
    of ``take``: while it is unchanged, so is everything else.

    Args:
        most: most numbers kept; beyond, about a third of the rows go, but none with an extreme of its stretch.
        most_rows: most rows kept, likewise.
    """

    def __init__(self, most: int = MOST_NUMBERS, most_rows: int = MOST_ROWS) -> None:
        self.logged = self.taken = 0
        self.resolution: float | None = None
        self._most, self._most_rows = most, most_rows
        self._rows: dict[tuple[int, int], int] = {}
        self._thinned_to = (-1, 0)
        """Attempt and step of the newest dropped row: a row up to there may have been counted before."""
        self._columns: dict[str, array[float]] = {}
        """Per metric a value for each row up to its last one; NaN: not logged, infinite: not as a finite number."""
        self._odd: Counter[str] = Counter()

    @classmethod
    def of(cls, rows: ThinnedColumns) -> Series:
        """Restore stored rows."""
        series = cls()
        for at, place in enumerate(zip(rows.attempts, rows.steps, strict=True)):
            index = series._rows.setdefault(place, len(series._rows))
            for name, column in rows.columns.items():
                if (value := column[at]) is not None:
                    series._put(name, index, value)
        for name in (*rows.columns, *rows.odd):  # a metric that was only NaN has a chart too
            series._columns.setdefault(name, array("d"))
        series.logged = max(rows.rows, len(series))
        series._odd.update(rows.odd)
        return series

    def take(self, row: MetricRow) -> None:
        """Add one row."""
        place = (row.attempt, row.step)
        self.taken += 1
        if row.resolution is not None:
            self.resolution = max(self.resolution or 0.0, row.resolution)
        values = {name: value for name, value in row.values.items() if value is not None}  # noqa: PD011  no DataFrame
        if not values:
            return
        self.logged += place not in self._rows and place > self._thinned_to
        index = self._rows.setdefault(place, len(self._rows))
        for name, value in values.items():
            self._put(name, index, value)
        if len(self) > self._most_rows or len(self) * len(self._columns) > self._most:
            self._thin()

    def copy(self) -> Series:
        """A copy of the rows."""
        made = Series(self._most, self._most_rows)
        made.logged, made.taken, made.resolution = self.logged, self.taken, self.resolution
        made._rows, made._odd, made._thinned_to = dict(self._rows), self._odd.copy(), self._thinned_to
        made._columns = {name: column[:] for name, column in self._columns.items()}
        return made

    def _put(self, name: str, index: int, value: float) -> None:
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) >= MOST_METRICS:
                return
            column = self._columns[name] = array("d")
        if len(column) <= index:
            column.extend([nan] * (index + 1 - len(column)))
        if isfinite(value):
            column[index] = value
        else:
            self._odd[name] += 1
            column[index] = inf if isnan(column[index]) else column[index]

    def _thin(self) -> None:
        places, columns = self._ordered(self._columns)
        kept = {*thinned_rows([*columns.values()], _along(places), len(places) * 2 // 3), *range(len(places))[-NEWEST:]}
        self._thinned_to = max([self._thinned_to, *(place for row, place in enumerate(places) if row not in kept)])
        self._rows = {places[row]: index for index, row in enumerate(sorted(kept))}
        self._columns = {name: array("d", map(column.__getitem__, sorted(kept))) for name, column in columns.items()}

    def _ordered(self, names: Iterable[str]) -> tuple[list[tuple[int, int]], dict[str, list[float]]]:
        """Attempt and step of each row, ascending, and the values of these metrics there."""
        places = sorted(self._rows)
        columns = {name: self._values(name) for name in names}
        return places, {name: [column[self._rows[place]] for place in places] for name, column in columns.items()}

    def _values(self, name: str) -> list[float]:
        values = self._columns.get(name, array("d")).tolist()
        return values + [nan] * (len(self) - len(values))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that were logged, sorted."""
        return sorted(self._columns)

    @property
    def places(self) -> tuple[list[int], list[int]]:
        """Attempt and step of each row, in order of arrival."""
        return [attempt for attempt, _ in self._rows], [step for _, step in self._rows]

    def column(self, name: str) -> list[float]:
        """The values of one metric, one for each row."""
        return [value if isfinite(value) else nan for value in self._values(name)]

    def recent(self, name: str, points: int) -> list[float]:
        """The newest values of one metric, oldest first, without missing ones."""
        return list(filter(isfinite, self._ordered([name])[1][name]))[-points:]

    def odd_rows(self, name: str) -> list[int]:
        """The indices of rows in which a metric was NaN or infinite."""
        return [row for row, value in enumerate(self._columns.get(name, ())) if value == inf]

    def odd_values(self, name: str) -> int:
        """How many values of a metric were NaN or infinite."""
        return self._odd[name]

    def pick(self, names: Iterable[str], points: int) -> ThinnedColumns:
        """About ``points`` rows that show these metrics with every spike; metrics never logged are left out."""
        places, columns = self._ordered(name for name in names if name in self._columns)
        begins = [row for row, place in enumerate(places) if not row or place[0] != places[row - 1][0]]
        kept = thinned_rows([*columns.values()], _along(places), points) if columns else range(0)
        chosen = sorted({*kept, *begins[-points:]})  # the beginning of an attempt shows what the restart discarded
        shown = {
            name: [column[row] if isfinite(column[row]) else None for row in chosen] for name, column in columns.items()
        }
        attempts, steps = [places[row][0] for row in chosen], [places[row][1] for row in chosen]
        return ThinnedColumns(attempts, steps, shown, {name: self._odd[name] for name in shown}, self.logged)


def _along(places: Sequence[tuple[int, int]]) -> list[int]:
    """The distance of each row from the first one, in steps; a restart is one step."""
    steps = (after[1] - before[1] if after[0] == before[0] else 1 for before, after in pairwise(places))
    return [*accumulate(steps, initial=0)]


def thinned_rows(columns: Sequence[Sequence[float]], along: Sequence[int], most: int) -> Sequence[int]:
    """Ascending indices of at most about ``most`` rows that keep every spike of the columns.

    The rows are cut into stretches of equal length ``along`` the run; the lowest and the highest value of every column
    in each stretch stay, as do the first and the last row. The other places, a quarter at least, go to rows that are
    evenly spaced. Values that are not finite are ignored. All columns have one length.
    """
    if len(along) <= most:
        return range(len(along))
    varying = sum(len({value for value in column if isfinite(value)}) > 1 for column in columns)
    even = most // 4
    stretches = max(1, (most - 2 - even) // (2 * varying + (varying < len(columns)) or 1))
    kept = _extremes(columns, along, stretches)
    while len(kept) > most - even and stretches > 1:  # metrics with one value each, at different rows
        stretches //= 2
        kept = _extremes(columns, along, stretches)
    even = max(even, most - len(kept))
    for at in (along[-1] * number / even for number in range(even)):
        behind = bisect_left(along, at)
        kept.add(min(behind, max(behind - 1, 0), key=lambda row: abs(along[row] - at)))
    return sorted(kept)


def _extremes(columns: Sequence[Sequence[float]], along: Sequence[int], stretches: int) -> set[int]:
    """Where each column is lowest and highest in each stretch; also the first and the last row."""
    width = -(-(along[-1] + 1) // stretches)
    bounds = [bisect_left(along, width * number) for number in range(stretches + 1)]
    kept = {0, len(along) - 1}
    for column in columns:
        for begin, end in pairwise(bounds):
            known = [(value, row) for row, value in enumerate(column[begin:end], begin) if isfinite(value)]
            kept |= {extreme(known, key=itemgetter(0))[1] for extreme in (min, max) if known}
    return kept


MOST_COMPLETIONS = 1_000_000
"""Most completions kept of one run, each as a few numbers; a run of a week dumps fewer."""
PLOTTED = ("reward_mean", "reward_group_std", "kl_reference", "grad_norm", "entropy", "completion_length_mean")
WIDTH, ROW_HEIGHT = 9.0, 1.6
COLOURS = {"critical": "#b00020", "warning": "#b26a00", "info": "#1565c0"}


class RecordedRun:
    """The data of a run for Python callers, besides its snapshot: rows, and the numbers of dumped completions."""

    def __init__(self) -> None:
        self.series = Series()
        self.batches: list[CompletionSummary] = []
        self._completions = 0

    def observe(self, record: Record) -> None:
        """Record an item; passed to a pipeline as ``observe``."""
        if isinstance(record, MetricRow):
            self.series.take(record)
        elif isinstance(record, CompletionSummary) and self._completions < MOST_COMPLETIONS:
            self._completions += sum(group.size for group in record.groups)
            self.batches.append(record)


def metrics_frame(series: Series | None) -> pd.DataFrame:
    """One row for each logged step of an attempt, one column for each canonical metric; NaN for missing values.

    Raises:
        UsageError: pandas is not installed, or the report was made without its rows.
    """
    pandas = _imported("pandas", "pandas")
    attempts, steps = _kept(series).places
    index = pandas.MultiIndex.from_arrays([attempts, steps], names=["attempt", "step"])
    columns = {name: _kept(series).column(name) for name in _kept(series).metrics}
    return pandas.DataFrame(columns, index=index, dtype="float64")


def completions_frame(batches: Sequence[CompletionSummary]) -> pd.DataFrame:
    """One row for each dumped completion, without its text: rows of a group with one ``text`` are the same text.

    Raises:
        UsageError: pandas is not installed.
    """
    rows = []
    for batch in batches:
        for number, group in enumerate(batch.groups):
            for place in range(group.size):
                row: dict[str, object] = {
                    "step": batch.step,
                    "stream": batch.stream.value,
                    "group": number,
                    "place": place,
                }
                row["text"] = group.pattern[place] if place < len(group.pattern) else None
                row["characters"] = group.lengths[place] if place < len(group.lengths) else None
                rewards = {name: values[place] for name, values in group.rewards.items() if place < len(values)}
                rows.append({**row, **{f"reward[{name}]": value for name, value in rewards.items()}})
    columns = ["step", "stream", "group", "place", "text", "characters"]
    return _imported("pandas", "pandas").DataFrame(rows, columns=None if rows else columns)


def plot(snapshot: RunSnapshot, series: Series | None, metrics: Sequence[str] = ()) -> Figure:
    """Plot the metrics over the steps, one below the other, with a line where each finding begins.

    Raises:
        UsageError: matplotlib is not installed, the report was made without its rows, or a metric was not logged.
    """
    pyplot = _imported("matplotlib.pyplot", "plot")
    kept = _kept(series)
    names = list(metrics) or [name for name in PLOTTED if name in kept.metrics] or kept.metrics[: len(PLOTTED)]
    if unknown := [name for name in names if name not in kept.metrics]:
        raise UsageError(f"{', '.join(unknown)}: not logged; logged are {', '.join(kept.metrics)}")
    figure, axes = pyplot.subplots(
        max(1, len(names)),
        1,
        sharex=True,
        squeeze=False,
        layout="constrained",
        figsize=(WIDTH, ROW_HEIGHT * (len(names) + 1)),
    )
    steps = kept.places[1]
    for name, axis in zip(names, axes[:, 0], strict=False):
        axis.plot(steps, kept.column(name), linewidth=1)
        axis.set_title(label_of(name), loc="left", fontsize="medium")
        for shown in views(snapshot):
            finding = shown.finding
            if finding.caused_by is None:
                axis.axvline(finding.first_step, color=COLOURS[finding.severity.value], linestyle="--", linewidth=1)
    axes[-1, 0].set_xlabel("optimizer step")
    figure.suptitle(f"{visible(snapshot.run)}: {headline(snapshot)}".replace("$", r"\$"))
    return figure  # type: ignore[no-any-return,unused-ignore]  # matplotlib is imported when it is asked for


def as_html(snapshot: RunSnapshot) -> str:
    """A report as shown in a notebook: verdict, coverage and findings; all text of the run is escaped."""

    def text(words: str) -> str:
        return escape(visible(words))

    head = (
        f"<b>{text(headline(snapshot))}</b> {text(snapshot.run)}, step {snapshot.step}: {text(coverage_line(snapshot))}"
    )
    rows = []
    for shown in views(snapshot):
        finding = shown.finding
        cells = (finding.rule, shown.since, finding.summary, " · ".join(shown.words), finding.hint)
        severity = f'<td style="color:{COLOURS[finding.severity.value]}">{finding.severity.value}</td>'
        rows.append(f"<tr>{severity}{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>")
    titles = "".join(f"<th>{title}</th>" for title in ("severity", "rule", "since", "finding", "evidence", "fix"))
    return f"<p>{head}</p>" + (f"<table><tr>{titles}</tr>{''.join(rows)}</table>" if rows else "")


def _kept(series: Series | None) -> Series:
    if series is None:
        raise UsageError("this report was made without its rows: use grpo_watch.check(path)")
    return series


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(f"needs {module.partition('.')[0]}: {install(extra)}") from None
