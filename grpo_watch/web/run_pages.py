"""The answers about one run, which the path names by its slug, or as metrics do by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from grpo_watch import __version__
from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.metrics.exposition import label_value
from grpo_watch.rules.rule_changes import RuleSet
from grpo_watch.web.documents import answer, detail_document, rule_document
from grpo_watch.web.run_detail_pages import batches_document, charts_document, weights_document
from grpo_watch.web.runbooks import effective


class RunDetailView(Protocol):
    """The part of ``app.DaemonView`` that these pages need."""

    def snapshot(self) -> DaemonSnapshot:
        """The newest snapshot."""

    def detail(self, run: str) -> RunDetail:
        """What the page of a run shows beyond the snapshot."""

    def rules(self) -> RuleSet:
        """The rules in force."""


class RunPages:
    """The endpoints.

    Args:
        watch: the daemon.
        clock: Unix seconds.
    """

    def __init__(self, watch: RunDetailView, clock: Callable[[], float]) -> None:
        self._watch, self._clock = watch, clock

    async def detail(self, request: Request) -> Response:
        """Verdict, findings, sources, settings, and the rules as they are for the run."""

        def document(run: RunOverview) -> dict[str, Any]:
            return {**detail_document(run), "rules": self._rules(run), **self._now()}

        return self._about(request, document)

    async def series(self, request: Request) -> Response:
        """Thinned history: ``step`` and each metric, lists of one length, None where there is no value."""

        def document(run: RunOverview) -> dict[str, Any]:
            return {"run": run.snapshot.run, "series": self._run_detail(run).thinned.series()}

        return self._about(request, document)

    async def charts(self, request: Request) -> Response:
        """What its charts draw; ``?axis=time`` over time."""
        by_time = request.query_params.get("axis") == "time"

        def document(run: RunOverview) -> dict[str, Any]:
            shown = self._run_detail(run)
            return charts_document(run.snapshot, shown.thinned, by_time=by_time, needs=self._needs(), keys=shown.keys)

        return self._about(request, document)

    async def batches(self, request: Request) -> Response:
        """Which completions of its newest batches are equal."""
        return self._about(request, lambda run: batches_document(self._run_detail(run)))

    async def weights(self, request: Request) -> Response:
        """Which tensors changed between its newest checkpoints."""
        return self._about(request, lambda run: weights_document(self._run_detail(run)))

    def _about(self, request: Request, document_of: Callable[[RunOverview], dict[str, Any]]) -> Response:
        slug = request.path_params["slug"]
        shown = self._watch.snapshot().shown
        run = next((run for run in shown if run.slug == slug), None)
        named = (
            run for run in shown if slug in {run.snapshot.run, label_value(run.snapshot.run)}
        )  # as it is, or as a label
        run = run or next(named, None)
        if run is None:
            return answer({"error": f"unknown run {slug}"}, 404)
        return answer(document_of(run), request=request)

    def _run_detail(self, run: RunOverview) -> RunDetail:
        return self._watch.detail(run.snapshot.run)

    def _needs(self) -> dict[str, list[str]]:
        """What the detector of each rule reads."""
        rules = self._watch.rules()
        detectors = {rule.name: rules.detectors.get(rule.detector or rule.name) for rule in rules.rules}
        return {name: [need for way in found.needs for need in way] for name, found in detectors.items() if found}

    def _now(self) -> dict[str, Any]:
        return {"now": self._clock(), "version": __version__}

    def _rules(self, run: RunOverview) -> list[dict[str, Any]]:
        """Each rule of the run with its status and, where it is still in force, how it is set."""
        rules = self._watch.rules()
        known = {rule.name: rule for rule in rules.rules}
        snapshot, views = run.snapshot, []
        for view in snapshot.rules:
            rule = known.get(view.rule)
            in_force = rule.on(snapshot.run, snapshot.framework, run.labels) if rule else None
            views.append({**rule_document(view, snapshot), **(effective(in_force, rules) if in_force else {})})
        return views
