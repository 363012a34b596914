"""The endpoints about one run or two, named by slug, or by name as in metrics."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from grpo_watch import __version__
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.run_detail import STORED_ROWS, BatchView, ListedGroup, RunDetail
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.metrics.exposition import label_value
from grpo_watch.report.blindness import headline
from grpo_watch.report.charts import bands, charts, finding_charts, further_charts
from grpo_watch.report.series import Series
from grpo_watch.report.view import pasteable
from grpo_watch.web.answers import Answers, basis_of, problem
from grpo_watch.web.documents import detail_document, effective, rule_document

WatchedRows: TypeAlias = tuple[RunSnapshot, Series]
"""A run in the daemon: its snapshot and its rows, thinned if it is long."""
DocumentOf: TypeAlias = Callable[[RunOverview], dict[str, Any]]


class RunPages:
    """The endpoints.

    Args:
        watch: the daemon.
        clock: Unix seconds.
        answers: the cache of responses.
    """

    def __init__(self, watch: Daemon, clock: Callable[[], float], answers: Answers) -> None:
        self._watch, self._clock, self._answers = watch, clock, answers

    async def detail(self, request: Request) -> Response:
        """Verdict, findings, sources, settings, and the rules with their status."""
        return self._about(
            request, lambda run: {**detail_document(run), "rules": self._rules(run), "version": __version__}
        )

    async def series(self, request: Request) -> Response:
        """Thinned history: ``step`` and each metric, lists of one length, None for a missing value."""
        return self._about(
            request, lambda run: {"run": run.snapshot.run, "series": columns_document(self._run_detail(run).series)}
        )

    async def charts(self, request: Request) -> Response:
        """The data of the run's charts."""

        def document(run: RunOverview) -> dict[str, Any]:
            shown = self._run_detail(run)
            return charts_document(run.snapshot, shown.series, shown.keys)

        return self._about(request, document)

    async def batches(self, request: Request) -> Response:
        """Which completions of the newest batches are equal."""
        return self._about(request, lambda run: batches_document(self._run_detail(run)))

    async def compared(self, request: Request) -> Response:
        """The runs to choose from; with ``a`` and ``b`` their comparison."""
        shown = self._watch.snapshot().shown
        names = [request.query_params.get(side, "") for side in "ab"]
        chosen = [self._named(name) for name in names if all(names)]
        if None in chosen:
            return problem(404, f"unknown run {names[chosen.index(None)]}")
        two = [run for run in chosen if run is not None]
        basis = [*basis_of(*two), *(_choice(run) for run in shown)]
        if (known := self._answers.kept(request, basis)) is not None:
            return known
        document: dict[str, Any] = {"runs": [_choice(run) for run in shown], "comparison": None}
        if two:
            pair = [(run.snapshot, self._run_detail(run).series) for run in two]
            document["comparison"], document["whole"] = await run_in_threadpool(compared, *pair)
        return self._answers.made(request, basis, document)

    async def report(self, request: Request) -> Response:
        """The report of one run as Markdown, with ``?format=html`` as an HTML file to save."""
        name, form = request.path_params["slug"], request.query_params.get("format", "markdown")
        run = self._named(name)
        if run is None:
            return problem(404, f"unknown run {name}")
        watched = pasteable(run.snapshot, str(run.folder or "")), self._run_detail(run).series
        text = await run_in_threadpool(reported, watched, form, self._clock())
        if form != "html":
            return Response(text.encode("utf-8", "replace"), media_type="text/markdown; charset=utf-8")
        saved = {"Content-Disposition": f'attachment; filename="{run.slug}.html"'}
        return Response(text.encode("utf-8", "replace"), headers=saved, media_type="text/html; charset=utf-8")

    def _about(self, request: Request, document_of: DocumentOf) -> Response:
        run = self._named(request.path_params["slug"])
        if run is None:
            return problem(404, f"unknown run {request.path_params['slug']}")
        basis = [*basis_of(run), self._watch.rules()]
        return self._answers.kept(request, basis) or self._answers.made(request, basis, document_of(run))

    def _named(self, name: str) -> RunOverview | None:
        """The run with this slug, else with this name, as it is or as a label value; None if unknown."""
        shown = self._watch.snapshot().shown
        named = (run for run in shown if name in {run.snapshot.run, label_value(run.snapshot.run)})
        return next((run for run in shown if run.slug == name), None) or next(named, None)

    def _run_detail(self, run: RunOverview) -> RunDetail:
        return self._watch.detail(run.snapshot.run)

    def _rules(self, run: RunOverview) -> list[dict[str, Any]]:
        """Each rule of the run with its status and, if still in force, its configuration."""
        rules = self._watch.rules()
        known = {rule.name: rule for rule in rules.rules}
        snapshot, views = run.snapshot, []
        for view in snapshot.rules:
            rule = known.get(view.rule)
            in_force = rule.on(snapshot.run, snapshot.framework, run.labels) if rule else None
            views.append({**rule_document(view, snapshot), **(effective(in_force, rules) if in_force else {})})
        return views


