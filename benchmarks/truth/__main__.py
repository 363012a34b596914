"""Judges the same labelled runs with grpo-watch and with other tools, and prints one table.

    python -m benchmarks.truth [--healthy 40] [--per-kind 1] [--public 40] [--folder FOLDER] [--write]

``--folder`` adds runs of your own (a ``labels.json`` as in tests/runs), and ``--write`` puts the table into
docs/comparison.md. A tool that can't be installed is skipped, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.truth import cases
from benchmarks.truth.cases import Case
from benchmarks.truth.tools import CRITICAL, TOOLS, GrpoWatch, Tool, UnreadError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "comparison.md"
BEGIN, END = "<!-- truth:begin -->", "<!-- truth:end -->"
ENVIRONMENTS = ROOT / "build" / "truth"
WORKERS, PATIENCE = 2, 120.0
"""Runs that are judged at a time, and seconds that a tool has for one."""
OURS = "grpo-watch"
AS_IT_LIES = f"{OURS}, as it lies"
COLUMNS = ("runs", "tool", "alarm on a faulty run", "fault named", "alarm on a healthy run", "of these critical")
COLUMNS += ("not judged", "processor s a run")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one tool said of one case: its worst severity (None: it judged nothing).

    ``named``: a finding of grpo-watch is one that the label wants.
    """

    case: Case
    severity: str | None
    named: bool = False


def programs(tool: Tool) -> Path | None:
    """The folder of the tool's programs, installed on first use into an environment of its own; None: can't be had."""
    if tool.package is None:
        return Path(sys.executable).parent
    folder = ENVIRONMENTS / tool.name / "bin"
    if not (folder / "installed").exists():
        venv.create(folder.parent, with_pip=True)
        install = [str(folder / "python"), "-m", "pip", "install", "-q", tool.package]
        if subprocess.run(install, check=False, capture_output=True).returncode:
            return None
        (folder / "installed").touch()
    return folder


def ask(tool: Tool, bin_folder: Path, case: Case, entry: Path | None = None) -> Answer:
    """Run the tool on the rows of a case, or on ``entry`` as it lies."""
    answer, severity = None, None
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for command in tool.commands(bin_folder, entry or tool.write(case.rows, Path(scratch))):
                done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
            answer = json.loads(done.stdout)
            severity = tool.severity(answer)
        except (UnreadError, OSError, ValueError, KeyError, TypeError, IndexError, subprocess.SubprocessError):
            severity = None
    named = isinstance(tool, GrpoWatch) and severity is not None and _names(answer, case)
    return Answer(case, severity, named)


def _names(answer: Any, case: Case) -> bool:
    """Whether a finding at warning or above of each list is reported."""
    found = {f["rule"] for run in answer["runs"] for f in run["findings"] if f["severity"] != "info"}
    return bool(case.must) and all(found & wanted for wanted in case.must)


def line(origin: str, name: str, answers: Sequence[Answer], seconds: float) -> str:
    """One row of the table: alarms on faulty and on healthy runs, what is not read, and processor time of a run."""
    sick = [answer for answer in answers if not answer.case.healthy]
    well = [answer for answer in answers if answer.case.healthy]
    alarms = f"{sum(bool(answer.severity) for answer in sick)} of {len(sick)}"
    named = f"{sum(answer.named for answer in sick)} of {len(sick)}" if name.startswith(OURS) else "-"
    cried = f"{sum(bool(answer.severity) for answer in well)} of {len(well)}"
    worst = sum(answer.severity == CRITICAL for answer in well)
    unread = sum(answer.severity is None for answer in answers)
    pace = seconds / max(1, len(answers))
    return f"| {origin} | {name} | {alarms} | {named} | {cried} | {worst} | {unread} | {pace:.1f} |"


def judged(tool: Tool, folder: Path, drawn: Sequence[Case], *, lies: bool) -> tuple[list[Answer], float]:
    """The answers to all cases, and the processor time of the processes that gave them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(lambda case: ask(tool, folder, case, case.entry if lies else None), drawn))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return answers, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def table(drawn: Sequence[Case], tools: Sequence[Tool]) -> Iterator[str]:
    """The table, by origin of the runs."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    folders = {tool.name: programs(tool) for tool in tools}
    for origin in dict.fromkeys(case.origin for case in drawn):
        of = [case for case in drawn if case.origin == origin]
        for tool in tools:
            folder = folders[tool.name]
            if folder is None:
                yield f"| {origin} | {tool.name}: can't be installed {'| ' * (len(COLUMNS) - 2)}|"
                continue
            if isinstance(tool, GrpoWatch) and all(case.entry for case in of):
                yield line(origin, AS_IT_LIES, *judged(tool, folder, of, lies=True))
            yield line(origin, tool.name, *judged(tool, folder, of, lies=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, judge, print; write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=40)
    parser.add_argument("--per-kind", type=int, default=1)
    parser.add_argument("--public", type=int, default=40)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        drawn = [*cases.recorded(folder), *cases.synthetic(chosen.healthy, chosen.per_kind)]
        drawn += cases.public(folder, chosen.public)
        drawn += cases.labelled(chosen.folder, "your own") if chosen.folder else []
        lines = []
        for text in table(drawn, [tool() for tool in TOOLS]):
            print(text, flush=True)
            lines.append(text)
    if chosen.write:
        page = PAGE.read_text("utf-8")
        head, rest = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
