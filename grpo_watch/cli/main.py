"""The command line: turns arguments into one call of a command's module and errors into one line and an exit code.

Nothing heavy is imported here; each command imports its own module when it runs.
"""

# ruff: noqa: PLC0415, PLR0917  commands import their module when they run; a command has as many options as it has

from __future__ import annotations

import os
import sys
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from grpo_watch.cli import notify as notify_commands
from grpo_watch.cli import push as push_commands
from grpo_watch.cli import rules as rules_commands
from grpo_watch.cli.launching import TAKES_ALL, preflight, run_preflight, split_launch
from grpo_watch.cli.options import (
    HELP,
    Config,
    Format,
    LogFormat,
    Logs,
    NoColor,
    NoExamples,
    OutputFormat,
    Paths,
    ReportFormat,
    Rules,
    Sets,
    StateDir,
    Verbose,
    Version,
    begin,
)
from grpo_watch.errors import GrpoWatchError, StateInUseError, UsageError

OK, INTERNAL, USAGE, STATE_IN_USE, INTERRUPTED = 0, 1, 2, 4, 130
"""Exit codes of the interface (130: Ctrl-C, as shells expect)."""

_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""click's base of all command-line errors; typer carries its own copy of click in newer versions."""

app = typer.Typer(
    name="grpo-watch",
    help="Says within a few steps that a GRPO run is silently dead, why, and what to do.",
    add_completion=False,
    rich_markup_mode=None,  # plain help: greppable, and no import of rich
    pretty_exceptions_enable=False,
    context_settings=dict(HELP),
)


class FailOn(str, Enum):
    """From which severity on ``check`` ends with 1."""

    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


app.add_typer(rules_commands.app, name="rules")
app.add_typer(notify_commands.app, name="notify")
app.add_typer(push_commands.app, name="push")
app.command(context_settings=TAKES_ALL)(preflight)


@app.callback()
def _root(_version: Version = False) -> None:
    """Say within a few steps that a GRPO run is silently dead, why, and what to do."""


@app.command()
def run(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="What to watch; may appear later.")
    ] = None,
    config: Config = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Default 127.0.0.1:9853; `:0` picks a port.")
    ] = None,
    state_dir: StateDir = None,
    rules: Rules = [],  # noqa: B006  typer copies it
    exit_when_done: Annotated[bool, typer.Option("--exit-when-done", help="End when every run has ended.")] = False,
    io_limit: Annotated[str | None, typer.Option(metavar="RATE", help="Read weights no faster: 200MB.")] = None,
    no_examples: NoExamples = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Watch runs live: a status page, /metrics and alerts."""
    from grpo_watch.cli.run import run_command

    color = begin(verbose, no_color, log_format)
    given = (config, listen, state_dir, rules, exit_when_done, log_format.value, verbose, color)
    return run_command(paths or [], *given, io_limit, False if no_examples else None)


@app.command()
def check(
    paths: Paths,
    output_format: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = ReportFormat.TEXT,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write here instead of stdout.")
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="From which severity on to end with 1.")
    ] = FailOn.WARNING,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    settings: Sets = [],  # noqa: B006  typer copies it
    now: Annotated[str | None, typer.Option("--now", metavar="TIME", help="ISO 8601 time to judge silence by.")] = None,
    running: Annotated[
        bool, typer.Option("--running", help="The run is still going, whatever the clock says.")
    ] = False,
    ended: Annotated[bool, typer.Option("--ended", help="The run is over, whatever the clock says.")] = False,
    no_examples: NoExamples = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Judge what runs wrote, finished or not. Ends with 1 on findings."""
    from grpo_watch.cli.check import check_command

    if (now is not None) + running + ended > 1:
        raise UsageError("--now, --running and --ended exclude each other")
    if now is not None:
        parse_time(now)
    state = "running" if running else "ended" if ended else "unknown"
    color = begin(verbose, no_color, log_format)
    examples = False if no_examples else None
    given = (rules, config, settings, now, state, color, examples)
    return check_command(paths, output_format.value, output, fail_on.value, *given)


