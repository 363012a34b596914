"""``/api/v1/silences``: people acknowledge alerts and mute rules; documents say which alerts are silenced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from grpo_watch.engine.diagnosis import Finding
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.notify.silences import (
    ACKNOWLEDGED,
    MUTED,
    TEXT,
    Silence,
    SilenceError,
    Silences,
    end_of,
    new_id,
)
from grpo_watch.web.documents import answer

MARK = "x-grpo-watch"
"""A header that every write must have: a page of another site can't send it without being allowed to, and none is."""


class SnapshotView(Protocol):
    """The part of ``app.DaemonView`` that this needs."""

    def snapshot(self) -> DaemonSnapshot:
        """The newest snapshot."""


class SilencePages:
    """The endpoint.

    Args:
        watch: the daemon.
        silences: where they are kept.
        clock: Unix seconds.
    """

    def __init__(self, watch: SnapshotView, silences: Silences, clock: Callable[[], float]) -> None:
        self._watch, self._silences, self._clock = watch, silences, clock

    async def endpoint(self, request: Request) -> Response:
        """List, add or remove; parameters are in the query, as requests have no body here."""
        if request.method in {"GET", "HEAD"}:
            return answer({"silences": [asdict(each) for each in self._silences.all() if self._lasts(each)]})
        if (refused := forged(request)) is not None:
            return refused
        try:
            return self._removed(request) if request.method == "DELETE" else self._added(request)
        except SilenceError as problem:
            return answer({"error": str(problem)}, 503 if "can't be written" in str(problem) else 400)

    def _removed(self, request: Request) -> Response:
        """Remove the one with this id, or all of this run and rule."""
        query = request.query_params
        run = self._run(query.get("run", ""))
        name = run.snapshot.run if run else None

        def wanted(each: Silence) -> bool:
            return each.id == query.get("id") or (each.run, each.rule) == (name, query.get("rule"))

        count = self._silences.remove(wanted)
        return answer({"removed": count}, 200 if count else 404)

    def _added(self, request: Request) -> Response:
        query, now = request.query_params, self._clock()
        run = self._run(query.get("run", ""))
        if run is None:
            return answer({"error": f"unknown run {query.get('run', '')}"}, 404)
        by = getattr(request.state, "user", "") or query.get("by", "")
        said = {"by": by[:TEXT], "reason": query.get("reason", "")[:TEXT], "at": now, "id": new_id()}
        if query.get("kind") == MUTED:
            made = _mute(run, query, now, said)
        elif query.get("kind") == ACKNOWLEDGED:
            made = _acknowledgement(run, query, said)
        else:
            raise SilenceError("kind must be ack or mute")
        self._silences.add(made, self._lasts)
        return answer({"silence": asdict(made), "words": made.words()}, 201)

    def _run(self, name: str) -> RunOverview | None:
        return next((run for run in self._watch.snapshot().shown if name in {run.slug, run.snapshot.run}), None)

    def _lasts(self, silence: Silence) -> bool:
        """Whether a mute has not ended, and the episode of an acknowledgement is not over."""
        if silence.until is not None:
            return self._clock() < silence.until
        run = self._run(silence.run)
        return run is None or any(_open(found) and _is(silence, found) for found in run.snapshot.findings)


def _mute(run: RunOverview, query: Mapping[str, str], now: float, said: Mapping[str, Any]) -> Silence:
    rule = query.get("rule", "")
    if rule not in {view.rule for view in run.snapshot.rules} | {found.rule for found in run.snapshot.findings}:
        raise SilenceError(f"no rule {rule} on run {run.snapshot.run}")
    return Silence(kind=MUTED, run=run.snapshot.run, rule=rule, until=end_of(query.get("until", ""), now), **said)


def _acknowledgement(run: RunOverview, query: Mapping[str, str], said: Mapping[str, Any]) -> Silence:
    rule, key = query.get("rule", ""), query.get("key")
    of_rule = [found for found in run.snapshot.findings if found.rule == rule and _open(found)]
    found = next((each for each in of_rule if key is None or each.key == key), None)
    if found is None:
        raise SilenceError(f"{rule} does not fire on run {run.snapshot.run}")
    return Silence(
        kind=ACKNOWLEDGED,
        run=run.snapshot.run,
        rule=rule,
        key=found.key,
        attempt=found.attempt,
        first_step=found.first_step,
        severity=max(found.severity, found.told_severity, key=lambda each: each.rank).value,
        **said,
    )


def forged(request: Request) -> Response | None:
    """The refusal of a write that a page of another site may have caused; None for one that is meant."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
    if (
        foreign
        or not request.headers.get(MARK)
        or request.headers.get("sec-fetch-site", "same-origin") != "same-origin"
    ):
        return answer({"error": f"a write needs the header {MARK} and comes from the page itself or no page"}, 403)
    return None


def silenced(document: dict[str, Any], run: str, silences: Silences, now: float) -> dict[str, Any]:
    """Add ``silence`` to every finding in a document of a run: what silences it (None: nothing)."""
    for name in ("findings", "cards", "firing"):
        for finding in document.get(name, ()):
            mark(finding, run, silences, now)
    if document.get("top"):
        mark(document["top"], run, silences, now)
    return document


def mark(finding: dict[str, Any], run: str, silences: Silences, now: float) -> dict[str, Any]:
    """Add ``silence`` to the document of one finding."""
    place = _Place(finding["rule"], finding["key"] or "", finding["attempt"], finding["first_step"])
    resolved = finding.get("resolved_step") is not None
    found = None if resolved else silences.holding(run, place, finding["severity"], now)
    finding["silence"] = None if found is None else {**asdict(found), "words": found.words()}
    return finding


class _Place:
    """The episode that a document is of."""

    def __init__(self, rule: str, key: str, attempt: int, first_step: int) -> None:
        self.rule, self.key, self.attempt, self.first_step = rule, key, attempt, first_step


def _open(finding: Finding) -> bool:
    return finding.resolved_step is None


def _is(silence: Silence, finding: Finding) -> bool:
    place = (finding.rule, finding.key, finding.attempt, finding.first_step)
    return place == (silence.rule, silence.key, silence.attempt, silence.first_step)


def all_silenced(documents: Iterable[dict[str, Any]], silences: Silences, now: float) -> list[dict[str, Any]]:
    """The documents of findings, each of which names its run."""
    return [mark(document, document["run"], silences, now) for document in documents]
