"""Turns the rows of a run into the data of the charts in the report and on the status page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.metric_names import METRICS, split_label
from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.report.series import Series, ThinnedColumns, thinned_rows
from grpo_watch.report.view import top_view

POINTS = 700
"""Most steps of one chart; a line is a few hundred pixels wide."""
FUNCTIONS = 6
"""Most reward functions drawn next to the total."""
DIGITS = 5
"""Significant digits of a drawn number."""
SPARSE = 0.5
"""A line with values in fewer of its rows than this share is drawn with points, joined over the gaps."""


KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Reward": ("reward_mean", "reward_function_mean"),
        "Held-out score": ("eval_score",),
        "Reward spread inside the groups": ("reward_group_std",),
        "Reward spread over the whole batch": ("reward_batch_std", "reward_function_std"),
        "Groups without any reward spread (share)": ("reward_zero_std_ratio",),
        "Greatest and least advantage": ("advantage_max", "advantage_min"),
        "KL to the reference": ("kl_reference",),
        "KL to the policy that generated": ("kl_policy_update",),
        "Clipped tokens (share)": ("policy_clip_ratio", "policy_clip_low_ratio", "policy_clip_high_ratio"),
        "Entropy": ("entropy",),
        "Completion length (tokens)": ("completion_length_mean", "completion_length_min", "completion_length_max"),
        "Completions cut off or repeated (share)": ("completion_truncated_ratio", "completion_duplicate_ratio"),
        "Loss": ("loss",),
        "Prompts cut off (share)": ("prompt_truncated_ratio",),
        "Gradient norm": ("grad_norm",),
        "Learning rate": ("learning_rate",),
        "Tensors that changed since the checkpoint before (share)": ("parameters_changed_ratio",),
        "Trainer against rollout engine: gap": ("logprob_gap_rollout", "probability_gap_rollout"),
        "Trainer against rollout engine: divergence": ("kl_rollout", "chi2_rollout"),
        "Trainer against rollout engine: weights and errors (1: none)": (
            "importance_ratio_rollout",
            "effective_sample_rollout",
            "probability_error_rollout",
        ),
        "Tool calls that failed (share)": ("tool_failure_ratio",),
        "Tool calls that failed": ("tool_errors",),
        "Turns and tool calls of a completion": ("turns_mean", "tool_calls_mean"),
        "Reward computations that failed": ("reward_failures",),
        "Age of the samples (policy updates)": ("sample_staleness_steps",),
        "Seconds per step": ("step_seconds",),
        "Accelerator memory (GiB)": ("memory_gib",),
    }
)
"""Title and metrics of each chart, which shows those that were logged: the inputs of the rules.

The two spreads and the three KLs have different meanings and a chart each.
"""


DRAWN_AS: Mapping[str, str] = MappingProxyType(
    {
        "checkpoints": "parameters_changed_ratio",
        "probe": "parameters_changed_ratio",
        "completions": "completion_duplicate_ratio",
    }
)
"""The metric drawn for evidence that is not a metric itself."""
EVIDENCE_AS: Mapping[str, str] = MappingProxyType({"groups_alike_ratio": "completion_duplicate_ratio"})
"""The metric drawn for a value of the evidence; such a metric ranks above those that only accompany it."""
TOTAL: Mapping[str, str] = MappingProxyType(
    {"reward_function_mean": "reward_mean", "reward_function_std": "reward_batch_std"}
)
"""The metric drawn for a reward function that equals the total and has no line of its own."""


def charts(rows: Series, points: int = POINTS) -> list[dict[str, Any]]:
    """The charts of a run that have data, as JSON values.

    Each has ``title``, ``x`` (ascending: the drawn optimizer steps), ``rows`` (how many there are to draw), ``lines``
    (``name``, ``y`` with None for a missing value, ``sparse``), and ``odd``, the number of values that are no numbers.
    """
    found = []
    for title, metrics in KINDS.items():
        names = _logged(rows, metrics)
        if names:
            found.append(_chart(rows, title, names, points))
    return found


def further_charts(rows: Series) -> list[dict[str, Any]]:
    """A chart for each logged metric that no other chart shows, in the form of ``charts``."""
    shown = {metric for metrics in KINDS.values() for metric in metrics}
    names = [name for name in rows.metrics if split_label(name)[0] not in shown]
    names += [name for metrics in KINDS.values() for metric in metrics for name in _labelled(rows, metric)[FUNCTIONS:]]
    return [_chart(rows, name, [name]) for name in names]


def bands(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The step ranges of alerts worth a look, unexplained ones last, so that they are drawn on top."""
    return [
        {
            "rule": finding.rule,
            "severity": finding.severity.value,
            "first": finding.first_step,
            "fired": finding.fired_step,
            "resolved": finding.resolved_step,
            "explained": finding.caused_by is not None,
        }
        for finding in sorted(findings, key=lambda each: each.caused_by is None)
        if finding.severity is not Severity.INFO
    ]


def superseded(attempts: Sequence[int], steps: Sequence[int]) -> list[bool]:
    """Whether a later attempt restarted at or before each row's step, so that its result was discarded."""
    begins: dict[int, int] = {}
    for attempt, step in zip(attempts, steps, strict=True):
        begins[attempt] = min(step, begins.get(attempt, step))
    lost_from: dict[int, float] = {}
    earliest = inf
    for attempt in sorted(begins, reverse=True):
        lost_from[attempt] = earliest
        earliest = min(earliest, begins[attempt])
    return [step >= lost_from[attempt] for attempt, step in zip(attempts, steps, strict=True)]


def _logged(rows: Series, metrics: Sequence[str]) -> list[str]:
    """The chart's metrics that the run logged, each with its labelled ones."""
    found: list[str] = []
    for metric in metrics:
        matching = _labelled(rows, metric)
        alone = len(matching) == 1 and matching[0] != metric and found  # one reward function equals the total
        found += [] if alone else matching[:FUNCTIONS]
    return found


