"""``grpo-watch check`` judges a run's files once; ``grpo-watch diff`` finds the step from which two runs differ."""

from __future__ import annotations

import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from grpo_watch import __version__
from grpo_watch.archive.checks import Checked, CheckSetup, Execution, check_all
from grpo_watch.archive.remote_folder import SERVER, RemoteFolder, is_remote, refuse_page, remote_folders
from grpo_watch.children.pool import processors, size_of
from grpo_watch.cli.terminal import print_json, printed, progress_line, terminal_width
from grpo_watch.cli.tracker_servers import Poller, local_copies, local_paths, newest_below
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings, parse_assignments
from grpo_watch.credentials import masked
from grpo_watch.engine.records import EndState, Scalar, Severity, Tick
from grpo_watch.engine.rule import ENGLISH, Rule
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import Provenance, RunReport, document, exit_code
from grpo_watch.report.view import pasteable
from grpo_watch.rules.packs import rules_for
from grpo_watch.safe_text import visible
from grpo_watch.sources.discovery.discover import Discoverer, FoundRun
from grpo_watch.sources.discovery.unread import nothing_there

if TYPE_CHECKING:
    from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer

NAMED = 5
"""Most runs named in the error when a path holds several."""
LARGE = 32 << 20
"""Bytes of runs above which several processes pay off: starting one takes a second, in which it reads 4 to 10 MB."""


def check_command(given: Namespace) -> int:
    """Check every run under ``given.paths``; prints the report and returns the exit code.

    Raises:
        UsageError: a path is missing, or an option, the settings file, a rule file, the results file or the Ray cluster
            can't be used.
    """
    if (given.now is not None) + given.running + given.ended > 1:
        raise UsageError("--now, --running and --ended are mutually exclusive")
    chosen = load_settings({"rules": given.rules, "privacy.examples": given.examples}, config=given.config).settings
    now = time.time() if given.now is None else parse_time(given.now)
    state = EndState.RUNNING if given.running else EndState.ENDED if given.ended else EndState.UNKNOWN
    tick, overrides = Tick(now, live=False, state=state), parse_assignments(given.settings)
    paths = given.paths or [
        newest_below(Path(), chosen.allow_roots, for_agent=given.format == "agent" and not given.with_texts)
    ]
    recording = given.format == "html"
    if recording and (given.engine != "local" or given.resume is not None):
        raise UsageError("--format html reads the runs in this process; leave out --engine and --resume")
    servers = [path for path in paths if is_remote(path)]
    with open_runs([path for path in paths if path not in servers], chosen) as (found, unread):
        runs: list[Checked] = [*found, *(folder for path in servers for folder in remote_folders(path))]
        problems = unread if runs or unread else tuple(f"{path}: {nothing_there(Path(path))}" for path in paths)
        setup = CheckSetup(rules_for(chosen), tick, overrides, chosen, recording)
        processes = processes_for(1 if recording else given.jobs, runs)
        execution = Execution(processes, given.engine == "ray", given.address, given.resume)
        with progress_line("checking") if len(runs) > 1 else nullcontext() as draw:
            done = count(1)
            advance = (lambda: draw(f"{next(done)} of {len(runs)}")) if draw is not None else lambda: None
            reports = check_all(setup, runs, execution, advance=advance)
    level = None if given.fail_on == "never" else Severity(given.fail_on)
    if given.format == "agent":
        from grpo_watch.report.agent import agent_text  # noqa: PLC0415  only here

        write(agent_text(reports, problems, setup.rules, with_texts=given.with_texts), given.output)
        return exit_code(reports, level)
    if given.format != "json":
        from grpo_watch.report.words import sentence_words  # noqa: PLC0415  only here

        said = partial(sentence_words, chosen.language, part="errors")
        problems = tuple(map(said, problems))
        roots = {run.name: _from_here(run.root) for run in found}
        reports = [_for_people(report, roots.get(report.snapshot.run, ""), said) for report in reports]
    provenance = Provenance("", __version__, tick.now)
    provenance = replace(provenance, command=command_line(paths, given, provenance.time, state))
    color, verbose = given.color and given.output is None, given.verbose > 0
    text = rendered(
        reports, problems, given.format, provenance, level, color=color, verbose=verbose, language=chosen.language
    )
    write(text, given.output)
    return exit_code(reports, level)


