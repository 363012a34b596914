"""Two runs side by side, and the report of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.report.blindness import headline
from grpo_watch.report.charts import ThinnedColumns
from grpo_watch.web.documents import answer

KeptRun: TypeAlias = tuple[RunSnapshot, ThinnedColumns]


@dataclass(frozen=True, slots=True)
class RunReports:
    """What makes reports.

    ``compare`` gives the document of ``grpo-watch diff``, and whether it rests on all rows; ``report`` that of
    ``grpo-watch check`` in a format (``markdown``, ``html``), as of a time (Unix seconds).
    """

    compare: Callable[[KeptRun, KeptRun], tuple[dict[str, Any], bool]]
    report: Callable[[KeptRun, str, float], str]


class ReportedView(Protocol):
    """The part of ``app.DaemonView`` that this needs."""

    def snapshot(self) -> DaemonSnapshot:
        """The newest snapshot."""

    def detail(self, run: str) -> RunDetail:
        """What the page of a run shows beyond the snapshot."""


class ReportPages:
    """The endpoints.

    Args:
        watch: the daemon.
        reports: makes them; None: this daemon can't.
        clock: Unix seconds.
    """

    def __init__(self, watch: ReportedView, reports: RunReports | None, clock: Callable[[], float]) -> None:
        self._watch, self._reports, self._clock = watch, reports, clock

    async def compared(self, request: Request) -> Response:
        """The runs to choose from; with ``a`` and ``b`` (slugs or names) their comparison."""
        runs = self._watch.snapshot().shown
        names = request.query_params.get("a", ""), request.query_params.get("b", "")
        document: dict[str, Any] = {"runs": [_choice(run) for run in runs], "comparison": None}
        if self._reports is None or not all(names):
            return answer(document, request=request)
        chosen = [next((run for run in runs if name in {run.slug, run.snapshot.run}), None) for name in names]
        for name, run in zip(names, chosen, strict=True):
            if run is None:
                return answer({"error": f"unknown run {name}"}, 404)
        pair = [(run.snapshot, self._watch.detail(run.snapshot.run).thinned) for run in chosen if run is not None]
        document["comparison"], document["whole"] = await run_in_threadpool(self._reports.compare, *pair)
        return answer(document, request=request)

    async def report(self, request: Request) -> Response:
        """The report of one run as Markdown, with ``?format=html`` as a file that a browser saves."""
        name, form = request.path_params["slug"], request.query_params.get("format", "markdown")
        run = next((run for run in self._watch.snapshot().shown if name in {run.slug, run.snapshot.run}), None)
        if run is None or self._reports is None:
            return answer({"error": f"unknown run {name}"}, 404)
        kept = run.snapshot, self._watch.detail(run.snapshot.run).thinned
        text = await run_in_threadpool(self._reports.report, kept, form, self._clock())
        if form != "html":
            return Response(text.encode("utf-8", "replace"), media_type="text/markdown; charset=utf-8")
        saved = {"Content-Disposition": f'attachment; filename="{run.slug}.html"'}
        return Response(text.encode("utf-8", "replace"), headers=saved, media_type="text/html; charset=utf-8")


def _choice(run: RunOverview) -> dict[str, Any]:
    snapshot = run.snapshot
    words = {"verdict": snapshot.verdict.value, "headline": headline(snapshot), "step": snapshot.step}
    return {"run": snapshot.run, "slug": run.slug, **words}
