"""``grpo-watch preflight``: judges a launch before it starts, from its files and command line alone."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from grpo_watch import lazy_re as re
from grpo_watch.cli.terminal import print_json, printed
from grpo_watch.config.settings import reader_language
from grpo_watch.engine.rule import ENGLISH
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch, launch_facts
from grpo_watch.preflight.assess import Assessment, assess
from grpo_watch.preflight.findings import document, exit_code
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch

VERSION = re.compile(r"\d+(?:\.\d+)*(?:[.+-]?[a-z]\w*(?:[.+-]\w+)*)?", re.IGNORECASE)


def preflight_command(given: Namespace) -> int:
    """Judge one launch and print the answer; returns the exit code.

    Raises:
        UsageError: no launch was given, or it can't be read.
    """
    if given.path is None and not given.launch:
        raise UsageError("pass a FILE, or the launch command after -- (grpo-watch preflight -- swift rlhf ...)")
    options = GivenOptions(given.framework, given.framework_version, given.world_size, given.dataset_size)
    check_options(options)
    launch = read_launch(given.path, given.launch, options, Path.cwd(), os.environ)
    assessment = assess(launch)
    if given.format == "json":
        print_json(document(assessment))
    else:
        sys.stdout.write(as_text(launch, assessment, color=given.color, language=reader_language()))
    return exit_code(assessment)


def check_options(options: GivenOptions) -> None:
    """Refuse an unknown framework or an invalid version.

    Raises:
        UsageError: the framework is unknown, or its version is not a version number.
    """
    if options.framework is not None and options.framework not in launch_facts():
        raise UsageError(
            f"--framework {options.framework}: unknown; known frameworks: {', '.join(sorted(launch_facts()))}"
        )
    if options.version is not None and not VERSION.fullmatch(options.version):
        raise UsageError(f"--framework-version {options.version}: not a version (1.16.0, 4.6)")


def as_text(
    launch: Launch, assessment: Assessment, *, color: bool, width: int | None = None, language: str = ENGLISH
) -> str:
    """The answer as text, wrapped at ``width`` columns, by default at the terminal's width."""
    from grpo_watch.preflight.text_report import render  # noqa: PLC0415  not needed for JSON

    return printed(render(launch, assessment, language), color=color, width=width)