def _from_here(root: Path) -> str:
    """A run's folder as a command argument: relative below the current folder, empty if equal to it, else absolute."""
    path = os.path.relpath(root)
    if path.startswith(".."):
        return str(root.resolve())
    return "" if path == "." else path


def _for_people(report: RunReport, folder: str, said: Callable[[str], str]) -> RunReport:
    """The report with commands that work in the user's folder, and with notes and problems translated."""
    notes, problems = (tuple(map(said, lines)) for lines in (report.notes, report.problems))
    return replace(report, snapshot=pasteable(report.snapshot, folder), notes=notes, problems=problems)


def find_runs(
    paths: Sequence[str], chosen: Settings | None = None, discoverer: Discoverer | RemoteDiscoverer | None = None
) -> tuple[list[FoundRun], tuple[str, ...]]:
    """The runs under all paths, and discovery problems (one line each).

    Addresses of wandb servers need a ``RemoteDiscoverer``.

    Raises:
        UsageError: a path does not exist.
    """
    named = paths if discoverer is None else local_paths(paths)
    for path in named:
        if not any(char in path for char in "*?[") and not Path(path).exists():
            refuse_page(path)
            raise UsageError(f"{path}: no such file or folder")
    discoverer = discoverer or Discoverer((chosen or Settings()).allow_roots)
    found = discoverer.discover(*(Path(path) for path in named))
    return found, discoverer.problems


@contextmanager
def open_runs(paths: Sequence[str], chosen: Settings) -> Iterator[tuple[list[FoundRun], tuple[str, ...]]]:
    """Like ``find_runs``, also for standard input and server addresses; read the runs inside the ``with`` block.

    Raises:
        UsageError: a path does not exist, or an address is malformed.
    """
    with local_copies(paths) as places:
        poller = Poller(places, chosen)
        try:
            yield find_runs(places, chosen, poller.discoverer)
        finally:
            poller.close()


def check_runs(
    found: Sequence[FoundRun],
    rules: Sequence[Rule],
    overrides: Mapping[str, Scalar],
    tick: Tick,
    chosen: Settings | None = None,
    *,
    recording: bool = False,
) -> list[RunReport]:
    """Replay each run in this process and return the reports.

    ``overrides`` (``--set``) wins over the settings file's entry for the run. With ``recording`` the reports carry the
    rows too, which takes memory.
    """
    setup = CheckSetup(tuple(rules), tick, overrides, chosen or Settings(), recording)
    return check_all(setup, found, Execution())


def judged(
    paths: Sequence[str | os.PathLike[str]],
    rules: Sequence[str | os.PathLike[str]] = (),
    config: str | os.PathLike[str] | None = None,
    state: str = "unknown",
    overrides: Mapping[str, Scalar] = MappingProxyType({}),
    *,
    alone: bool = False,
) -> list[RunReport]:
    """The reports on all runs below the paths, with their rows; ``alone`` demands exactly one run.

    Raises:
        UsageError: a path is missing, holds no run or, with ``alone``, several; the settings or a rule file can't be
            used.
    """
    if state not in {each.value for each in EndState}:
        raise UsageError(f"state {state!r}: use {', '.join(each.value for each in EndState)}")
    flags = {"rules": [Path(file) for file in rules]}
    chosen = load_settings(flags, config=None if config is None else Path(config)).settings
    tick = Tick(time.time(), live=False, state=EndState(state))
    with open_runs([os.fspath(path) for path in paths], chosen) as (found, problems):
        if alone and not found:
            raise UsageError(f"{paths[0]}: no run found" + "".join(f"; {problem}" for problem in problems))
        if alone and len(found) > 1:
            names = ", ".join(run.name for run in found[:NAMED]) + (", …" if len(found) > NAMED else "")
            raise UsageError(f"{paths[0]}: holds {len(found)} runs ({names}); name one of them")
        return check_runs(found, rules_for(chosen), overrides, tick, chosen, recording=True)


