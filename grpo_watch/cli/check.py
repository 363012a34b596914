"""``grpo-watch check``: the pipeline over a run's files, once; a verdict, and an exit code for scripts."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec

from grpo_watch import __version__
from grpo_watch.archive.check_run import CheckSetup
from grpo_watch.archive.checks import Checked, Execution, check_all
from grpo_watch.archive.remote_folder import RemoteFolder, is_remote, remote_folders
from grpo_watch.children.pool import processors, size_of
from grpo_watch.cli.options import columns, parse_time
from grpo_watch.cli.stdin_run import taken_in
from grpo_watch.cli.wandb_setup import discovering, local_paths, newest_below
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings, parse_assignments
from grpo_watch.engine.records import EndState, Scalar, Severity, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import Provenance, RunReport, document, exit_code
from grpo_watch.rules.packs import rules_for
from grpo_watch.safe_text import visible
from grpo_watch.sources.discovery.discover import Discoverer, FoundRun
from grpo_watch.sources.discovery.nothing_there import nothing_there
from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer

LARGE = 32 << 20
"""Bytes of runs from which several processes pay: one takes a second to start, in which it reads four to ten MB."""


def check_command(  # noqa: PLR0917  one parameter per option
    paths: list[str],
    output_format: str,
    output: Path | None,
    fail_on: str,
    rules: list[Path],
    config: Path | None,
    settings: list[str],
    now: str | None,
    state: str,
    color: bool,
    examples: bool | None = None,
    verbose: bool = False,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    resume: Path | None = None,
    with_texts: bool = False,
) -> int:
    """Check every run under ``paths``; prints the report and returns the exit code.

    Raises:
        UsageError: a path is missing, or an option, the settings file, a rule file, the file of results or the cluster
            can't be used.
    """
    chosen = load_settings({"rules": rules, "privacy.examples": examples}, config=config).settings
    paths = paths or [newest_below(Path(), chosen.allow_roots)]
    tick = Tick(_moment(now), live=False, state=EndState(state))
    overrides = parse_assignments(settings)
    recording = output_format == "html"
    if recording and (engine != "local" or resume is not None):
        raise UsageError("--format html reads the runs in this process; leave out --engine and --resume")
    servers = [path for path in paths if is_remote(path)]
    with taken_in([path for path in paths if path not in servers]) as places, discovering(places, chosen) as discoverer:
        found, problems = find_runs(places, chosen, discoverer)
        runs: list[Checked] = [*found, *(folder for path in servers for folder in remote_folders(path))]
        if not runs and not problems:
            problems = tuple(f"{path}: {nothing_there(Path(path))}" for path in paths)
        setup = CheckSetup(rules_for(chosen), tick, overrides, chosen, recording)
        execution = Execution(processes_for(1 if recording else jobs, runs), engine == "ray", address, resume)
        with _progress(len(runs), shown=len(runs) > 1) as advance:
            reports = check_all(setup, runs, execution, advance=advance)
    level = None if fail_on == "never" else Severity(fail_on)
    if output_format == "agent":
        from grpo_watch.report.agent import agent_text  # noqa: PLC0415  only here

        write(agent_text(reports, problems, setup.rules, with_texts=with_texts), output)
        return exit_code(reports, level)
    provenance = Provenance("", __version__, tick.now)
    command = command_line(paths, rules, config, settings, provenance.time, state)
    provenance = replace(provenance, command=command)
    colorful = color and output is None
    write(rendered(reports, problems, output_format, provenance, level, color=colorful, verbose=verbose), output)
    return exit_code(reports, level)


def find_runs(
    paths: Sequence[str], chosen: Settings | None = None, discoverer: Discoverer | RemoteDiscoverer | None = None
) -> tuple[list[FoundRun], tuple[str, ...]]:
    """The runs under all paths, and what could not be read besides them (one line each).

    Addresses of wandb servers are left to a ``discoverer`` that knows them.

    Raises:
        UsageError: a path does not exist.
    """
    named = paths if discoverer is None else local_paths(paths)
    for path in named:
        if not any(char in path for char in "*?[") and not Path(path).exists():
            raise UsageError(f"{path}: no such file or folder")
    discoverer = discoverer or Discoverer((chosen or Settings()).allow_roots)
    found = discoverer.discover(*(Path(path) for path in named))
    return found, discoverer.problems


def check_runs(
    found: Sequence[FoundRun],
    rules: Sequence[Rule],
    overrides: Mapping[str, Scalar],
    tick: Tick,
    chosen: Settings | None = None,
    *,
    recording: bool = False,
) -> list[RunReport]:
    """Replay each run in this process and report on it.

    ``overrides`` (``--set``) wins over the settings file's entry for the run. With ``recording`` the reports carry the
    rows too, which takes memory.
    """
    setup = CheckSetup(tuple(rules), tick, overrides, chosen or Settings(), recording)
    return check_all(setup, found, Execution())


def processes_for(jobs: int | None, runs: Sequence[Checked]) -> int:
    """As many processes as were asked for; by default one for each processor, where there is enough to read."""
    if jobs is None:
        channels = {channel.path for run in runs if isinstance(run, FoundRun) for channel in run.channels}
        large = sum(map(size_of, channels)) >= LARGE or any(isinstance(run, RemoteFolder) for run in runs)
        jobs = processors() if large and len(runs) > 1 else 1
    return max(1, min(jobs, len(runs)))


@contextmanager
def _progress(runs: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    """A bar on the terminal, where stderr is one."""
    if not shown or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415  only a terminal needs rich
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking", total=runs)
        yield lambda: bar.advance(task)


def _moment(now: str | None) -> float:
    return time.time() if now is None else parse_time(now)


def rendered(
    reports: Sequence[RunReport],
    problems: Sequence[str],
    output_format: str,
    provenance: Provenance,
    fail_on: Severity | None,
    *,
    color: bool,
    verbose: bool = False,
) -> str:
    """The reports in the format; ``color`` and ``verbose`` are for text, ``fail_on`` decides JUnit's failures."""
    # Each format's module is imported when it is asked for.
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
    return _as_text(reports, problems, color=color, verbose=verbose)


def write(text: str, output: Path | None) -> None:
    """Write to stdout, or to the file.

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


def command_line(
    paths: Sequence[str], rules: Sequence[Path], config: Path | None, settings: Sequence[str], moment: str, state: str
) -> str:
    """The command that gives this answer again on the same files, whenever it is called."""
    words = ["grpo-watch", "check", *paths]
    words += [word for file in rules for word in ("--rules", str(file))]
    words += ["--config", str(config)] if config is not None else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--now", moment] if state == "unknown" else [f"--{state}"]
    return shlex.join(words)


def _as_text(reports: Sequence[RunReport], problems: Sequence[str], *, color: bool, verbose: bool) -> str:
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    from grpo_watch.report.text import render  # noqa: PLC0415  rich is not needed for JSON

    console = Console(file=StringIO(), force_terminal=color, no_color=not color, width=columns(), highlight=False)
    if not reports:
        console.print("nothing to check: no run found")
    render(reports, console, verbose=verbose)
    for problem in problems:
        console.print(f"problem: {visible(problem)}", markup=False)
    written = console.file
    text = written.getvalue() if isinstance(written, StringIO) else ""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
