"""What ``check`` writes: reports as text, JSON, JUnit, Markdown or HTML, to stdout or into a file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec

from grpo_watch.cli.options import columns
from grpo_watch.engine.records import Severity
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import Provenance, RunReport, document
from grpo_watch.safe_text import visible


def rendered(
    reports: Sequence[RunReport],
    problems: Sequence[str],
    output_format: str,
    provenance: Provenance,
    fail_on: Severity | None,
    *,
    color: bool,
    verbose: bool = False,
) -> str:
    """The reports in the format; ``color`` and ``verbose`` are for text, ``fail_on`` decides JUnit's failures."""
    # Each format's module is imported when it is asked for.
    if output_format == "json":
        return msgspec.json.format(msgspec.json.encode(document(reports, problems)), indent=1).decode() + "\n"
    if output_format == "junit":
        from grpo_watch.report.junit import junit  # noqa: PLC0415

        return junit(reports, problems, provenance, fail_on)
    if output_format == "markdown":
        from grpo_watch.report.markdown import markdown  # noqa: PLC0415

        return markdown(reports, problems, provenance)
    if output_format == "html":
        from grpo_watch.report.page import page  # noqa: PLC0415

        return page(reports, problems, provenance)
    return _as_text(reports, problems, color=color, verbose=verbose)


def write(text: str, output: Path | None) -> None:
    """Write to stdout, or to the file.

    Raises:
        UsageError: the file can't be written.
    """
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: can't write: {error.strerror or error}") from None


def command_line(
    paths: Sequence[str], rules: Sequence[Path], config: Path | None, settings: Sequence[str], moment: str, state: str
) -> str:
    """The command that gives this answer again on the same files, whenever it is called."""
    words = ["grpo-watch", "check", *paths]
    words += [word for file in rules for word in ("--rules", str(file))]
    words += ["--config", str(config)] if config is not None else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--now", moment] if state == "unknown" else [f"--{state}"]
    return shlex.join(words)


def _as_text(reports: Sequence[RunReport], problems: Sequence[str], *, color: bool, verbose: bool) -> str:
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    from grpo_watch.report.text import render  # noqa: PLC0415  rich is not needed for JSON

    console = Console(file=StringIO(), force_terminal=color, no_color=not color, width=columns(), highlight=False)
    if not reports:
        console.print("nothing to check: no run found")
    render(reports, console, verbose=verbose)
    for problem in problems:
        console.print(f"problem: {visible(problem)}", markup=False)
    written = console.file
    text = written.getvalue() if isinstance(written, StringIO) else ""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
