"""Checks one run, or many in processes or on a Ray cluster; finished results are stored under keys and reused."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct, field

from grpo_watch import __version__
from grpo_watch.archive.remote_folder import RemoteFolder, copy
from grpo_watch.catalogue import catalogue
from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import Scalar, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.pipeline.offline import read_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.check_document import ChannelReport, RunReport
from grpo_watch.report.view import joined
from grpo_watch.rules.rule_changes import fingerprint
from grpo_watch.sources.discovery.discover import Discoverer, FoundRun
from grpo_watch.store.codec import decode, encode, storable
from grpo_watch.store.kept_results import KeptResults

if TYPE_CHECKING:
    from grpo_watch.children.pool import Answer


class CheckSetup(Struct, frozen=True):
    """Settings common to a check of several runs; can be sent to another process.

    ``overrides`` (``--set``) win over the settings file's entry for a run. ``tick`` ends each run. With ``recording``
    the reports carry the rows too, which takes memory.
    """

    rules: tuple[Rule, ...]
    tick: Tick
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    recording: bool = False


def check_run(setup: CheckSetup, found: FoundRun) -> RunReport:
    """Replay a run and return its report."""
    recorded = None
    if setup.recording:
        from grpo_watch.report.series import RecordedRun  # noqa: PLC0415  only charts need it

        recorded = RecordedRun()
    observe = recorded.observe if recorded is not None else None
    read = read_run(found, setup.rules, catalogue(), setup.tick, setup.settings, setup.overrides, observe=observe)
    channels = tuple(
        ChannelReport(
            name=source.name,
            kind=source.what,
            records=source.stats.records,
            skipped={reason.value: count for reason, count in source.stats.skipped.items()},
            first_bad=source.stats.first_bad,
            problem=source.stats.problem,
        )
        for source in read.sources
    )
    notes = (read.pipeline.assembler.agreement.summary(), *read.unused_columns)
    report = RunReport(joined(read.pipeline.snapshot()), channels, found.problems, tuple(filter(None, notes)))
    return report if recorded is None else replace(report, series=recorded.series, batches=tuple(recorded.batches))


def failed_run(setup: CheckSetup, name: str, message: str) -> RunReport:
    """The report on a run that could not be checked: not evaluable, with the message as a problem."""
    snapshot = Pipeline(name, setup.rules, catalogue()).snapshot()
    return RunReport(snapshot, problems=(f"could not be checked: {message}",))


class _Encoded(msgspec.Struct, array_like=True):
    snapshot: bytes
    channels: tuple[ChannelReport, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def setup_key(setup: CheckSetup) -> str:
    """A hash of the settings; it includes the moment of the check, because silence is judged as of it."""
    detectors = catalogue()
    rules = [(rule.name, rule.summary, rule.hint, fingerprint(rule, detectors)) for rule in setup.rules]
    tick = (setup.tick.live, setup.tick.state.value)
    return _hash(
        __version__, rules, sorted(setup.overrides.items()), msgspec.json.encode(setup.settings, enc_hook=str), tick
    )


def run_key(shared: str, run: FoundRun | RemoteFolder) -> str:
    """The key of one run's result: the settings' hash with the sizes and times of the run's files."""
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


Checked: TypeAlias = FoundRun | RemoteFolder


class Execution(Struct, frozen=True):
    """Where runs are checked: in ``processes`` processes here, or on the Ray cluster at ``address``.

    ``results`` is the file of finished results, with which an interrupted check resumes; None stores nothing.
    """

    processes: int = 1
    on_ray: bool = False
    address: str | None = None
    results: Path | None = None


