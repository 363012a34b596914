"""``grpo-watch check``: the pipeline over a run's files, once; a verdict, and an exit code for scripts."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import msgspec

from grpo_watch.cli.piped import taken_in
from grpo_watch.cli.remote import discovering, local_paths
from grpo_watch.config.entries import entry_for
from grpo_watch.config.rules import load_rules
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings, parse_assignments
from grpo_watch.core.detector import Rule, catalogue
from grpo_watch.core.records import RunState, Scalar, Severity, Tick
from grpo_watch.errors import UsageError
from grpo_watch.report.collect import ChannelReport, RunReport, document, exit_code
from grpo_watch.runtime.open import open_run
from grpo_watch.runtime.pipeline import Pipeline
from grpo_watch.runtime.replay import replay
from grpo_watch.sources.discover import Discoverer, FoundRun
from grpo_watch.sources.wandb_projects import RemoteDiscoverer


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
) -> int:
    """Check every run under ``paths``; prints the report and returns the exit code.

    Raises:
        UsageError: a path is missing, or an option, the settings file or a rule file can't be used.
    """
    chosen = load_settings({"rules": rules}, config=config).settings
    tick = Tick(_moment(now), live=False, state=RunState(state))
    said = parse_assignments(settings)
    with taken_in(paths) as places, discovering(places, chosen) as discoverer:
        found, problems = find_runs(places, chosen, discoverer)
        reports = check_runs(found, load_rules(chosen.rules), said, tick, chosen)
    _write(reports, problems, output_format, output, color=color)
    return exit_code(reports, None if fail_on == "never" else Severity(fail_on))


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
    said: Mapping[str, Scalar],
    tick: Tick,
    chosen: Settings | None = None,
) -> list[RunReport]:
    """Replay each run and report on it; ``said`` (``--set``) wins over the settings file's entry for the run."""
    detectors = catalogue()
    return [_check_run(run, Pipeline(rules, detectors), said, tick, chosen or Settings()) for run in found]


def _check_run(
    found: FoundRun, pipeline: Pipeline, said: Mapping[str, Scalar], tick: Tick, chosen: Settings
) -> RunReport:
    pipeline.engine.run(found.name)
    entry = entry_for(found.root, chosen.runs, found.files, found.remote)
    settings = {**(entry.settings if entry else {}), **said}
    opened = open_run(
        found, pipeline, settings, examples=chosen.privacy.examples, columns=entry.columns if entry else None
    )
    for _ in replay(opened, pipeline, tick):
        pass
    channels = tuple(
        ChannelReport(
            name=source.name,
            kind=source.what,
            records=source.source.stats.records,
            skipped={reason.value: count for reason, count in source.source.stats.skipped.items()},
            first_bad=source.source.stats.first_bad,
            problem=source.source.stats.problem,
        )
        for source in opened.sources
    )
    opened.close()
    disagreement = pipeline.assembler(found.name).agreement.told()
    return RunReport(pipeline.snapshot(found.name), channels, found.problems, tuple(filter(None, [disagreement])))


def _moment(now: str | None) -> float:
    from grpo_watch.cli.main import parse_time  # noqa: PLC0415  main imports the commands lazily

    return time.time() if now is None else parse_time(now)


def _write(
    reports: Sequence[RunReport], problems: Sequence[str], output_format: str, output: Path | None, *, color: bool
) -> None:
    if output_format == "json":
        text = msgspec.json.format(msgspec.json.encode(document(reports, problems)), indent=1).decode() + "\n"
    else:
        text = _as_text(reports, problems, color=color and output is None)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: can't be written: {error.strerror or error}") from None


def _as_text(reports: Sequence[RunReport], problems: Sequence[str], *, color: bool) -> str:
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    from grpo_watch.report.text import printable, render  # noqa: PLC0415  rich is not needed for JSON

    width = Console().width if sys.stdout.isatty() else 110
    console = Console(file=StringIO(), force_terminal=color, no_color=not color, width=width, highlight=False)
    if not reports:
        console.print("nothing to judge: no run was found")
    render(reports, console)
    for problem in problems:
        console.print(f"not read: {printable(problem)}", markup=False)
    written = console.file
    text = written.getvalue() if isinstance(written, StringIO) else ""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
