"""The functions of ``import grpo_watch``: verdicts on runs and launches as Python values."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from grpo_watch.cli.check import judged
from grpo_watch.cli.digest import compare_checkpoints
from grpo_watch.cli.wait import LOOK_SECONDS, reading, runs_of
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import Scalar
from grpo_watch.report.check_document import RunReport

PathLike: TypeAlias = str | os.PathLike[str]

log = logging.getLogger("grpo_watch.api")


def check(
    path: PathLike,
    *,
    rules: Sequence[PathLike] = (),
    config: PathLike | None = None,
    state: str = "unknown",
    **settings: Scalar,
) -> RunReport:
    """The verdict on one run.

    Args:
        path: its output folder, or a log file.
        rules: rule files that extend the shipped rules.
        config: a settings file; by default ``grpo-watch.yaml`` here, if there is one.
        state: ``running`` or ``ended`` if known; else the clock decides.
        settings: settings of the run that can't be read from it, such as ``beta=0.04``.

    Raises:
        UsageError: there is no run, or several; or a setting or a rule file can't be used.
    """
    return judged([path], rules, config, state, settings, alone=True)[0]


def check_all(
    paths: Sequence[PathLike],
    *,
    rules: Sequence[PathLike] = (),
    config: PathLike | None = None,
    state: str = "unknown",
    **settings: Scalar,
) -> list[RunReport]:
    """The verdict on each run below the paths; arguments as for ``check``.

    Raises:
        UsageError: a path is missing, or a setting or a rule file can't be used.
    """
    return judged(paths, rules, config, state, settings)


def digest(first: PathLike, second: PathLike | None = None) -> dict[str, Any]:
    """The checksums of a checkpoint's tensors, or the differences of two (schema ``grpo-watch/digest/1``).

    Raises:
        UsageError: a path does not exist.
    """
    return compare_checkpoints([Path(path) for path in (first, second) if path is not None])


class Watch:
    """Watches runs in its own thread until ``stop``; use it in a ``with`` block or stop it.

    Args:
        path: a run, or a folder of runs; may appear later.
        on_finding: called in that thread, once for each finding that fires, with the run's name and the finding.
        settings: settings of the run that can't be read from it.
    """

    def __init__(
        self, path: PathLike, on_finding: Callable[[str, Finding], object], settings: Mapping[str, Scalar]
    ) -> None:
        self._path, self._on_finding, self._settings = os.fspath(path), on_finding, settings
        self._stopping, self._chosen = threading.Event(), load_settings().settings
        self.over = threading.Event()
        """Set once all runs have ended and were read."""
        self._reported: set[tuple[object, ...]] = set()
        self._thread = threading.Thread(target=self._watch, name="grpo-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Watch:  # noqa: PYI034  Self is in typing from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        with reading(self._path, self._chosen, self._settings) as (daemon, service):
            while not self._stopping.is_set():
                over = daemon.done
                for run in runs_of(daemon, service):
                    for finding in run.snapshot.findings:
                        self._report_once(run.snapshot.run, finding)
                if over:
                    self.over.set()
                    return
                self._stopping.wait(LOOK_SECONDS)

    def _report_once(self, run: str, finding: Finding) -> None:
        known = (run, finding.rule, finding.key, finding.attempt, finding.fired_step)
        if known in self._reported or finding.caused_by is not None:
            return
        self._reported.add(known)
        try:
            self._on_finding(run, finding)
        except Exception:
            log.exception("on_finding failed", extra={"fields": {"run": run, "rule": finding.rule}})


def watch(path: PathLike, on_finding: Callable[[str, Finding], object], **settings: Scalar) -> Watch:
    """Start to watch a run in the background, see ``Watch``."""
    return Watch(path, on_finding, settings)
