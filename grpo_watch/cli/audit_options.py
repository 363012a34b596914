"""The options of ``grpo-watch audit`` and ``advisories``."""

# ruff: noqa: PLC0415, PLR0917  commands import their module when they run; a command has as many options as it has

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_watch.cli.options import Format, LogFormat, Logs, NoColor, OutputFormat, Verbose, Version, begin


def audit(
    context: typer.Context,
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="Run, folder of runs, launch script or configuration.")
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            "--python", metavar="PATH", help="Interpreter or environment whose packages are used (only read)."
        ),
    ] = None,
    framework: Annotated[
        str | None, typer.Option("--framework", metavar="NAME", help="trl, ms-swift, verl, ...")
    ] = None,
    framework_version: Annotated[
        str | None, typer.Option("--framework-version", metavar="V", help="Judge this version, installed or not.")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option("--world-size", metavar="N", min=1, help="Training processes over all nodes.")
    ] = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """List known bugs that a run or a launch (after --) has. Exits with 1 if there are any, 3: not judged."""
    from grpo_watch.cli.audit import audit_command
    from grpo_watch.preflight.inputs.load_launch import GivenOptions

    color = begin(verbose, no_color, log_format)
    options = GivenOptions(framework=framework, version=framework_version, world_size=world_size, python=python)
    return audit_command(path, context.obj or (), options, output_format.value, color=color)


def advisories(
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show this one with all that is known.")] = None,
    package: Annotated[str | None, typer.Option("--package", metavar="P", help="Only those of this package.")] = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """List known bugs that let training go on quietly."""
    from grpo_watch.cli.audit import advisories_command

    return advisories_command(name, package, output_format.value, color=begin(verbose, no_color, log_format))