def processes_for(jobs: int | None, runs: Sequence[Checked]) -> int:
    """``jobs`` if given; else one process per processor if the runs are large enough to pay for it, else 1."""
    if jobs is None:
        channels = {channel.path for run in runs if isinstance(run, FoundRun) for channel in run.channels}
        large = sum(map(size_of, channels)) >= LARGE or any(isinstance(run, RemoteFolder) for run in runs)
        jobs = processors() if large and len(runs) > 1 else 1
    return max(1, min(jobs, len(runs)))


def parse_time(text: str) -> float:
    """Parse an ISO 8601 time into Unix seconds; a time without a zone is local.

    Raises:
        UsageError: the text is not an ISO 8601 time.
    """
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else "")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--now {text!r} is not an ISO 8601 time (e.g. 2026-11-21T10:00:00Z)") from None


def rendered(  # noqa: PLR0913  what each format needs
    reports: Sequence[RunReport],
    problems: Sequence[str],
    output_format: str,
    provenance: Provenance,
    fail_on: Severity | None,
    *,
    color: bool,
    verbose: bool = False,
    language: str = ENGLISH,
) -> str:
    """Render the reports; the last three arguments apply to text only, ``fail_on`` decides JUnit failures."""
    # Import only the requested format's module.
    if output_format == "json":
        return msgspec.json.format(msgspec.json.encode(document(reports, problems)), indent=1).decode() + "\n"
    if output_format == "junit":
        from grpo_watch.report.junit import junit  # noqa: PLC0415

        return junit(reports, problems, provenance, fail_on)
    if output_format == "markdown":
        from grpo_watch.report.markdown import markdown  # noqa: PLC0415

        return markdown(reports, problems, provenance)
    if output_format == "html":
        from grpo_watch.report.page import page  # noqa: PLC0415

        return page(reports, problems, provenance)
    return _as_text(reports, problems, language, color=color, verbose=verbose)


def write(text: str, output: Path | None) -> None:
    """Write to the file, or to stdout if ``output`` is None.

    Raises:
        UsageError: the file can't be written.
    """
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: can't write: {error.strerror or error}") from None


def command_line(paths: Sequence[str], given: Namespace, moment: str, state: EndState) -> str:
    """The command that reproduces this verdict on the same files at any later time."""
    words = ["grpo-watch", "check", *(masked(path) if SERVER in path else path for path in paths)]
    words += [word for file in given.rules for word in ("--rules", str(file))]
    words += ["--config", str(given.config)] if given.config is not None else []
    words += [word for setting in given.settings for word in ("--set", setting)]
    words += ["--now", moment] if state is EndState.UNKNOWN else [f"--{state.value}"]
    return shlex.join(words)


def _as_text(
    reports: Sequence[RunReport], problems: Sequence[str], language: str, *, color: bool, verbose: bool
) -> str:
    from grpo_watch.report.lines import Line  # noqa: PLC0415  not needed for JSON
    from grpo_watch.report.text import render  # noqa: PLC0415  the same
    from grpo_watch.report.words import say  # noqa: PLC0415  the same

    nothing = [] if reports else [Line(say(language, "nothing to check: no run found"))]
    said = (Line(say(language, "problem: {what}", what=visible(problem))) for problem in problems)
    return printed([*nothing, *render(reports, verbose=verbose), *said], color=color)


DIFF_CODES = {"same": 0, "parted": 1, "not-evaluable": 3}


def diff_command(given: Namespace) -> int:
    """Print the step from which two runs differ; returns 0 (no difference), 1 (they differ) or 3 (too few common rows).

    Raises:
        UsageError: a path is missing, holds no run or several; the settings or a rule file can't be used.
    """
    from grpo_watch.report.compare import compare  # noqa: PLC0415  for two runs only
    from grpo_watch.report.compare import document as comparison_document  # noqa: PLC0415  the same
    from grpo_watch.report.text import render_comparison  # noqa: PLC0415  the same

    first, second = (judged([path], given.rules, given.config, alone=True) for path in (given.first, given.second))
    comparison = compare(first[0], second[0])
    if given.format == "json":
        print_json(comparison_document(comparison))
    else:
        sys.stdout.write(printed(render_comparison(comparison, terminal_width()), color=given.color))
    return DIFF_CODES[comparison.verdict]
