"""Marks which charts show evidence of which finding, and puts the one that proves the top finding first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.metric_names import METRICS, split_label
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.report.shown_findings import top_finding

DRAWN_AS: Mapping[str, str] = MappingProxyType(
    {
        "checkpoints": "parameters_changed_ratio",
        "probe": "parameters_changed_ratio",
        "completions": "completion_duplicate_ratio",
    }
)
"""The metric that draws a kind of evidence which is no metric."""
EVIDENCE_AS: Mapping[str, str] = MappingProxyType({"groups_alike_ratio": "completion_duplicate_ratio"})
"""The metric that draws a value of the evidence; it proves more than metrics that only accompany it."""
TOTAL: Mapping[str, str] = MappingProxyType(
    {"reward_function_mean": "reward_mean", "reward_function_std": "reward_batch_std"}
)
"""What shows a reward function that is the total itself, and has no line of its own."""


def finding_charts(
    drawn: Sequence[dict[str, Any]], snapshot: RunSnapshot, needs: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The charts, the ``lead`` first; ``rules`` are those that a chart shows evidence of.

    ``needs`` is what each rule's detector reads.
    """
    metrics = {finding.rule: _metrics_of(finding, needs) for finding in snapshot.findings}
    top = top_finding(snapshot)
    of_chart = [[split_label(line["name"])[0] for line in chart["lines"]] for chart in drawn]
    wanted = metrics[top.finding.rule] if top else []
    lead = next((at for metric in wanted for at, names in enumerate(of_chart) if metric in names), None)
    marked = [
        {
            **chart,
            "lines": _guilty_first(chart["lines"], wanted),
            "lead": at == lead,
            "rules": [rule for rule, each in metrics.items() if set(each) & set(names)],
        }
        for at, (chart, names) in enumerate(zip(drawn, of_chart, strict=True))
    ]
    return sorted(marked, key=lambda chart: not chart["lead"])


def _guilty_first(lines: list[dict[str, Any]], wanted: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of a chart, those that prove the top finding first: their values stand under its title."""
    return sorted(lines, key=lambda line: split_label(line["name"])[0] not in wanted)


def _metrics_of(finding: Finding, needs: Mapping[str, Sequence[str]]) -> list[str]:
    """The metrics that a finding is about, the most telling first: those of its evidence, else what its rule reads."""
    named = [name for name, value in finding.evidence.items() if name in METRICS and value is not None]
    named = [EVIDENCE_AS[name] for name in finding.evidence if name in EVIDENCE_AS] + named
    found = named or [DRAWN_AS.get(need, need) for need in needs.get(finding.rule, ())]
    return [*found, *(TOTAL[name] for name in found if name in TOTAL)]
