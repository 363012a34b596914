"""The options of ``grpo-watch preflight``, and what of a command line belongs to the launch instead.

They are parsed by argparse: building typer's adapters takes a third of the half second that preflight promises.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from grpo_watch import __version__
from grpo_watch.cli.options import LogFormat, OutputFormat, begin
from grpo_watch.errors import UsageError

TAKES_ALL = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""typer passes everything on; it only lists the command."""
TAKE_LAUNCH = frozenset({"preflight", "audit"})
"""Commands whose arguments end at the first ``--``."""


class _Parser(argparse.ArgumentParser):
    """Raises our own error, so that wrong use is one line and code 2 as everywhere."""

    def error(self, message: str) -> NoReturn:
        """Refuse a command line.

        Raises:
            UsageError: always.
        """
        launch = "; put `--` before the launch" if message.startswith("unrecognized") else ""
        raise UsageError(f"{message}{launch} (see grpo-watch preflight --help)")


def split_launch(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own arguments, and the launch behind the first ``--``, which no parser of ours touches."""
    if not TAKE_LAUNCH.intersection(arguments[:1]) or "--" not in arguments:
        return list(arguments), ()
    at = arguments.index("--")
    return list(arguments[:at]), tuple(arguments[at + 1 :])


def preflight(context: typer.Context) -> int:
    """Check a launch before it starts. Reports batch settings that can't work, and the number of steps."""
    return run_preflight(context.args, context.obj or ())


def run_preflight(arguments: Sequence[str], launch: Sequence[str]) -> int:
    """Run the command with its own arguments and the launch; returns the exit code.

    Raises:
        UsageError: the arguments are wrong, or what they name can't be read.
    """
    try:
        given = _parser().parse_args(arguments)
    except SystemExit:  # --help or --version, printed
        return 0
    from grpo_watch.cli.preflight import preflight_command  # noqa: PLC0415  --help needs no readers
    from grpo_watch.preflight.inputs.load_launch import GivenOptions  # noqa: PLC0415  the same

    options = GivenOptions(
        framework=given.framework,
        version=given.framework_version,
        world_size=given.world_size,
        dataset_size=given.dataset_size,
        pass_rate=given.pass_rate,
        dead_share=given.dead_share,
        seconds_per_step=given.seconds_per_step,
    )
    color = begin(given.verbose, given.no_color, LogFormat(given.log_format))
    return preflight_command(given.file, launch, options, given.format, color=color)


def _parser() -> _Parser:
    parser = _Parser(
        prog="grpo-watch preflight",
        usage="%(prog)s [OPTIONS] [FILE] [-- COMMAND...]",
        description=preflight.__doc__,
        epilog="Everything after the first -- is the launch: grpo-watch preflight -- swift rlhf ...\n\n"
        "Example: grpo-watch preflight my-run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", metavar="FILE", nargs="?", type=Path, help="Launch script, configuration, Python file or run folder.")
    add("--framework", metavar="NAME", help="trl, ms-swift, verl, ...")
    add("--framework-version", metavar="V", help="Check against this version, installed or not.")
    add("--world-size", metavar="N", type=int, help="Training processes over all nodes.")
    add("--dataset-size", metavar="N", type=int, help="Rows of the training data before any split.")
    add(
        "--pass-rate",
        metavar="P",
        type=float,
        help="Expected share of correct answers; estimates groups without reward spread.",
    )
    add(
        "--dead-share",
        metavar="S",
        type=float,
        help="Acceptable share of groups without reward spread (default with P: 0.5).",
    )
    add("--seconds-per-step", metavar="T", type=float, help="Measured step time; estimates wall time and GPU-hours.")
    formats = [one.value for one in OutputFormat]
    add("--format", choices=formats[:2], default="text", help="Output format (default: text).")
    add("-v", "--verbose", action="count", default=0, help="More verbose; repeat for debug output.")
    add("--no-color", action="store_true", help="Disable colours (or set NO_COLOR).")
    add("--log-format", choices=[one.value for one in LogFormat], default="logfmt", help="Format of the log lines.")
    add("--version", action="version", version=f"grpo-watch {__version__}", help="Show the version and exit.")
    return parser
