"""The options of ``grpo-watch preflight``, and what of a command line belongs to the launch instead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from grpo_watch.cli.options import Format, LogFormat, Logs, NoColor, OutputFormat, Verbose, Version, begin


def split_launch(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own arguments, and the launch after the first ``--`` of ``preflight``, which no parser of ours touches."""
    if arguments[:1] != ["preflight"] or "--" not in arguments:
        return list(arguments), ()
    at = arguments.index("--")
    return list(arguments[:at]), tuple(arguments[at + 1 :])


def preflight(  # noqa: PLR0917  one parameter per option
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A script, configuration, Python file or run folder.")
    ] = None,
    framework: Annotated[
        str | None, typer.Option("--framework", metavar="NAME", help="trl, ms-swift, verl, ...")
    ] = None,
    framework_version: Annotated[
        str | None, typer.Option("--framework-version", metavar="V", help="Judge for this version, installed or not.")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option("--world-size", metavar="N", help="Processes that train, over all nodes.")
    ] = None,
    dataset_size: Annotated[
        int | None, typer.Option("--dataset-size", metavar="N", help="Rows of the training data, before any split.")
    ] = None,
    output_format: Format = OutputFormat.TEXT,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
    _version: Version = False,
) -> int:
    """Judge a launch before it starts: batch settings that can't work, and the number of steps.

    All after the first `--` is the launch command: grpo-watch preflight -- swift rlhf --rlhf_type grpo ...
    """
    from grpo_watch.cli.preflight import preflight_command  # noqa: PLC0415  --help needs no readers
    from grpo_watch.preflight.inputs.opening import Said  # noqa: PLC0415  the same

    said = Said(framework, framework_version, world_size, dataset_size)
    color = begin(verbose, no_color, log_format)
    return preflight_command(file, context.obj or (), said, output_format.value, color=color)
