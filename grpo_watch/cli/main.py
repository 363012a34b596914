"""The entry point: runs the command on the command line; turns errors into one line and an exit code."""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import threading
from difflib import get_close_matches

from grpo_watch import __version__
from grpo_watch.cli.commands import COMMANDS, GROUPS, TAKE_LAUNCH, overview
from grpo_watch.errors import GrpoWatchError, StateInUseError, UsageError
from grpo_watch.safe_text import visible

OK, INTERNAL, USAGE, STATE_IN_USE, INTERRUPTED = 0, 1, 2, 4, 130
"""Exit codes of the command line (130: Ctrl-C, as shells expect)."""

YOUNG = 100_000
"""Allocations between two garbage collections: at 10,000 they take a tenth of a short ``check``. The daemon sets its
own threshold.
"""


def main() -> None:
    """Entry point of ``grpo-watch``."""
    gc.set_threshold(YOUNG)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal encoding other than UTF-8 lacks some characters
    code = run_cli(sys.argv[1:])
    if threading.active_count() == 1:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> None:
    """Exit without interpreter shutdown, which takes an eighth of a short command.

    Returns if the output can't be written (a full disk): the interpreter then reports the error at shutdown.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # `grpo-watch check | head`
    except (OSError, ValueError):
        return
    logging.shutdown()
    os._exit(code)


def run_cli(arguments: list[str]) -> int:
    """Run one command line; returns its exit code and never raises for user errors."""
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `grpo-watch check | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail again
        return OK
    except GrpoWatchError as error:
        return _fail(str(error), _exit_code(error))
    except Exception as error:  # last resort: one line, the traceback on request
        if {"-v", "-vv", "--verbose"} & set(_split(arguments)[0]):
            raise
        from grpo_watch.credentials import masked  # noqa: PLC0415  only here

        message = masked(f"{type(error).__name__}: {error}")  # the text may come from any library
        return _fail(f"internal error: {message} (use -v for the traceback)", INTERNAL)


def _dispatch(arguments: list[str]) -> int:
    arguments, launch = _split(arguments)
    first, second = [*arguments, "", ""][:2]
    words = 2 if first in GROUPS else 1
    command = COMMANDS.get(" ".join(arguments[:words]))
    if command is not None:
        return command.run(arguments[words:], launch)
    if first == "--version":
        sys.stdout.write(f"grpo-watch {__version__}\n")
        return OK
    if {first, second} <= {"", "-h", "--help", *GROUPS}:
        sys.stdout.write(overview(first if first in GROUPS else ""))
        return OK if {first, second} & {"-h", "--help"} else USAGE
    name = " ".join(arguments[:words])
    near = get_close_matches(name, COMMANDS, 1)
    raise UsageError(f"no such command: {name} ({f'did you mean {near[0]}?' if near else 'see grpo-watch --help'})")


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split off our own arguments from the launch behind the first ``--``."""
    if not TAKE_LAUNCH.intersection(arguments[:1]) or "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


def _exit_code(error: GrpoWatchError) -> int:
    if isinstance(error, StateInUseError):
        return STATE_IN_USE
    return USAGE if isinstance(error, UsageError) else INTERNAL


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())  # the message may name a file of a run: no control characters reach the terminal
    sys.stderr.write(f"grpo-watch: {visible(_in_words(line))}\n")
    return code


def _in_words(message: str) -> str:
    """The message in the user's language: of the settings in this folder, else of the environment."""
    from grpo_watch.config.settings import reader_language  # noqa: PLC0415  only here
    from grpo_watch.report.words import sentence_words  # noqa: PLC0415  only here

    return sentence_words(reader_language(), message, "errors")


if __name__ == "__main__":
    main()
