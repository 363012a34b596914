"""Renders the comparison of two runs as text: where they part first, then by what, then what else differs."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_watch.engine.records import Setting
from grpo_watch.report.compare import Comparison, parted_first, status
from grpo_watch.report.text import STYLES
from grpo_watch.report.view import facts, when
from grpo_watch.report.words import shown
from grpo_watch.safe_text import visible

STYLE = {"parted": "bold red", "same": "bold green"}
RULE = (
    "Parted: over ten consecutive common rows, the median difference exceeds three times its noise (the standard "
    "deviation of its earlier changes from row to row). Pace, memory and tokens seen do not count."
)


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison."""
    for line, indent in _lines(comparison):
        console.print(Padding(line, (0, 0, 0, indent), expand=False))


def _lines(comparison: Comparison) -> Iterator[tuple[RenderableType, int]]:
    yield _headline(comparison), 0
    for name, report in (("a", comparison.a), ("b", comparison.b)):
        shot = report.snapshot
        line = Text(f"{name}  ").append(visible(shot.run), style="bold").append("  ")
        line.append(shot.verdict.value.replace("-", " "), style=STYLES.get(shot.verdict.value, ""))
        yield line.append("  " + " · ".join(facts(shot)), style="dim"), 2
    yield Text(_common(comparison), style="dim"), 2
    if parted_first(comparison):
        yield _metrics(comparison), 1
    yield from ((line, 2) for line in _others(comparison))
    if comparison.settings:
        yield Text("settings that differ"), 2
        yield _settings(comparison), 1
    yield from _findings(comparison)
    yield Text(RULE, style="dim"), 0


def _headline(comparison: Comparison) -> Text:
    words = {
        "parted": f"PARTED at step {comparison.step}",
        "same": "SAME within noise",
        "not-evaluable": "NOT EVALUABLE: too few common rows",
    }
    step = comparison.step
    line = Text(words[comparison.verdict], style=STYLE.get(comparison.verdict, "bold"))
    first = [
        each.name for each in parted_first(comparison) if each.counted and each.parting and each.parting.step == step
    ]
    rules = [lone.finding.rule for lone in comparison.findings if lone.counted and lone.finding.first_step == step]
    return line.append(f"  {', '.join([*map(visible, first), *rules])}" if comparison.verdict == "parted" else "")


def _common(comparison: Comparison) -> str:
    if not comparison.steps:
        return "no common step"
    return f"{len(comparison.steps)} common steps, {comparison.steps[0]} to {comparison.steps[-1]}"


def _metrics(comparison: Comparison) -> Table:
    made = _table("metric", "parted at", "a", "b", "noise", "first different")
    for metric in parted_first(comparison):
        found = metric.parting
        if found is not None:
            name = visible(metric.name) + ("" if metric.counted else " (not counted)")
            numbers = [_number(found.a), _number(found.b), _number(found.noise)]
            made.add_row(Text(name), f"step {found.step}", *numbers, f"step {found.differs}")
    return made


def _others(comparison: Comparison) -> Iterator[Text]:
    """Metrics that don't diverge, grouped by reason."""
    titles = {
        "differs": "differ within noise",
        "same": "the same",
        "only-a": "only in a",
        "only-b": "only in b",
        "too-few": "too few common rows",
    }
    for kind, words in titles.items():
        names = [visible(metric.name) for metric in comparison.metrics if status(metric) == kind]
        if names:
            yield Text(f"{words}: {', '.join(names)}", style="dim")


def _settings(comparison: Comparison) -> Table:
    made = _table("setting", "a", "read from", "b", "read from")
    for name, (a, b) in comparison.settings.items():
        made.add_row(*map(Text, (name, *_setting(a), *_setting(b))))
    return made


def _setting(setting: Setting | None) -> tuple[str, str]:
    return ("unknown", "") if setting is None else (shown(setting.value), visible(setting.origin))


def _findings(comparison: Comparison) -> Iterator[tuple[Text, int]]:
    for lone in comparison.findings:
        finding = lone.finding
        line = Text(f"only {lone.of}: ").append(finding.severity.value, style=STYLES[finding.severity.value])
        line.append(f"  {finding.rule}", style="bold").append(f"  {when(finding)}", style="dim")
        line.append("" if lone.counted else " (after the last common step)", style="dim")
        yield line, 2
        yield Text(visible(finding.summary)), 4


def _table(*names: str) -> Table:
    made = Table(*names, box=box.SIMPLE, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in made.columns:
        column.overflow = "fold"
    return made


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "not a number" if value != value else f"{value:.5g}"  # noqa: PLR0124 - NaN
