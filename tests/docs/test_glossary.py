"""Code and pages keep to the glossary: the words it replaces appear in neither, in any inflection or compound."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
PLACES = (
    "benchmarks",
    "deploy",
    "docs",
    "grpo_watch",
    "rules",
    "scripts",
    "tests",
    "pyproject.toml",
    *[path.name for path in ROOT.glob("*.md")],
)
READ = {".py", ".md", ".yaml", ".yml", ".tmpl", ".js", ".html", ".service", "", ".json", ".sh", ".css", ".toml"}
RECORDED = ("tests/runs/", "tests/frameworks/lines/", "tests/frameworks/rows/")
"""Logs as frameworks wrote them."""
STORED = (
    "run:grpo_alert_firing:told",
    "told_severity",
    "told_as",
    '"told"',
    "CREATE TABLE told",
    "DROP TABLE told",
    "DELETE FROM told",
    "INTO told",
    "FROM told",
    "HEEDED",
    '"heeded"',
    "`heeded`",
    'b"close-up 1',
)
"""Names that users, dashboards and state files hold on to: a recorded series, JSON keys, a table, a key of an alert."""


def refused() -> Iterator[str]:
    """The words in the left column of the last table."""
    table = GLOSSARY.read_text("utf-8").partition("## Words we don't use")[2]
    for row in re.findall(r"^\| (?!not \|)(.+?) \|", table, re.MULTILINE):
        if not row.startswith("-"):
            yield from (word.strip() for word in row.split(","))


def plain(line: str) -> str:
    """A line with stored names taken out and identifiers split into their words, in lower case."""
    for name in STORED:
        line = line.replace(name, " ")
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", line).lower()


@cache
def pattern() -> re.Pattern[str]:
    """Finds a refused word that stands by itself."""
    return re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, refused()))})(?![a-z])")


def private_words(line: str) -> list[str]:
    """The refused words of a line."""
    return pattern().findall(plain(line))


def texts() -> Iterator[tuple[str, str]]:
    """Every file of the project that people read, by its path."""
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if (
            path.suffix in READ
            and path not in {GLOSSARY, Path(__file__)}
            and path.is_file()
            and "vendor" not in path.parts
            and not name.startswith(RECORDED)
        ):
            yield name, path.read_text("utf-8")


def test_no_refused_word_is_used() -> None:
    found = [
        f"{name}:{number}: {word}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        for word in private_words(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "TOLD_AT_START = 1",
        "def test_it_is_told_twice() -> None:",
        "class CourierDesk:",
        "with heeding(deadline):",
        "a close-up of the run",
        "whomever it concerns",
        "the file begins anew",
        "# It is told.",
    ],
)
def test_the_lint_sees(line: str) -> None:
    assert private_words(line)


@pytest.mark.parametrize("line", ['"told_severity": 1', "SELECT a FROM told", "the desktop", "snapshot", "mendacious"])
def test_the_lint_passes_over(line: str) -> None:
    assert private_words(line) == []


def test_the_table_is_read() -> None:
    """An empty list would refuse nothing."""
    assert {"told", "heed", "courier", "is told"} <= set(refused())