def check_all(
    setup: CheckSetup,
    runs: Sequence[Checked],
    execution: Execution,
    *,
    advance: Callable[[], None] = lambda: None,
) -> list[RunReport]:
    """The reports on all runs, in their order; ``advance`` is called after each. A folder may hold several runs.

    Raises:
        UsageError: the results file or the Ray cluster can't be used.
    """
    kept = KeptResults(execution.results) if execution.results is not None else None
    keys = _keys(setup, runs) if kept else {}
    known = kept.get(keys.values()) if kept else {}
    done = {place: known[key] for place, key in keys.items() if key in known}
    reports = {place: _decoded(data) for place, data in done.items()}
    for _ in done:
        advance()
    left = [place for place in range(len(runs)) if place not in done]
    for place, found in _checked(setup, runs, left, execution):
        if isinstance(found, str):
            reports[place] = [failed_run(setup, runs[place].name, found)]
        else:
            reports[place] = found
            if kept and place in keys:
                kept.put(keys[place], _encoded(found))
        advance()
    return [report for place in range(len(runs)) for report in reports[place]]


def _keys(setup: CheckSetup, runs: Sequence[Checked]) -> dict[int, str]:
    shared = setup_key(setup)
    return {place: run_key(shared, run) for place, run in enumerate(runs) if _movable(run)}


def _checked(
    setup: CheckSetup, runs: Sequence[Checked], left: Sequence[int], execution: Execution
) -> Iterator[tuple[int, list[RunReport] | str]]:
    """The index of each run with its reports, or the reason why there are none."""
    away = [place for place in left if _movable(runs[place]) and (execution.on_ray or execution.processes > 1)]
    pieces = [(setup, runs[place]) for place in away]
    if pieces:
        for answer in _spread(pieces, execution):
            yield away[answer.place], answer.error or _decoded(answer.result)
    for place in sorted(set(left) - set(away)):
        yield place, _reports_here(setup, runs[place], alone=len(runs) == 1)


def _spread(pieces: Sequence[tuple[CheckSetup, Checked]], execution: Execution) -> Iterator[Answer]:
    if execution.on_ray:
        from grpo_watch.archive.on_ray import on_ray  # noqa: PLC0415  few use it

        return on_ray(_work, pieces, execution.address)
    from grpo_watch.children.pool import in_processes  # noqa: PLC0415  a tenth of the start of a single run

    return in_processes(_work, pieces, min(execution.processes, len(pieces)))


def _movable(run: Checked) -> bool:
    """Whether another process can read the run; one that needs a client in this process can't be sent."""
    return isinstance(run, RemoteFolder) or not any(channel.opens for channel in run.channels)


def _work(piece: tuple[CheckSetup, Checked]) -> bytes:
    setup, run = piece
    return _encoded(_reports(setup, run))


def _reports(setup: CheckSetup, run: Checked) -> list[RunReport]:
    if isinstance(run, FoundRun):
        return [check_run(setup, run)]
    with TemporaryDirectory(prefix="grpo-watch-") as scratch:
        folder = copy(run, Path(scratch))
        discoverer = Discoverer()
        found = discoverer.discover(folder)
        if not found:
            return [failed_run(setup, run.name, "; ".join(discoverer.problems) or "no run found")]
        return [check_run(setup, each) for each in found]


def _reports_here(setup: CheckSetup, run: Checked, *, alone: bool) -> list[RunReport] | str:
    try:
        return _reports(setup, run)
    except Exception as error:
        if alone:
            raise
        return f"{type(error).__name__}: {error}"


def _encoded(reports: Sequence[RunReport]) -> bytes:
    written = [(encode(each.snapshot), storable((each.channels, each.problems, each.notes))) for each in reports]
    return msgspec.msgpack.encode([msgspec.msgpack.encode(_Encoded(snapshot, *rest)) for snapshot, rest in written])


def _decoded(data: bytes) -> list[RunReport]:
    """Decode reports; raises one of ``store.codec.DECODE_ERRORS`` on damage."""
    read = [msgspec.msgpack.decode(each, type=_Encoded) for each in msgspec.msgpack.decode(data, type=list[bytes])]
    return [RunReport(decode(RunSnapshot, each.snapshot), each.channels, each.problems, each.notes) for each in read]
