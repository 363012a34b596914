"""Runs the ``console`` blocks of a page as a reader would, and compares what is printed with what the page shows.

`$ ` begins a command (continued after a backslash), what follows is its output; `…` in it stands for any text, alone on
a line for any lines. A command without output in the page may print anything. Each has to end with 0, unless
`$ echo $?` follows. One that ends with `&` stays until the page ends; it has to print what is shown before the page
goes on, and to end cleanly. Other blocks with a file named before them are written to that file.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.markdown import blocks
from tests.support.process import PATIENCE

ANY_LINES = "(?s:.*)"


@dataclass(frozen=True)
class Command:
    """A command line, what the page shows of its output, and its line in the page."""

    text: str
    shown: str
    line: int


class Shell:
    """Runs commands in ``folder``; ``replaced`` are texts of the page that differ here (ports)."""

    def __init__(self, folder: Path, environment: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.replaced = replaced
        self._background: list[subprocess.Popen[str]] = []

    def follow(self, page: Path) -> int:
        """Do all that the page says. Returns the number of commands.

        Raises:
            AssertionError: a command printed something else than the page shows, or failed.
        """
        count, status = 0, 0
        try:
            for block in blocks(self._here(page.read_text(encoding="utf-8"))):
                if block.info == "console":
                    for command in commands(block.text, block.line):
                        status = self._run(command, status, page)
                        count += 1
                elif block.file is not None:
                    (self._folder / block.file).write_text(block.text, encoding="utf-8")
            assert status == 0, f"{page.name}: the last command ended with {status}"
            return count
        finally:
            self._end()

    def _here(self, text: str) -> str:
        for shown, real in self.replaced.items():
            text = text.replace(shown, real)
        return text

    def _run(self, command: Command, before: int, page: Path) -> int:
        """The command's exit status; ``$?`` is ``before`` in it."""
        place = f"{page.name}:{command.line}: {command.text}"
        assert before == 0 or command.text == "echo $?", f"{place}: the command before ended with {before}"
        if command.text.endswith("&"):
            self._start(command, place)
            return 0
        done = subprocess.run(
            ["bash", "-c", f"(exit {before}); {command.text}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert fits(command.shown, done.stdout), f"{place}\nprinted:\n{done.stdout}\nshown:\n{command.shown}"
        return done.returncode

    def _start(self, command: Command, place: str) -> None:
        child = subprocess.Popen(
            ["bash", "-c", f"exec {command.text.rstrip('& ')}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._background.append(child)
        assert child.stdout is not None
        deadline = threading.Timer(PATIENCE, child.kill)
        deadline.start()
        printed = ""
        for line in child.stdout:
            printed += line
            if fits(command.shown, printed):
                break
        deadline.cancel()
        assert fits(command.shown, printed), f"{place}\nprinted:\n{printed}\nshown:\n{command.shown}"

    def _end(self) -> None:
        for child in self._background:
            child.send_signal(signal.SIGTERM)
            child.communicate(timeout=PATIENCE)
            assert child.returncode == 0, f"{child.args!r} ended with {child.returncode}"


def commands(text: str, line: int) -> Iterator[Command]:
    """The commands of a block that begins at ``line``."""
    rows = text.splitlines()
    starts = [number for number, row in enumerate(rows) if row.startswith("$ ")]
    for start, after in zip(starts, [*starts[1:], len(rows)], strict=True):
        last = start
        while rows[last].endswith("\\"):
            last += 1
        words = " ".join(row.removeprefix("$ ").removesuffix("\\").strip() for row in rows[start : last + 1])
        yield Command(words, "\n".join(rows[last + 1 : after]), line + 1 + start)


def fits(shown: str, printed: str) -> bool:
    """Whether the output is as shown; nothing shown fits everything."""
    if not shown.strip():
        return True
    lines = [ANY_LINES if line.strip() == "…" else _in_line(line) for line in shown.strip().split("\n")]
    pattern = "\n".join(lines).replace(f"\n{ANY_LINES}", f"(?:\n{ANY_LINES})?")
    return re.fullmatch(pattern, re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE).strip()) is not None


def _in_line(shown: str) -> str:
    """The pattern of one line; ``…`` stays within it."""
    return "[^\n]*".join(map(re.escape, shown.split("…")))
