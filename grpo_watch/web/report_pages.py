"""Two runs side by side, as ``grpo-watch diff`` compares them, and the report of ``grpo-watch check`` of one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from grpo_watch import __version__
from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.engine.records import MetricRow, Stream
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.report.blindness import headline
from grpo_watch.report.charts import ThinnedColumns
from grpo_watch.web.documents import answer

if TYPE_CHECKING:
    from grpo_watch.report.check_document import RunReport

WatchedRows: TypeAlias = tuple[RunSnapshot, ThinnedColumns]
"""A run as the daemon has it: its snapshot and its rows, thinned where it is long."""


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
        clock: Unix seconds.
    """

    def __init__(self, watch: ReportedView, clock: Callable[[], float]) -> None:
        self._watch, self._clock = watch, clock

    async def compared(self, request: Request) -> Response:
        """The runs to choose from; with ``a`` and ``b`` (slugs or names) their comparison."""
        runs = self._watch.snapshot().shown
        names = request.query_params.get("a", ""), request.query_params.get("b", "")
        document: dict[str, Any] = {"runs": [_choice(run) for run in runs], "comparison": None}
        if not all(names):
            return answer(document, request=request)
        chosen = [next((run for run in runs if name in {run.slug, run.snapshot.run}), None) for name in names]
        for name, run in zip(names, chosen, strict=True):
            if run is None:
                return answer({"error": f"unknown run {name}"}, 404)
        pair = [(run.snapshot, self._watch.detail(run.snapshot.run).thinned) for run in chosen if run is not None]
        document["comparison"], document["whole"] = await run_in_threadpool(compared, *pair)
        return answer(document, request=request)

    async def report(self, request: Request) -> Response:
        """The report of one run as Markdown, with ``?format=html`` as a file that a browser saves."""
        name, form = request.path_params["slug"], request.query_params.get("format", "markdown")
        run = next((run for run in self._watch.snapshot().shown if name in {run.slug, run.snapshot.run}), None)
        if run is None:
            return answer({"error": f"unknown run {name}"}, 404)
        watched = run.snapshot, self._watch.detail(run.snapshot.run).thinned
        text = await run_in_threadpool(reported, watched, form, self._clock())
        if form != "html":
            return Response(text.encode("utf-8", "replace"), media_type="text/markdown; charset=utf-8")
        saved = {"Content-Disposition": f'attachment; filename="{run.slug}.html"'}
        return Response(text.encode("utf-8", "replace"), headers=saved, media_type="text/html; charset=utf-8")


def _choice(run: RunOverview) -> dict[str, Any]:
    snapshot = run.snapshot
    words = {"verdict": snapshot.verdict.value, "headline": headline(snapshot), "step": snapshot.step}
    return {"run": snapshot.run, "slug": run.slug, **words}


def compared(a: WatchedRows, b: WatchedRows) -> tuple[dict[str, Any], bool]:
    """The document of ``diff``, and whether it rests on all rows.

    Of a long run the daemon has the extremes of each stretch, which belong to no step in particular. Then metrics are
    not compared.
    """
    from grpo_watch.report.compare import compare, document  # noqa: PLC0415  numpy: 10 MB that few daemons need

    whole = a[1].stride == b[1].stride == 1
    reports = [_report(snapshot, rows if whole else ThinnedColumns()) for snapshot, rows in (a, b)]
    return document(compare(*reports)), whole


def reported(run: WatchedRows, form: str, now: float) -> str:
    """The report of ``check`` in this format (``markdown``, ``html``), as of now (Unix seconds)."""
    from grpo_watch.report.check_document import Provenance  # noqa: PLC0415
    from grpo_watch.report.markdown import markdown  # noqa: PLC0415
    from grpo_watch.report.page import page  # noqa: PLC0415

    provenance = Provenance(shlex.join(["grpo-watch", "check", run[0].run]), __version__, now)
    return (page if form == "html" else markdown)([_report(*run)], [], provenance)


def _report(snapshot: RunSnapshot, rows: ThinnedColumns) -> RunReport:
    from grpo_watch.report.check_document import RunReport  # noqa: PLC0415
    from grpo_watch.report.series import Series  # noqa: PLC0415

    series = Series()
    for at, (attempt, step) in enumerate(zip(rows.attempts, rows.steps, strict=True)):
        values = {name: column[at] for name, column in rows.columns.items()}
        series.take(MetricRow(snapshot.run, Stream.TRAIN, attempt, step, values))
    return RunReport(snapshot, series=series)
