"""Keeps figures that pages quote as docs/robustness.md and the bundled run have them; the sentences are by hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from grpo_watch.demo.replayer import replay_run

MEASURED = (
    r"^(?P<healthy>[\d,]+) healthy runs,",
    r"^\| critical \| (?P<critical>\d+) \|",
    r"^\| warning or critical \| (?P<flagged>\d+) \| (?P<share>[\d.]+) % \|",
    r"^(?P<faulty>[\d,]+) faulty runs of (?P<kinds>\d+) kinds, (?P<found>[\d,]+) detected",
    r"^(?P<recorded>\d+) healthy recorded runs .* do not allow: (?P<unexpected>\d+) ",
    r"\. (?P<fair>\d+) runs have a finding that their label allows",
)
QUOTED = {
    "README.md": (
        r"(?P<flagged>\d+) of (?P<healthy>[\d,]+) healthy runs raised a warning and none a critical alert",
        r"(?P<found>[\d,]+) of (?P<faulty>[\d,]+) runs with one of (?P<kinds>\d+) faults were detected",
        r"Of (?P<recorded>\d+) recorded healthy runs, none raised a false alarm",
        r"(?P<fair>\d+) raised a warning that was justified",
    ),
    "README.zh-CN.md": (
        r"(?P<plain_healthy>\d+) 次正常训练中有 (?P<flagged>\d+) 次出现 warning",
        r"(?P<plain_faulty>\d+) 次带故障的训练.(?P<kinds>\d+) 种故障.检出 (?P<plain_found>\d+) 次",
        r"另有 (?P<recorded>\d+) 次真实训练的正常记录",
        r"其中 (?P<fair>\d+) 次报了合理的 warning",
    ),
    "docs/comparison.md": (
        r"On (?P<healthy>[\d,]+) healthy runs .* raise no critical alert and warnings in (?P<share>[\d.]+) %",
        r"They detected (?P<found>[\d,]+) of (?P<faulty>[\d,]+) faulty runs of (?P<kinds>\d+) kinds",
    ),
}
"""Sentences of a page, in which each named figure is that of ``MEASURED``; they may be broken anywhere."""
SHOWN = {"README.md": "my-run", "README.zh-CN.md": "my-run"}
"""Pages that show what `check` prints of the bundled run, and its name there."""
COUNTS = (r"^CRITICAL  {name}  .*$", r"^  \d+ blind .*$")
"""The lines with counts of rules: the verdict, and what is blind."""


def documents(root: Path) -> Iterator[tuple[Path, str]]:
    """Each page that quotes figures, with those of today."""
    today = measured((root / "docs" / "robustness.md").read_text(encoding="utf-8"))
    for name in QUOTED:
        page = quoting(name, (root / name).read_text(encoding="utf-8"), today)
        yield root / name, showing(page, SHOWN[name]) if name in SHOWN else page


def measured(page: str) -> dict[str, str]:
    """The figures of the page by their names; those without thousands' commas are ``plain_…``.

    Raises:
        ValueError: a line has no such form any more, or "none" in the sentences is not true any more.
    """
    figures: dict[str, str] = {}
    for pattern in MEASURED:
        figures |= _found(pattern, page, "docs/robustness.md").groupdict()
    if (figures["critical"], figures["unexpected"]) != ("0", "0"):
        raise ValueError("a false alarm: say so in the sentences of scripts/quoted_figures.py and their pages")
    return figures | {f"plain_{name}": figure.replace(",", "") for name, figure in figures.items()}


def quoting(name: str, page: str, figures: dict[str, str]) -> str:
    """The page with these figures in its sentences."""
    for pattern in QUOTED[name]:
        found = _found(pattern.replace(" ", r"\s+"), page, name)
        for figure in sorted(found.groupdict(), key=found.start, reverse=True):
            page = page[: found.start(figure)] + figures[figure] + page[found.end(figure) :]
    return page


def showing(page: str, run: str) -> str:
    """The page with the lines of ``COUNTS`` as `check` prints them of the bundled run."""
    for count in COUNTS:
        pattern = count.format(name=run)
        shown, printed = _found(pattern, page, "the page"), _found(pattern, _checked(run), "`check`")
        page = page[: shown.start()] + printed[0] + page[shown.end() :]
    return page


@cache
def _checked(run: str) -> str:
    """What `check` prints of the bundled run in a folder of this name."""
    with TemporaryDirectory() as folder:
        replay_run(Path(folder) / run, lambda _: False, 1e9)
        environment = os.environ | {"HOME": folder, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-m", "grpo_watch", "check", run]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def _found(pattern: str, page: str, name: str) -> re.Match[str]:
    found = re.search(pattern, page, re.MULTILINE)
    if found is None:
        raise ValueError(f"{name} has no sentence like {pattern}")
    return found
