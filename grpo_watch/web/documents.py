"""Turns runs and findings into the JSON documents of the API."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from grpo_watch.core.snapshot import RunSnapshot
from grpo_watch.core.waste import wasted
from grpo_watch.sinks.base import RunPicture
from grpo_watch.sinks.text import plain


def run_document(run: RunPicture) -> dict[str, Any]:
    """One run as ``/api/v1/runs`` lists it."""
    snapshot = run.snapshot
    return {
        "run": snapshot.run,
        "slug": run.slug,
        "framework": snapshot.framework,
        "framework_version": snapshot.version,
        "attempt": snapshot.attempt,
        "step": snapshot.step,
        "max_steps": snapshot.max_steps,
        "last_step_time": snapshot.last_step_time,
        "active": run.active,
        "ended": run.ended,
        "verdict": snapshot.verdict.value,
        "labels": dict(run.labels),
        "rules": [
            {"rule": rule.rule, "severity": rule.severity.value, "status": rule.status.value, "reason": rule.reason}
            for rule in snapshot.rules
        ],
    }


def alert_documents(snapshot: RunSnapshot) -> list[dict[str, Any]]:
    """The findings of one run as ``/api/v1/alerts`` lists them."""
    return [
        {
            "run": snapshot.run,
            "rule": finding.rule,
            "key": finding.key,
            "status": "firing" if finding.resolved_step is None else "resolved",
            "severity": finding.severity.value,
            "attempt": finding.attempt,
            "first_step": finding.first_step,
            "fired_step": finding.fired_step,
            "resolved_step": finding.resolved_step,
            "evidence": dict(finding.evidence),
            "summary": finding.summary,
            "hint": finding.hint,
            "caused_by": finding.caused_by,
            "wasted": wasted(finding),
            "causes": list(finding.causes),
        }
        for finding in snapshot.findings
    ]


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer; NaN and infinities are the strings that JavaScript's ``Number()`` understands."""
    return Response(json.dumps(plain(value), ensure_ascii=True), status, media_type="application/json")
