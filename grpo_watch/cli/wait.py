"""``grpo-watch wait``: blocks until a run is in trouble, has ended or reached a step; one JSON line, one exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from grpo_watch.archive.remote_folder import refuse_page
from grpo_watch.children.pool import Worker
from grpo_watch.cli.config import rules_in_force
from grpo_watch.cli.daemon_client import DaemonClient
from grpo_watch.cli.run import options_for, plan_of
from grpo_watch.cli.tracker_servers import waiting_lines
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings, parse_assignments
from grpo_watch.credentials import masked
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.schedule import SteadyClock
from grpo_watch.daemon.service import Service
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.waker import Waker
from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.engine.snapshot import UNJUDGED, RunVerdict
from grpo_watch.errors import GrpoWatchError, UsageError
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.safe_text import visible
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.store.state import Store
from grpo_watch.web.documents import run_document

SCHEMA = "grpo-watch/wait/1"
HAPPENED, ENDED, NOT_EVALUABLE, TIMEOUT = 0, 1, 3, 5
OUTCOMES = {HAPPENED: "happened", ENDED: "ended-without", NOT_EVALUABLE: "not-evaluable", TIMEOUT: "timeout"}
LOOK_SECONDS = 0.2
"""Seconds between two polls of runs that this process reads …"""
ASK_SECONDS = 2.0
"""… and of runs that a daemon reads."""
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

RunDocument: TypeAlias = Mapping[str, Any]
"""A run as ``/api/v1/runs`` lists it."""
Look: TypeAlias = Callable[[], "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The runs at one moment; ``over``: all have ended and were read completely."""

    runs: Sequence[RunDocument]
    over: bool


@dataclass(frozen=True, slots=True)
class Awaited:
    """The awaited event: a verdict of at least this severity, a step, or (if neither is given) the end."""

    severity: Severity | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> Awaited:
        """Parse ``critical``, ``warning``, ``end`` or ``step=N``.

        Raises:
            UsageError: the text is none of these.
        """
        if text in {Severity.CRITICAL.value, Severity.WARNING.value}:
            return cls(severity=Severity(text))
        if text == "end":
            return cls()
        if found := re.fullmatch(r"step=(\d{1,12})", text):
            return cls(step=int(found[1]))
        raise UsageError(f"--until {text}: use critical, warning, end or step=N")

    def outcome(self, seen: Seen) -> tuple[int, RunDocument | None] | None:
        """The exit code and the run that decides it; None while waiting."""
        happened = next(filter(self._happened, seen.runs), None)
        if happened is not None:
            return HAPPENED, happened
        if not seen.over or not seen.runs:
            return None
        if self.severity is None:
            return ENDED if self.step is not None else HAPPENED, seen.runs[0]
        unjudged = all(RunVerdict(run["verdict"]) in UNJUDGED for run in seen.runs)
        return NOT_EVALUABLE if unjudged else ENDED, seen.runs[0]

    def _happened(self, run: RunDocument) -> bool:
        if self.severity is None:
            return self.step is not None and run["step"] >= self.step
        ranks = {RunVerdict.WARNING.value: Severity.WARNING.rank, RunVerdict.CRITICAL.value: Severity.CRITICAL.rank}
        return ranks.get(run["verdict"], -1) >= self.severity.rank


def wait_command(given: Namespace) -> int:
    """Wait; prints one JSON line and returns the exit code.

    Raises:
        UsageError: an option, the settings file or a rule file can't be used.
    """
    awaited, limit = Awaited.parse(given.until), seconds(given.timeout)
    refuse_page(given.path)
    if "://" in given.path:
        raise UsageError(f"{masked(given.path)}: unsupported; use a folder, glob or file; `run` watches servers")
    sys.stderr.writelines(f"grpo-watch: {visible(line)}\n" for line in waiting_lines([given.path]))
    chosen = load_settings({"rules": given.rules}, config=given.config).settings
    if threading.current_thread() is threading.main_thread():
        signal.signal(
            signal.SIGTERM, signal.default_int_handler
        )  # the temporary state is removed however the wait ends
    code, run = wait_for(given.path, awaited, limit, chosen, parse_assignments(given.settings))
    sys.stdout.write(json.dumps(document(given.path, given.until, code, run)) + "\n")
    return code