@app.command()
def sources(
    paths: Paths,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show what was found in PATH and which rules are blind, and why."""
    from grpo_watch.cli.sources import sources_command

    return sources_command(paths, output_format.value, begin(verbose, no_color, log_format))


@app.command()
def status(
    config: Config = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the daemon listens.")] = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Ask the running daemon what fires and what is blind, and why."""
    from grpo_watch.cli.status import status_command

    begin(verbose, no_color, log_format)
    return status_command(config, listen, output_format.value)


@app.command()
def digest(
    first: Annotated[str, typer.Argument(metavar="A", help="A checkpoint folder or weight file.")],
    second: Annotated[str | None, typer.Argument(metavar="[B]", help="Another one to compare with.")] = None,
    elements: Annotated[bool, typer.Option("--elements", help="Say how much of each tensor changed.")] = False,
    threads: Annotated[int, typer.Option("--threads", min=1, max=64, help="Tensors read side by side.")] = 1,
    io_limit: Annotated[str, typer.Option("--io-limit", metavar="RATE", help="Most bytes per second: 200MB.")] = "",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Read files again that were read before.")] = False,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show a checkpoint's checksums, or what changed between two."""
    from grpo_watch.cli.digest import digest_command

    color = begin(verbose, no_color, log_format)
    return digest_command(first, second, output_format.value, color, elements, threads, io_limit, not no_cache)


@app.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="RUN", help="A run: its output folder or log file.")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="The run to compare it with.")],
    output_format: Format = OutputFormat.TEXT,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Say where two runs parted. Ends with 0: nowhere, 1: parted, 3: can't be said."""
    from grpo_watch.cli.diff import diff_command

    color = begin(verbose, no_color, log_format)
    return diff_command(first, second, output_format.value, rules, config, color)


@app.command()
def explain(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule id, e.g. kl-stuck-at-zero.")],
    output_format: Format = OutputFormat.TEXT,
    rules: Rules = [],  # noqa: B006  typer copies it
    config: Config = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show a rule's runbook. What it detects, how, when it is wrong, what to do."""
    from grpo_watch.cli.explain import explain_command

    return explain_command(rule, output_format.value, rules, config, begin(verbose, no_color, log_format))


@app.command("config")
def config_(
    config: Config = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Show the settings in force and where each comes from. Secrets are masked."""
    from grpo_watch.cli.config import config_command

    return config_command(config, output_format.value, begin(verbose, no_color, log_format))


@app.command()
def demo(
    stay: Annotated[bool, typer.Option("--stay", help="Stay up after the replay even without a terminal.")] = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Replay a real run with a real fault through the real daemon."""
    from grpo_watch.cli.demo import demo_command

    return demo_command(stay, begin(verbose, no_color, log_format))


def parse_time(text: str) -> float:
    """An ISO 8601 time (local where it names no zone) as Unix seconds.

    Raises:
        UsageError: it is not one.
    """
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else "")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--now {text!r} is not an ISO 8601 time (e.g. 2026-11-21T10:00:00Z)") from None


def main() -> None:
    """Entry point of ``grpo-watch``."""
    sys.exit(run_cli(sys.argv[1:]))


def run_cli(arguments: list[str]) -> int:
    """Run one command line; returns its exit code and never raises for what a user can cause."""
    try:
        return _dispatch(arguments)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # `grpo-watch check | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail again
        return OK
    except _CLICK_ERROR as error:
        return _fail(f"{error.format_message()} (see grpo-watch --help)", USAGE)
    except GrpoWatchError as error:
        return _fail(str(error), _exit_code(error))
    except Exception as error:  # the last resort: one line, the traceback on request
        if {"-v", "-vv", "--verbose"} & set(split_launch(arguments)[0]):
            raise
        from grpo_watch.core.credentials import masked

        said = masked(f"{type(error).__name__}: {error}")  # any library may have written it
        return _fail(f"internal error: {said} (-v shows the traceback)", INTERNAL)


def _dispatch(arguments: list[str]) -> int:
    arguments, launch = split_launch(arguments)
    if arguments[:1] == ["preflight"]:
        return run_preflight(arguments[1:], launch)
    try:
        code = app(arguments or ["--help"], prog_name="grpo-watch", standalone_mode=False, obj=launch)
    except typer.Exit as done:
        code = done.exit_code
    if not arguments:
        return USAGE
    return code if isinstance(code, int) else OK


def _exit_code(error: GrpoWatchError) -> int:
    if isinstance(error, StateInUseError):
        return STATE_IN_USE
    return USAGE if isinstance(error, UsageError) else INTERNAL


def _fail(message: str, code: int) -> int:
    told = " ".join(message.split())  # it may name a file of a run: a terminal must not obey it
    sys.stderr.write(f"grpo-watch: {''.join(char if char.isprintable() else repr(char)[1:-1] for char in told)}\n")
    return code


if __name__ == "__main__":
    main()