def _choice(run: RunOverview) -> dict[str, Any]:
    snapshot = run.snapshot
    words = {"verdict": snapshot.verdict.value, "headline": headline(snapshot), "step": snapshot.step}
    return {"run": snapshot.run, "slug": run.slug, **words}


def compared(a: WatchedRows, b: WatchedRows) -> tuple[dict[str, Any], bool]:
    """The document of ``diff``, and whether it rests on all rows.

    The daemon has only some rows of a long run. Then metrics are not compared.
    """
    from grpo_watch.report.check_document import RunReport  # noqa: PLC0415  few daemons need it
    from grpo_watch.report.compare import compare, document  # noqa: PLC0415  the same

    whole = all(len(rows) == rows.logged for _, rows in (a, b))
    reports = [RunReport(snapshot, series=rows if whole else Series()) for snapshot, rows in (a, b)]
    return document(compare(*reports)), whole


def reported(run: WatchedRows, form: str, now: float) -> str:
    """The report of ``check`` in this format (``markdown``, ``html``), as of now (Unix seconds)."""
    from grpo_watch.report.check_document import Provenance, RunReport  # noqa: PLC0415
    from grpo_watch.report.markdown import markdown  # noqa: PLC0415
    from grpo_watch.report.page import page  # noqa: PLC0415

    provenance = Provenance(shlex.join(["grpo-watch", "check", run[0].run]), __version__, now)
    return (page if form == "html" else markdown)([RunReport(run[0], series=run[1])], [], provenance)


def charts_document(snapshot: RunSnapshot, rows: Series, keys: Mapping[str, str]) -> dict[str, Any]:
    """The charts of a run over its steps.

    ``bands`` are the steps of alerts, ``resumes`` those at which an attempt continued. Each chart names the ``rules``
    whose evidence it shows; the one with the top finding's is the ``lead``. ``keys`` maps metrics to the run's own
    names, the ``key`` of a line.
    """
    return {
        "rows": rows.logged,
        "charts": finding_charts([_with_keys(each, keys) for each in charts(rows)], snapshot),
        "further": [_with_keys(each, keys) for each in further_charts(rows)],
        "bands": bands(snapshot.findings),
        "resumes": _resumes(rows),
    }


def _with_keys(chart: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The chart with the run's own key for each line (None: computed by grpo-watch)."""
    return {**chart, "lines": [{**line, "key": keys.get(line["name"])} for line in chart["lines"]]}


def batches_document(detail: RunDetail) -> dict[str, Any]:
    """The newest batches, newest last: which completions of a group are equal, and the rows of the first groups."""
    return {"batches": [_batch(view) for view in detail.batches]}


def _batch(view: BatchView) -> dict[str, Any]:
    return {**asdict(view), "patterns": list(map(list, view.patterns)), "listed": list(map(_listed, view.listed))}


def _listed(group: ListedGroup) -> dict[str, Any]:
    """The rows of a group; ``prompt`` and ``texts`` are None unless the settings allow them."""
    prompt, texts = (group.shown[0], list(group.shown[1:])) if group.shown else (None, [])
    columns = {"lengths": group.length_column(), "scores": group.score_columns()}
    return {**columns, "prompt": prompt, "texts": texts or None}


def _resumes(rows: Series) -> list[dict[str, Any]]:
    """The first step of each attempt but the first."""
    places = sorted(zip(*rows.places, strict=True))
    begins = [after for before, after in pairwise(places) if after[0] != before[0]]
    return [{"attempt": attempt, "at": step} for attempt, step in begins]


def columns_document(rows: Series) -> dict[str, Any]:
    """``step`` and each metric, lists of one length; None for a missing value."""
    picked = rows.pick(rows.metrics, STORED_ROWS)
    return {"step": picked.steps, **picked.columns}
