"""Asks a run that wastes its GPUs to stop, by a file that the training job looks for; off unless it is configured."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_watch.sinks.alerts import moment
from grpo_watch.sinks.base import Picture
from grpo_watch.sinks.notification import FIRING, NOTHING, STOPPED, Notification, Outcome, Result
from grpo_watch.sinks.text import plain

LOOK_SECONDS = 5.0
_ODD = re.compile(r"[^A-Za-z0-9._-]+")

log = logging.getLogger("grpo_watch.stop")


@dataclass(frozen=True, slots=True)
class StopPlan:
    """When a run is asked to stop, and where.

    ``rules`` are the rules that count, at ``critical`` only; ``grace`` is how many seconds one must have fired.
    ``file`` is made in the run's folder, or in ``folder`` as ``RUN.FILE``. ``dry_run``: only say it.
    """

    rules: frozenset[str]
    grace: float
    file: str
    folder: Path | None = None
    dry_run: bool = False


class StopReceiver:
    """Makes the file once per alert, and tells the other receivers.

    Args:
        name: what metrics call it.
        plan: when and where.
        folder_of: the folder of a run by its name; None when it is not on this machine.
        announce: takes the notification that a run was asked to stop; its id is the same after any restart.
    """

    pace = 0.0
    refresh_every: float | None = LOOK_SECONDS

    def __init__(
        self,
        name: str,
        plan: StopPlan,
        folder_of: Callable[[str], Path | None],
        announce: Callable[[Notification], None],
    ) -> None:
        self.name = name
        self._plan, self._folder_of, self._announce = plan, folder_of, announce
        self._asked: frozenset[str] = frozenset()

    def send(self, notification: Notification) -> Outcome:  # noqa: ARG002
        """Nothing: an alert must have fired for a while."""
        return NOTHING

    def refresh(self, firing: Sequence[Notification], picture: Picture, now: float) -> Outcome:
        """Ask the runs whose time has come, if they still go on in the attempt that the alert fired in.

        The file would stop the next attempt of a run that ended, or the one that was resumed and may be well.
        """
        going_on = {(run.snapshot.run, run.snapshot.attempt) for run in picture.runs if run.active}
        due = [told for told in firing if (told.run, told.attempt) in going_on and self._is_due(told, now)]
        self._asked &= {told.id for told in due}
        problems = []
        for told in due:
            if told.id not in self._asked:
                problem = self._ask(told, now)
                problems += [problem] if problem else []
        if problems:
            return Outcome(Result.RETRY, problems[0])
        return Outcome(Result.DELIVERED, f"{len(due)} runs asked to stop" if due else "no run is to be stopped")

    def close(self) -> None:
        """Nothing is held."""

    def _is_due(self, told: Notification, now: float) -> bool:
        counts = told.status == FIRING and told.severity == "critical" and told.rule in self._plan.rules
        return counts and now - told.started >= self._plan.grace

    def _ask(self, told: Notification, now: float) -> str:
        """Make the file, and say so; what kept it from being made."""
        place = self._place(told.run)
        if place is None:
            return f"{told.run} can't be asked to stop: its folder is not on this machine; give `folder`"
        folder, file = place
        reason = f"{told.rule} has been critical for {(now - told.started) / 60:.0f} minutes"
        try:
            if not self._plan.dry_run:
                _make(folder, file, _document(told, reason, now))
        except OSError as problem:
            return f"{folder / file} can't be made: {problem.strerror or problem}"
        self._asked |= {told.id}
        self._say(told, folder / file, reason, now)
        return ""

    def _place(self, run: str) -> tuple[Path, str] | None:
        if self._plan.folder is not None:
            return self._plan.folder, f"{_ODD.sub('-', run).lstrip('.-') or 'run'}.{self._plan.file}"
        folder = self._folder_of(run)
        return None if folder is None else (folder, self._plan.file)

    def _say(self, told: Notification, file: Path, reason: str, now: float) -> None:
        did = "would be asked" if self._plan.dry_run else "was asked"
        text = f"{told.run} {did} to stop by {file}: {reason}"
        log.warning("stop action", extra={"fields": {"run": told.run, "rule": told.rule, "file": str(file)}})
        mark = hashlib.blake2s(f"stop:{self._plan.dry_run}:{told.id}".encode(), digest_size=16).hexdigest()
        self._announce(replace(told, id=mark, status=STOPPED, summary=text, message=text, at=now))


def _document(told: Notification, reason: str, now: float) -> dict[str, Any]:
    """What the file says, for people and for the job's log; ``episode`` is the id of the alert's message."""
    return {
        "rule": told.rule,
        "severity": told.severity,
        "run": told.run,
        "step": told.step,
        "episode": told.id,
        "at": moment(now),
        "reason": reason,
    }


def _make(folder: Path, file: str, document: Mapping[str, Any]) -> None:
    """Make the file in exactly this folder: neither the folder nor the file may be a link to elsewhere.

    A file that is there already has asked before.
    """
    text = json.dumps(plain(document)) + "\n"
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=place)
    except FileExistsError:
        return
    finally:
        os.close(place)
    with os.fdopen(made, "w", encoding="utf-8") as stream:
        stream.write(text)
