"""The key of a run's result: it changes when the rules, the settings, this version or the run's files do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from grpo_watch import __version__
from grpo_watch.archive.check_run import CheckSetup
from grpo_watch.archive.remote_folder import RemoteFolder
from grpo_watch.catalogue import catalogue
from grpo_watch.rules.rule_changes import fingerprint
from grpo_watch.sources.discovery.discover import FoundRun


def setup_key(setup: CheckSetup) -> str:
    """What all runs of a check share, as a hash. The moment of the check counts: silence is judged as of it."""
    detectors = catalogue()
    rules = [(rule.name, rule.summary, rule.hint, fingerprint(rule, detectors)) for rule in setup.rules]
    tick = (setup.tick.live, setup.tick.state.value)
    return _hash(__version__, rules, sorted(setup.overrides.items()), setup.settings.model_dump_json(), tick)


def run_key(shared: str, run: FoundRun | RemoteFolder) -> str:
    """The key of one run's result: of what is shared, and of the sizes and times of its files."""
    if isinstance(run, RemoteFolder):
        return _hash(shared, run.root, [(file.path, file.size, file.mark) for file in run.files])
    files = [_state(file) for channel in run.channels for file in _files(channel.path)]
    return _hash(shared, str(run.root), run.name, run.problems, [(c.name, c.segment) for c in run.channels], files)


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(files))


def _state(file: Path) -> tuple[str, int, int]:
    try:
        status = file.stat()
    except OSError:
        return str(file), -1, -1
    return str(file), status.st_size, status.st_mtime_ns