def _labelled(rows: Series, metric: str) -> list[str]:
    return [name for name in rows.metrics if split_label(name)[0] == metric]


def _chart(rows: Series, title: str, names: Sequence[str], points: int = POINTS) -> dict[str, Any]:
    picked = rows.pick(names, points)
    places, columns = tabulate(picked)
    odd = sum(rows.odd_values(name) for name in names)
    lines = [_line(name, column) for name, column in columns.items()]
    stands_for = picked.rows if picked.rows > len(picked.steps) else len(places)  # repeated steps alone are no thinning
    return {"title": title, "x": places, "rows": stands_for, "lines": lines, "odd": odd}


def tabulate(picked: ThinnedColumns) -> tuple[list[int], dict[str, list[float | None]]]:
    """The ascending steps, and the metrics by step, without rows discarded by a restart."""
    lost = superseded(picked.attempts, picked.steps)
    places, table = sorted(set(picked.steps)), dict[str, list[float | None]]()
    at = {step: place for place, step in enumerate(places)}
    order = [row for row in sorted(range(len(lost)), key=picked.attempts.__getitem__) if not lost[row]]
    for name, values in picked.columns.items():
        table[name] = [None] * len(places)
        for row in order:
            if values[row] is not None:
                table[name][at[picked.steps[row]]] = values[row]
    return places, table


def _line(name: str, column: Sequence[float | None]) -> dict[str, Any]:
    values = [None if value is None else float(f"{value:.{DIGITS}g}") for value in column]
    given = sum(value is not None for value in values)
    return {"name": name, "y": values, "sparse": given < SPARSE * len(values)}


def finding_charts(drawn: Sequence[dict[str, Any]], snapshot: RunSnapshot) -> list[dict[str, Any]]:
    """The charts, the ``lead`` first; ``rules`` are those whose evidence a chart shows."""
    metrics = {finding.rule: _metrics_of(finding) for finding in snapshot.findings}
    first = top_view(snapshot)
    of_chart = [[split_label(line["name"])[0] for line in chart["lines"]] for chart in drawn]
    wanted = metrics[first.finding.rule] if first else []
    lead = next((at for metric in wanted for at, names in enumerate(of_chart) if metric in names), None)
    marked = [
        {
            **chart,
            # charts that prove the top finding first: their values stand under its title
            "lines": sorted(chart["lines"], key=lambda line: split_label(line["name"])[0] not in wanted),
            "lead": at == lead,
            "rules": [rule for rule, each in metrics.items() if set(each) & set(names)],
        }
        for at, (chart, names) in enumerate(zip(drawn, of_chart, strict=True))
    ]
    return sorted(marked, key=lambda chart: not chart["lead"])


def _metrics_of(finding: Finding) -> list[str]:
    """The metrics of a finding, most telling first: those of its evidence, else those its rule reads."""
    detector = catalogue().get(finding.rule)
    named = [name for name, value in finding.evidence.items() if name in METRICS and value is not None]
    named = [EVIDENCE_AS[name] for name in finding.evidence if name in EVIDENCE_AS] + named
    found = named or [DRAWN_AS.get(need, need) for way in (detector.needs if detector else ()) for need in way]
    return [*found, *(TOTAL[name] for name in found if name in TOTAL)]


SPARK_POINTS = 40
LEVELS = 63
"""Most points of a sparkline, and its greatest coordinate, across and up."""
MOST = 1e300
"""Above this, the difference of two numbers may overflow."""
SHOWN = (
    ("reward", ("reward_mean",)),
    ("kl", ("kl_reference",)),
    ("spread", ("reward_group_std", "reward_batch_std")),
    ("unique", ("completion_duplicate_ratio",)),
    ("entropy", ("entropy",)),
    ("truncated", ("completion_truncated_ratio",)),
)
"""The sparklines, and the metric each is drawn from: the first that was logged."""
DRAWN = tuple(metric for _, metrics in SHOWN for metric in metrics)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """``x`` and ``y`` from 0 to ``LEVELS``, over the run's steps and ``low`` to ``high``; ``last``: the newest."""

    metric: str
    x: Sequence[int]
    y: Sequence[int]
    low: float
    high: float
    last: float


def sparks(series: Series) -> dict[str, Sparkline]:
    """The sparkline of each of ``SHOWN`` that was logged; ``unique`` is 1 minus the share of repeats."""
    found, rows = {}, series.pick(DRAWN, len(series))
    lost = superseded(rows.attempts, rows.steps)
    for name, metrics in SHOWN:
        metric = next((metric for metric in metrics if metric in rows.columns), None)
        if metric is not None:
            given = [
                (step, max(-MOST, min(1.0 - value if name == "unique" else value, MOST)))
                for step, value, thrown in zip(rows.steps, rows.columns[metric], lost, strict=True)
                if value is not None and not thrown
            ]
            if given:
                found[name] = _spark(metric, given, min(rows.steps), max(rows.steps))
    return found


def _spark(metric: str, given: Sequence[tuple[int, float]], begin: int, end: int) -> Sparkline:
    values = [value for _, value in given]
    low, high = min(values), max(values)
    shown = [given[at] for at in thinned_rows([values], [step - begin for step, _ in given], SPARK_POINTS)]
    flat = LEVELS // 2 if low else 0
    across, up = LEVELS / max(1, end - begin), LEVELS / (high - low) if high > low else 0.0
    return Sparkline(
        metric,
        [round((step - begin) * across) for step, _ in shown],
        [round((value - low) * up) if up else flat for _, value in shown],
        low,
        high,
        values[-1],
    )
