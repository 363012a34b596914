"""``grpo-watch preflight``: judges a launch before it starts, from its files and its command line alone."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec

from grpo_watch.cli.options import columns
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch, launch_facts
from grpo_watch.preflight.assess import Assessment, assess
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch
from grpo_watch.preflight.json_report import document, exit_code

VERSION = re.compile(r"\d+(?:\.\d+)*(?:[.+-]?[a-z]\w*(?:[.+-]\w+)*)?", re.IGNORECASE)


def preflight_command(
    file: Path | None, command: Sequence[str], options: GivenOptions, output_format: str, *, color: bool
) -> int:
    """Judge one launch; prints the answer and returns the exit code.

    Raises:
        UsageError: nothing was given, or what was given can't be read.
    """
    if file is None and not command:
        raise UsageError("pass a FILE, or the launch command after -- (grpo-watch preflight -- swift rlhf ...)")
    check_options(options)
    launch = read_launch(file, command, options, Path.cwd(), os.environ)
    assessment = assess(launch)
    if output_format == "json":
        text = msgspec.json.format(msgspec.json.encode(document(assessment)), indent=1).decode() + "\n"
    else:
        text = as_text(launch, assessment, color=color)
    sys.stdout.write(text)
    return exit_code(assessment)


def check_options(options: GivenOptions) -> None:
    """Refuse what can't be meant.

    Raises:
        UsageError: the framework is unknown, a count or pace is not positive, or a share is none.
    """
    if options.framework is not None and options.framework not in launch_facts():
        raise UsageError(
            f"--framework {options.framework}: unknown; known frameworks: {', '.join(sorted(launch_facts()))}"
        )
    for name, value in (("--world-size", options.world_size), ("--dataset-size", options.dataset_size)):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value}: must be at least 1")
    if options.version is not None and not VERSION.fullmatch(options.version):
        raise UsageError(f"--framework-version {options.version}: not a version (1.16.0, 4.6)")
    for name, share in (("--pass-rate", options.pass_rate), ("--dead-share", options.dead_share)):
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"{name} {share:g}: must be a share from 0 to 1")
    pace = options.seconds_per_step
    if pace is not None and not 0 < pace < math.inf:
        raise UsageError(f"--seconds-per-step {pace:g}: must be more than 0")


def as_text(launch: Launch, assessment: Assessment, *, color: bool, width: int | None = None) -> str:
    """The answer as lines for people, wrapped at ``width`` columns; by default as ``options.columns`` says."""
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    from grpo_watch.preflight.text_report import render  # noqa: PLC0415  rich is not needed for JSON

    written = StringIO()
    render(
        launch,
        assessment,
        Console(file=written, force_terminal=color, no_color=not color, width=width or columns(), highlight=False),
    )
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())