def seconds(text: str | None) -> float | None:
    """Parse ``6h``, ``90m``, ``30s``, ``2d`` or a number of seconds; None waits without limit.

    Raises:
        UsageError: the text is none of these.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", text)
    if found is None:
        raise UsageError(f"--timeout {text}: use seconds, or 30s, 90m, 6h, 2d")
    return float(found[1]) * UNITS[found[2]]


def document(path: str, until: str, code: int, run: RunDocument | None) -> dict[str, Any]:
    """The answer in the schema ``grpo-watch/wait/1``. It names the run as the caller did and quotes no text of it."""
    found = (run["firing"] or run["resolved"])[:1] if run else []
    return {
        "schema": SCHEMA,
        "path": path,
        "until": until,
        "outcome": OUTCOMES[code],
        "verdict": run["verdict"] if run else None,
        "step": run["step"] if run else None,
        "max_steps": run["max_steps"] if run else None,
        "active": run["active"] if run else None,
        "finding": {key: found[0][key] for key in ("rule", "severity", "first_step")} if found else None,
    }


def wait_for(
    path: str, awaited: Awaited, limit: float | None, chosen: Settings, overrides: Mapping[str, Scalar]
) -> tuple[int, RunDocument | None]:
    """The exit code and the run that decides it, from the running daemon if it watches the run, else from the files."""
    until = None if limit is None else time.monotonic() + limit
    try:
        asked = _asked(path, DaemonClient(chosen))
        if asked().runs:
            return _watched(asked, awaited, until, ASK_SECONDS)
    except (OSError, ValueError, KeyError, GrpoWatchError):
        pass  # no daemon responds, or it has gone: read the files here
    with reading(path, chosen, overrides) as (daemon, service):

        def look() -> Seen:
            over = daemon.done
            return Seen([run_document(run) for run in runs_of(daemon, service)], over)

        return _watched(look, awaited, until, LOOK_SECONDS)


def _watched(look: Look, awaited: Awaited, until: float | None, apart: float) -> tuple[int, RunDocument | None]:
    pause = threading.Event()
    while True:
        seen = look()
        if (outcome := awaited.outcome(seen)) is not None:
            return outcome
        left = apart if until is None else min(apart, until - time.monotonic())
        if left <= 0:
            return TIMEOUT, seen.runs[0] if seen.runs else None
        pause.wait(left)


def _asked(path: str, client: DaemonClient) -> Look:
    """Polls the daemon's API.

    A run is over if two polls in a row find it ended: its last checkpoint may be read a moment after its last row.
    """
    place, ended_before = Path(os.path.realpath(path)), [False]

    def look() -> Seen:
        listed = client.ask("/api/v1/runs")["runs"]
        runs = [run for run in listed if run.get("folder") and _below(Path(os.path.realpath(run["folder"])), place)]
        ended = bool(runs) and not any(run["active"] for run in runs)
        over, ended_before[0] = ended and ended_before[0], ended
        return Seen(runs, over)

    return look


def _below(folder: Path, place: Path) -> bool:
    """Whether a run's folder is the place or below it, or the place is a file in that folder."""
    return folder == place or place in folder.parents or (folder == place.parent and place.is_file())


def runs_of(daemon: Daemon, service: Service) -> Sequence[RunOverview]:
    """The runs found by a daemon inside this process.

    Raises:
        GrpoWatchError: a part of the daemon died.
    """
    if service.failed:
        raise GrpoWatchError("the watcher ended because one of its threads died")
    return daemon.snapshot().shown


@contextmanager
def reading(path: str, chosen: Settings, overrides: Mapping[str, Scalar]) -> Iterator[tuple[Daemon, Service]]:
    """A daemon inside this process that serves nothing, sends nothing, and keeps its state only for this wait.

    It is done once all runs have ended and were read. Ask whether it is done before calling ``runs_of``, so that the
    runs include their final state.
    """
    with TemporaryDirectory(prefix="grpo-watch-wait-") as folder:
        state, bell = Path(folder), Waker()
        worker = Worker(bell.ring, time.monotonic)
        daemon = Daemon(
            StateWriter(Store(state, time.time())),
            lambda: rules_in_force(chosen),
            worker.submit,
            options=lambda found: options_for(found, chosen, overrides=overrides),
            clock=SteadyClock(time.time, time.monotonic),
            timer=time.monotonic,
            plan=plan_of(chosen, exit_when_done=True),
        )
        discoverer = Discoverer(chosen.allow_roots)
        clocks = (time.monotonic, time.thread_time)
        service = Service(daemon, worker, bell, paths=[Path(path)], discoverer=discoverer, clocks=clocks)
        service.start()
        try:
            yield daemon, service
        finally:
            service.close()
