"""Says a finding in JSON, the same in every document: ``check``, ``diff``, ``rules backtest`` and the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_watch.engine.diagnosis import Finding, first_sign
from grpo_watch.engine.records import Scalar
from grpo_watch.engine.waste import wasted
from grpo_watch.safe_text import strict


def episode(finding: Finding) -> dict[str, Any]:
    """Which alert it is, how bad, and from when to when (optimizer steps)."""
    return {
        "rule": finding.rule,
        "key": finding.key or None,
        "severity": finding.severity.value,
        "first_step": finding.first_step,
        "fired_step": finding.fired_step,
        "resolved_step": finding.resolved_step,
        "attempt": finding.attempt,
    }


def evidence(finding: Finding) -> dict[str, Scalar]:
    """The values that it rests on, as strict JSON."""
    return {name: strict(value) for name, value in finding.evidence.items()}


def in_full(finding: Finding, findings: Sequence[Finding]) -> dict[str, Any]:
    """All of one of the findings of a run; ``first_sign`` is the step where it or what it explains began."""
    sign = first_sign(finding, findings)
    return {
        **episode(finding),
        "evidence": evidence(finding),
        "summary": finding.summary,
        "hint": finding.hint,
        "caused_by": finding.caused_by,
        "wasted": wasted(finding),
        "causes": list(finding.causes),
        "first_sign": sign.first_step,
        "first_sign_rule": sign.rule,
        "told_severity": finding.told_severity.value,
        "episodes": [
            {"first_step": first, "fired_step": fired, "resolved_step": resolved}
            for first, fired, resolved in finding.episodes
            or ((finding.first_step, finding.fired_step, finding.resolved_step),)
        ],
    }
