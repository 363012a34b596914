"""A report's rows and completions as pandas DataFrames, its plot, and how a notebook shows it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.records import CompletionSummary, Record
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import UsageError
from grpo_watch.extras import install
from grpo_watch.report.blindness import coverage_line, headline
from grpo_watch.report.series import Series
from grpo_watch.report.view import views
from grpo_watch.report.words import evidence_words, label_of
from grpo_watch.safe_text import visible

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

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
    pandas = _imported("pandas")
    attempts, steps = _kept(series).places
    index = pandas.MultiIndex.from_arrays([attempts, steps], names=["attempt", "step"])
    return pandas.DataFrame({name: _kept(series).column(name) for name in _kept(series).metrics}, index=index)


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
    return _imported("pandas").DataFrame(rows, columns=None if rows else columns)


def plot(snapshot: RunSnapshot, series: Series | None, metrics: Sequence[str] = ()) -> Figure:
    """The metrics over the steps, one below the other, with a line where each finding begins.

    Raises:
        UsageError: matplotlib is not installed, the report was made without its rows, or a metric was not logged.
    """
    pyplot = _imported("matplotlib.pyplot")
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
        colour, evidence = (
            COLOURS[finding.severity.value],
            " · ".join(evidence_words(finding.evidence, finding.summary)),
        )
        cells = (finding.rule, shown.since, finding.summary, evidence, finding.hint)
        severity = f'<td style="color:{colour}">{finding.severity.value}</td>'
        rows.append(f"<tr>{severity}{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>")
    titles = "".join(f"<th>{title}</th>" for title in ("severity", "rule", "since", "finding", "evidence", "fix"))
    return f"<p>{head}</p>" + (f"<table><tr>{titles}</tr>{''.join(rows)}</table>" if rows else "")


def _kept(series: Series | None) -> Series:
    if series is None:
        raise UsageError("this report was made without its rows: use grpo_watch.check(path)")
    return series


def _imported(module: str) -> Any:
    """A package that is only needed here."""
    try:
        if module == "pandas":
            import pandas  # noqa: ICN001, PLC0415

            return pandas
        import matplotlib.pyplot  # noqa: ICN001, PLC0415
    except ImportError:
        extra = module.partition(".")[0]
        raise UsageError(f"needs {extra}: {install('pandas' if extra == 'pandas' else 'plot')}") from None
    return matplotlib.pyplot
