"""The HTTP side: metrics and health for machines, a status page and an API for people on this machine."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from grpo_watch.sinks.base import Picture
from grpo_watch.sinks.prometheus import Exporter
from grpo_watch.web.access import Guard, Keys
from grpo_watch.web.documents import alert_documents, answer, run_document
from grpo_watch.web.limits import Fence
from grpo_watch.web.page import page, style

Endpoint = Callable[[Request], Awaitable[Response]]


class Watch(Protocol):
    """What the HTTP side is shown of the daemon; every method is safe to call from its thread."""

    def picture(self) -> Picture:
        """The newest picture."""

    def series(self, run: str) -> Mapping[str, list[Any]]:
        """Thinned history of a run: ``step`` and each metric, lists of one length, None where there is no value."""

    def late(self) -> float | None:
        """By how many seconds the engine is late; None when it is not."""

    def ready(self) -> bool:
        """Whether the sources were opened and read once."""


def security_headers() -> dict[str, str]:
    """Headers of every answer; the page may use its own style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def make_app(
    watch: Watch, clock: Callable[[], float], allowed_hosts: Iterable[str] = (), keys: Keys | None = None
) -> ASGIApp:
    """The application over a daemon.

    Args:
        watch: the daemon.
        clock: Unix seconds, for lags.
        allowed_hosts: names under which people may open the page, besides those of the loopback address.
        keys: what opens the page to peers that are not on this machine; None: nothing does.
    """
    guard = Guard(keys or Keys(), allowed_hosts)
    site = _Site(watch, Exporter(watch.picture, clock))
    for_machines = {"/metrics": site.metrics, "/healthz": site.healthz, "/readyz": site.readyz}
    for_people = {
        "/": site.status,
        "/api/v1/runs": site.runs,
        "/api/v1/runs/{slug}/series": site.series,
        "/api/v1/alerts": site.alerts,
    }
    guarded = {path: _guarded(endpoint, guard) for path, endpoint in for_people.items()}
    routes = [Route(path, endpoint) for path, endpoint in {**for_machines, **guarded}.items()]
    return Fence(Starlette(routes=routes), security_headers())


class _Site:
    """The answers."""

    def __init__(self, watch: Watch, exporter: Exporter) -> None:
        self.watch, self.exporter = watch, exporter

    async def metrics(self, request: Request) -> Response:
        accept, encoding = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
        body, headers = self.exporter.render(accept, encoding)
        return Response(body, headers=headers)

    async def healthz(self, _: Request) -> Response:
        late = self.watch.late()
        if late is None:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"the engine is {late:.0f} s late\n", 503)

    async def readyz(self, _: Request) -> Response:
        ready = self.watch.ready()
        return PlainTextResponse("ready\n" if ready else "not read yet\n", 200 if ready else 503)

    async def status(self, _: Request) -> Response:
        return HTMLResponse(page(self.watch.picture()))

    async def runs(self, _: Request) -> Response:
        picture = self.watch.picture()
        return answer({"runs": [run_document(run) for run in picture.runs], "problems": picture.problems})

    async def series(self, request: Request) -> Response:
        slug = request.path_params["slug"]
        found = next((run.snapshot.run for run in self.watch.picture().runs if run.slug == slug), None)
        if found is None:
            return answer({"error": f"there is no run {slug}"}, 404)
        return answer({"run": found, "series": self.watch.series(found)})

    async def alerts(self, _: Request) -> Response:
        documents = [alert_documents(run.snapshot) for run in self.watch.picture().runs]
        return answer({"alerts": [each for some in documents for each in some]})


def _guarded(endpoint: Endpoint, guard: Guard) -> Endpoint:
    async def answered(request: Request) -> Response:
        refused = await guard.refusal(request)
        return refused if refused is not None else await endpoint(request)

    return answered
