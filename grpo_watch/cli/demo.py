"""``grpo-watch demo``: replays a recorded frozen run and a healthy one while the real daemon watches both."""

from __future__ import annotations

import logging
import socket
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from shutil import which

from grpo_watch.cli.live_text import show, summary
from grpo_watch.cli.run import RunningDaemon, running
from grpo_watch.config.schema import Settings, split_listen
from grpo_watch.demo.replayer import replay_healthy, replay_run
from grpo_watch.engine.records import AlertState
from grpo_watch.engine.snapshot import AlertView, RunSnapshot
from grpo_watch.report.words import evidence_words

SPEED = 3.0
"""Replay speed relative to the recording, which took 18 seconds."""
LOOK = 0.1
"""Seconds between two polls of the daemon."""
PATIENCE = 20.0
"""Seconds the daemon may take after the last byte was written."""
FROZEN, HEALTHY = "frozen-policy", "healthy-policy"
STYLES = {"pending": "33", "firing": "1;31", "resolved": "32"}

FIRED, NOTHING_FIRED = 0, 1


def demo_command(given: Namespace) -> int:
    """Replay both runs, print alerts as they change and the page's address; returns 0 if and only if an alert fired.

    On a terminal, or with ``given.stay``, the page stays up until Ctrl-C.
    """
    stays = given.stay or (sys.stdin.isatty() and sys.stdout.isatty())
    with tempfile.TemporaryDirectory(prefix="grpo-watch-demo-") as folder:
        run, healthy = Path(folder) / FROZEN, Path(folder) / HEALTHY
        run.mkdir()
        healthy.mkdir()
        settings = Settings(listen=_listen(), state_dir=Path(folder) / "state")
        logging.getLogger("grpo_watch").setLevel(logging.ERROR)  # alerts are printed here, not logged too
        show("Replaying a real TRL run whose optimizer does nothing, at three times its speed. Its log looks healthy.")
        show(f"A run that learns ({HEALTHY}) is replayed next to it for comparison.")
        with running([str(run), str(healthy)], lambda: settings, lines_of=_brief) as watch:
            fired = _watch(watch, run, healthy, color=given.color)
            show("", *_closing(watch, fired=fired, stays=stays))
            if stays:
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
    return FIRED if fired else NOTHING_FIRED


def _listen() -> str:
    """The default address, or a free port if it is taken."""
    listen = Settings().listen
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(split_listen(listen))
        except OSError:
            return f"{split_listen(listen)[0]}:0"
    return listen


def _brief(snapshot: RunSnapshot) -> Iterator[str]:
    """The run's first summary line; details are left to the page."""
    for line in islice(summary(snapshot), 1):
        yield f"{line} (details are on the page)" if snapshot.rows else line


def _watch(watch: RunningDaemon, frozen: Path, healthy: Path, *, color: bool) -> bool:
    """Replay both runs in threads and print each alert change of the frozen one; returns whether an alert fired."""
    stop = threading.Event()
    writers = [
        threading.Thread(target=replay, args=(folder, stop.wait, SPEED), name=f"replay {folder.name}", daemon=True)
        for replay, folder in ((replay_run, frozen), (replay_healthy, healthy))
    ]
    for writer in writers:
        writer.start()
    known: dict[tuple[str, str], AlertState] = {}
    patience = PATIENCE
    try:
        while patience > 0:
            snapshots = _snapshots(watch)
            for alert in _changed(snapshots[FROZEN], known) if FROZEN in snapshots else ():
                sys.stdout.write(f"\n{_headline(snapshots[FROZEN], alert, color=color)}\n")
                show(*_details(alert))
            written = not any(writer.is_alive() for writer in writers)
            if written and _settled(known) and all(_complete(snapshots.get(name)) for name in (FROZEN, HEALTHY)):
                break
            stop.wait(LOOK)
            patience -= LOOK if written else 0.0
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    return AlertState.FIRING in known.values()


def _snapshots(watch: RunningDaemon) -> dict[str, RunSnapshot]:
    return {run.snapshot.run: run.snapshot for run in watch.daemon.snapshot().runs}


def _complete(snapshot: RunSnapshot | None) -> bool:
    return snapshot is not None and snapshot.step == snapshot.max_steps


def _settled(known: dict[tuple[str, str], AlertState]) -> bool:
    """Whether the metric rule and the checksum rule have both fired: checkpoints are hashed a little later."""
    firing = {rule for (rule, _), state in known.items() if state is AlertState.FIRING}
    return {"kl-stuck-at-zero", "parameters-unchanged"} <= firing


def _changed(snapshot: RunSnapshot, known: dict[tuple[str, str], AlertState]) -> Iterator[AlertView]:
    for alert in snapshot.alerts:
        place = (alert.rule, alert.key)
        if alert.state is not AlertState.INACTIVE and known.get(place) is not alert.state:
            known[place] = alert.state
            yield alert


def _headline(snapshot: RunSnapshot, alert: AlertView, *, color: bool) -> str:
    state = alert.state.value
    shown = f"\x1b[{STYLES[state]}m{state:8}\x1b[0m" if color else f"{state:8}"
    goal = f"/{snapshot.max_steps}" if snapshot.max_steps else ""
    step = alert.fired_step if alert.state is AlertState.FIRING and alert.fired_step is not None else snapshot.step
    return f"step {step:3d}{goal}  {shown}  {alert.rule} ({alert.severity.value})"


def _details(alert: AlertView) -> Iterator[str]:
    yield f"    {alert.summary}"
    yield "    evidence: " + " · ".join(evidence_words(alert.evidence, alert.summary))
    if alert.state is AlertState.FIRING:
        yield f"    fix: {alert.hint}"


def _closing(watch: RunningDaemon, *, fired: bool, stays: bool) -> Iterator[str]:
    base = f"http://{watch.address}"
    yield "The fault was detected while the job ran." if fired else "No alert fired: the demo failed."
    healthy = _snapshots(watch).get(HEALTHY)
    if healthy is not None:
        yield f"{HEALTHY}: {healthy.verdict.value}, {healthy.step} steps."
    if stays:
        yield f"open {watch.link}   (metrics: {base}/metrics)"
        yield "Press Ctrl-C to stop."
    else:
        called = "grpo-watch" if which("grpo-watch") else sys.argv[0]
        yield f"To keep the page open, run: {called} demo --stay"
