"""Terminal output of every command: log lines on stderr, colours, widths, JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from grpo_watch.credentials import masked

if TYPE_CHECKING:
    from grpo_watch.report.lines import Line

LIBRARIES = ("asyncio", "concurrent.futures", "uvicorn")
"""Libraries whose warnings are logged in our format."""
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
UNWRAPPED = 100_000
"""A width that no line reaches."""
LABEL = 40
"""Longest label of a progress line, in characters."""
ERASED = "\r\x1b[K"


def begin(verbose: int, log_format: str, *, no_color: bool) -> bool:
    """Start logging; returns whether stdout takes colours."""
    start_logging(verbose, log_format)
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def terminal_width() -> int:
    """The columns of the terminal; ``UNWRAPPED`` for files and pipes, so that ``grep`` and scripts see whole lines."""
    import shutil  # noqa: PLC0415  --help needs none

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNWRAPPED


def printed(lines: Iterable[Line], *, color: bool, width: int | None = None) -> str:
    """The lines as text, wrapped at ``width`` columns, by default at ``terminal_width``."""
    from grpo_watch.report.lines import laid_out  # noqa: PLC0415  --help needs none

    return laid_out(lines, width or terminal_width(), color=color)


def print_json(document: object) -> None:
    """Write a document as indented JSON to stdout."""
    import msgspec  # noqa: PLC0415  --help needs none

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")


@contextmanager
def progress_line(label: str) -> Iterator[Callable[[str], None] | None]:
    """A function that redraws its text in one line of stderr; None if stderr is no terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    import shutil  # noqa: PLC0415  --help needs none

    from grpo_watch.report.lines import clipped  # noqa: PLC0415  the same

    drawn = ""

    def draw(progress: str) -> None:
        nonlocal drawn
        if progress != drawn:
            drawn = progress
            line = f"{label[:LABEL]}  {progress}"
            sys.stderr.write(ERASED + clipped(line, shutil.get_terminal_size().columns - 1))
            sys.stderr.flush()

    try:
        yield draw
    finally:
        sys.stderr.write(ERASED)


def start_logging(verbose: int, log_format: str) -> None:
    """Log to stderr; ``verbose`` 0 shows warnings, 1 adds info, 2 adds debug lines.

    ``log.info("event", extra={"fields": {...}})`` adds fields to the line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(as_json=log_format == "json"))
    for name, level in (("grpo_watch", _LEVELS[min(verbose, 2)]), *((name, logging.WARNING) for name in LIBRARIES)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


class _Formatter(logging.Formatter):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["error"] = masked(self.formatException(record.exc_info))  # the text may come from any library
        if self.as_json:
            return _seen(json.dumps(fields, default=str, ensure_ascii=False))
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


def _quoted(value: object) -> str:
    text = str(value)
    plain = text != "" and text.isprintable() and not set(text) & set(' "=')
    return text if plain else _seen(json.dumps(text, ensure_ascii=False))


def _seen(quoted: str) -> str:
    """Escape control characters and direction marks; JSON itself escapes only those of ASCII."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)
