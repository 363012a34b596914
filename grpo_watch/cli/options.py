"""Options that several commands take, and what each command does first."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from grpo_watch import __version__
from grpo_watch.errors import UsageError


class LogFormat(str, Enum):
    """How log lines are written."""

    LOGFMT = "logfmt"
    JSON = "json"


class OutputFormat(str, Enum):
    """What a command writes."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(str, Enum):
    """What ``check`` writes."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"
    AGENT = "agent"


def print_version(wanted: bool) -> None:
    """Print the version and end, where it is asked for."""
    if wanted:
        sys.stdout.write(f"grpo-watch {__version__}\n")
        raise typer.Exit


Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="More verbose; repeat for debug output.", show_default=False)
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Disable colours (or set NO_COLOR).")]
NoExamples = Annotated[bool, typer.Option("--no-examples", help="Do not include completion excerpts in findings.")]
Logs = Annotated[LogFormat, typer.Option("--log-format", help="Format of the log lines on stderr.")]
Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=print_version)
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings file (default: ./grpo-watch.yaml).")
]
Rules = Annotated[
    list[Path], typer.Option("--rules", metavar="FILE", help="Rule file that extends the shipped rules (repeatable).")
]
Sets = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Setting of the run, e.g. beta=0.04 (repeatable).")
]
StateDir = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="State directory of the daemon.")]
Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Output folder, folder of runs, glob, or log file.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, metavar="N", help="Processes (default: by the size of the runs).")
]
Format = Annotated[OutputFormat, typer.Option("--format", help="Output format.")]


UNWRAPPED = 100_000
"""Columns that no line reaches."""
HELP = MappingProxyType({"help_option_names": ["-h", "--help"]})
"""How help is asked for, at every command."""


def example(command: str) -> str:
    """The last lines of a command's help."""
    return f"\b\nExample: grpo-watch {command}"


def group(text: str) -> typer.Typer:
    """A command that is made of others (``rules list``); it stays one where there is only one of them."""
    made = typer.Typer(
        help=text, add_completion=False, rich_markup_mode=None, no_args_is_help=True, context_settings=dict(HELP)
    )
    made.callback()(lambda: None)
    return made


def begin(verbose: int, no_color: bool, log_format: LogFormat) -> bool:
    """Start logging; answers whether stdout takes colours."""
    from grpo_watch.cli.logs import start_logging  # noqa: PLC0415  --help needs no logging

    start_logging(verbose, log_format.value)
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def columns() -> int:
    """The width of the terminal; what is not a terminal gets its lines unwrapped, for ``grep`` and scripts."""
    from rich.console import Console  # noqa: PLC0415  --help needs no rich

    return Console().width if sys.stdout.isatty() else UNWRAPPED


def parse_time(text: str) -> float:
    """An ISO 8601 time (local where it names no zone) as Unix seconds.

    Raises:
        UsageError: it is not one.
    """
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else "")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--now {text!r} is not an ISO 8601 time (e.g. 2026-11-21T10:00:00Z)") from None
