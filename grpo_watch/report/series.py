"""Keeps the rows of a replayed run as columns over its steps, for charts and comparisons."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from importlib import import_module
from math import isfinite, isnan, nan
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.records import CompletionSummary, MetricRow, Record
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import UsageError
from grpo_watch.extras import install
from grpo_watch.report.blindness import coverage_line, headline
from grpo_watch.report.charts import ThinnedColumns
from grpo_watch.report.view import views
from grpo_watch.report.words import label_of
from grpo_watch.safe_text import visible

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_ROWS = 1_000_000
"""Rows kept of one run; a run takes years to log more, and a broken log must not fill the memory."""
MOST_METRICS = 128
"""Metrics kept of one run: the canonical ones, and room for some eighty reward functions."""


class Series:
    """The rows of one run, a step of an attempt each; metrics that arrive later for a step join its row.

    ``left_out`` counts rows beyond ``MOST_ROWS``. A value that was not logged is NaN in a column; one that was logged
    as NaN or infinite is NaN too, and its row's index is listed in ``odd`` under the metric.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self.odd: dict[str, list[int]] = defaultdict(list)
        self.resolution: float | None = None
        self._rows: dict[tuple[int, int], int] = {}
        self._places = array("q")
        self._columns: dict[str, array[float]] = {}

    def observe(self, record: Record) -> None:
        """Keep a row of training or the scores of an evaluation; for a pipeline's ``observe``."""
        if isinstance(record, MetricRow):
            self.take(record)

    def take(self, row: MetricRow) -> None:
        """Account for one row."""
        place = (row.attempt, row.step)
        index = self._rows.get(place)
        if index is None:
            if len(self._rows) >= MOST_ROWS:
                self.left_out += 1
                return
            index = self._rows[place] = len(self._rows)
            self._places.extend(place)
        if row.resolution is not None:
            self.resolution = max(self.resolution or 0.0, row.resolution)
        for name, value in row.values.items():  # noqa: PD011  no DataFrame
            if value is not None:
                self._put(name, index, value)

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
            self.odd[name].append(index)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that were logged, sorted."""
        return sorted(self._columns)

    @property
    def places(self) -> tuple[list[int], list[int]]:
        """Attempt and step of each row, in the order in which they came."""
        return self._places[::2].tolist(), self._places[1::2].tolist()

    def column(self, name: str) -> list[float]:
        """The values of one metric, one for each row."""
        values = self._columns.get(name, array("d")).tolist()
        return values + [nan] * (len(self) - len(values))

    def odd_values(self, name: str) -> int:
        """How many values of a metric were logged as NaN or infinite."""
        return len(self.odd.get(name, ()))

    def pick(self, names: Sequence[str], points: int) -> ThinnedColumns:
        """About ``points`` rows that show the course of these metrics with every spike."""
        attempts, steps = self.places
        columns = [self.column(name) for name in names]
        begins = sorted(dict(zip(reversed(attempts), reversed(range(len(self))), strict=True)).values())
        kept = thinned_rows(columns, points) if columns else range(0)
        chosen = sorted({*kept, *begins[-points:]})  # where an attempt begins shows what the restart discarded
        shown: dict[str, list[float | None]] = {
            name: [None if isnan(column[row]) else column[row] for row in chosen]
            for name, column in zip(names, columns, strict=True)
        }
        places = ([attempts[row] for row in chosen], [steps[row] for row in chosen])
        return ThinnedColumns(*places, shown, rows=len(set(steps)))


def thinned_rows(columns: Sequence[Sequence[float]], most: int) -> Sequence[int]:
    """Indices, ascending, of at most about ``most`` rows that keep every spike of the columns.

    The rows are cut into equal stretches, and of each the lowest and the highest value of every column stay, also the
    first and the last row of all. NaN means no value. All columns have one length.
    """
    length = len(columns[0])
    if length <= most:
        return range(length)
    stretches = max(1, (most - 2) // (2 * len(columns)))
    width = -(-length // stretches)
    kept = {0, length - 1}
    for column in columns:
        for begin in range(0, length, width):
            stretch = enumerate(column[begin : begin + width], begin)
            known = [(value, row) for row, value in stretch if not isnan(value)]
            kept |= {extreme(known, key=itemgetter(0))[1] for extreme in (min, max) if known}
    return sorted(kept)


MOST_COMPLETIONS = 1_000_000
"""Completions kept of one run, each as a few numbers; a run of a week dumps fewer."""
PLOTTED = ("reward_mean", "reward_group_std", "kl_reference", "grad_norm", "entropy", "completion_length_mean")
WIDTH, ROW_HEIGHT = 9.0, 1.6
COLOURS = {"critical": "#b00020", "warning": "#b26a00", "info": "#1565c0"}


class RecordedRun:
    """What an answer in Python holds of a run beside its snapshot: rows, and the numbers of dumped completions."""

    def __init__(self) -> None:
        self.series = Series()
        self.batches: list[CompletionSummary] = []
        self._completions = 0

    def observe(self, record: Record) -> None:
        """For a pipeline's ``observe``."""
        self.series.observe(record)
        if isinstance(record, CompletionSummary) and self._completions < MOST_COMPLETIONS:
            self._completions += sum(group.size for group in record.groups)
            self.batches.append(record)


def metrics_frame(series: Series | None) -> pd.DataFrame:
    """One row for each logged step of an attempt, one column for each canonical metric; NaN where nothing was logged.

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
    """The metrics over the steps, one below the other, with a line where each finding begins.

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
    """What a notebook shows of a report: verdict, coverage and findings; all text of the run is escaped."""

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
    """A package that is only needed here."""
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(f"needs {module.partition('.')[0]}: {install(extra)}") from None
