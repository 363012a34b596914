"""The HTTP application: metrics and health for machines, a status page and an API for people on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from grpo_watch import __version__
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.engine.rule import ENGLISH
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.metrics.exposition import Exporter
from grpo_watch.rules.packs import translations
from grpo_watch.web.access import AccessKeys, Guard
from grpo_watch.web.answers import INDEX, Answers, Assets, Basis, basis_of, problem, same
from grpo_watch.web.documents import alert_documents, overview, query_of, run_document, runbook_document
from grpo_watch.web.limits import BodyLimit
from grpo_watch.web.run_pages import RunPages

log = logging.getLogger("grpo_watch.web")

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    watch: Daemon,
    clock: Callable[[], float],
    allowed_hosts: Iterable[str] = (),
    keys: AccessKeys | None = None,
    *,
    loopback: bool = False,
) -> ASGIApp:
    """The application over a daemon.

    Args:
        watch: the daemon.
        clock: Unix seconds, for lags.
        allowed_hosts: names under which people may open the page, besides those of the loopback address.
        keys: the keys to the page for peers on other machines; None: they are refused.
        loopback: it listens on a loopback address: another site's page could reach it only through a browser on this
            machine, so ``/metrics`` checks the host name too.
    """
    guard = Guard(keys or AccessKeys(), allowed_hosts)
    register_url_convertor("run", _RunName())
    answers = Answers()
    site, runs = _Site(watch, answers), RunPages(watch, clock, answers)
    metrics = _metrics_of(Exporter(watch.snapshot, clock), guard if loopback else None)
    for_people = {
        "/": site.index,
        "/static/{name:path}": site.static,
        "/api/v1/runs": site.runs,
        "/api/v1/overview": site.overview,
        "/api/v1/alerts": site.alerts,
        "/api/v1/compare": runs.compared,
        "/api/v1/runbooks": site.runbooks,
        "/api/v1/words": site.words,
        "/api/v1/runbooks/{rule}": site.runbook,
        "/api/v1/runs/{slug:run}/series": runs.series,
        "/api/v1/runs/{slug:run}/charts": runs.charts,
        "/api/v1/runs/{slug:run}/batches": runs.batches,
        "/api/v1/runs/{slug:run}/report": runs.report,
        "/api/v1/runs/{slug:run}": runs.detail,
    }
    lane = asyncio.Lock()
    endpoints = {"/metrics": metrics, **{path: _guarded(endpoint, guard) for path, endpoint in for_people.items()}}
    endpoints = {**_health_of(watch), **{path: _in_turn(endpoint, lane) for path, endpoint in endpoints.items()}}
    routes = [Route(path, endpoint) for path, endpoint in endpoints.items()]
    return BodyLimit(Starlette(routes=routes, exception_handlers={Exception: _failed}))


def _in_turn(endpoint: Endpoint, lane: asyncio.Lock) -> Endpoint:
    """Answer one request at a time, so that a health check waits for at most one of them."""

    async def answered(request: Request) -> Response:
        async with lane:
            return await endpoint(request)

    return answered


def _health_of(watch: Daemon) -> dict[str, Endpoint]:

    async def healthz(_: Request) -> Response:
        late = watch.late()
        if late is None:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"the engine is {late:.0f} s late\n", 503)

    async def readyz(_: Request) -> Response:
        ready = watch.ready()
        return PlainTextResponse("ready\n" if ready else "not ready: still reading the runs\n", 200 if ready else 503)

    return {"/healthz": healthz, "/readyz": readyz}


def _metrics_of(exporter: Exporter, guard: Guard | None) -> Endpoint:
    """The endpoint of ``/metrics``; with a guard only for requests with a known host name."""

    async def metrics(request: Request) -> Response:
        if guard is not None and (refused := guard.refuse_unknown_host(request)) is not None:
            return refused
        accept, encoding = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
        body, headers = await asyncio.to_thread(exporter.render, accept, encoding)
        return Response(body, headers=headers)

    return metrics


def _failed(_: Request, __: Exception) -> Response:
    """The response to an internal error; its header says that the server closes the connection."""
    return PlainTextResponse("Internal Server Error", 500, {"Connection": "close"})


class _Site:
    """The endpoints that are not about one run."""

    def __init__(self, watch: Daemon, answers: Answers) -> None:
        self.watch, self.answers, self.assets = watch, answers, Assets()
        self._all: Basis = ()

    async def index(self, request: Request) -> Response:
        return self._asset(INDEX, request)

    async def static(self, request: Request) -> Response:
        return self._asset(request.path_params["name"], request)

    def _asset(self, name: str, request: Request) -> Response:
        found = self.assets.answer(name, request.headers.get("accept-encoding", ""))
        return found or PlainTextResponse("no such file\n", 404)

    async def runs(self, request: Request) -> Response:
        picture, ready = self.watch.snapshot(), self.watch.ready()

        def document() -> dict[str, Any]:
            runs = [run_document(run) for run in picture.runs]
            return {"runs": runs, "problems": picture.problems, "ready": ready}

        return self._answer(request, [self._basis(picture), ready], document)

    async def overview(self, request: Request) -> Response:
        picture, late, ready = self.watch.snapshot(), self.watch.late(), self.watch.ready()

        def document() -> dict[str, Any]:
            page = overview(picture, query_of(request.query_params), self.watch.sparks)
            return {**page, "late": late, "ready": ready, "version": __version__}

        return self._answer(request, [self._basis(picture), late, ready], document)

    async def alerts(self, request: Request) -> Response:
        picture = self.watch.snapshot()

        def document() -> dict[str, Any]:
            return {"alerts": [each for run in picture.runs for each in alert_documents(run.snapshot)]}

        return self._answer(request, self._basis(picture), document)

    async def words(self, request: Request) -> Response:
        """The page's texts in the language of the rules, by their English."""
        rules = self.watch.rules()
        language = next((rule.language for rule in rules.rules if rule.translated), ENGLISH)
        known = translations(language)["words"] if language != ENGLISH else {}
        return self._answer(request, [rules], lambda: {"language": language, "words": known})

    async def runbooks(self, request: Request) -> Response:
        rules = self.watch.rules()

        def document() -> dict[str, Any]:
            return {
                "rules": [{"rule": r.name, "severity": r.severity.value, "summary": r.summary} for r in rules.rules]
            }

        return self._answer(request, [rules], document)

    async def runbook(self, request: Request) -> Response:
        rule, rules = request.path_params["rule"], self.watch.rules()
        document = runbook_document(rule, rules)
        return (
            problem(404, f"unknown rule {rule}")
            if document is None
            else self._answer(request, [rules], lambda: document)
        )

    def _basis(self, picture: DaemonSnapshot) -> Basis:
        """The data of answers about all runs; the same object as long as they are unchanged."""
        fresh = [*basis_of(*picture.shown), picture.problems]
        if not same(self._all, fresh):
            self._all = fresh
        return self._all

    def _answer(self, request: Request, basis: Basis, document: Callable[[], Any]) -> Response:
        return self.answers.kept(request, basis) or self.answers.made(request, basis, document())


def _guarded(endpoint: Endpoint, guard: Guard) -> Endpoint:
    async def answered(request: Request) -> Response:
        refused = guard.refusal(request)
        response = refused if refused is not None else await endpoint(request)
        _note(request, response)
        return response

    return answered


def _note(request: Request, response: Response) -> None:
    """Log at info level who opened the page or the API; queries may be private and are left out.

    Polls of an open page without news are left out, too.
    """
    if response.status_code == HTTPStatus.NOT_MODIFIED:
        return
    fields = {"peer": request.client.host if request.client else "", "method": request.method}
    fields |= {"path": request.url.path, "status": str(response.status_code)}
    log.info("request", extra={"fields": fields})


class _RunName(Convertor[str]):
    """A run's name in a path: folder names may contain line ends, at which Starlette's ``path`` stops."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value
