"""What makes an advisory: all its parts, a checked condition, a range of releases."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from grpo_watch.advisories.entries import FOLDER, advisories, in_range, read_file
from grpo_watch.catalogue import catalogue
from grpo_watch.errors import RuleError

WHOLE = {
    "id": "GW-2026-9999",
    "affected": ">=1.0,<1.2",
    "fixed": "1.2.0",
    "when": "beta > 0",
    "severity": "warning",
    "title": "the penalty is counted twice",
    "wrong": "Twice.",
    "shows": ["kl-explosion"],
    "fix": "Upgrade.",
    "threads": ["owner/name#1"],
}


def written(folder: Path, **changes: object) -> Path:
    entry = {name: value for name, value in {**WHOLE, **changes}.items() if value is not ...}
    path = folder / "package.yaml"
    path.write_text(yaml.safe_dump({"package": "package", "frameworks": ["trl"], "advisories": [entry]}))
    return path


def test_a_whole_entry_is_read(tmp_path: Path) -> None:
    (found,) = read_file(written(tmp_path))
    assert (found.id, found.package, found.frameworks, found.check) == (
        "GW-2026-9999",
        "package",
        ("trl",),
        "known-bug",
    )


@pytest.mark.parametrize("part", sorted(WHOLE))
def test_a_missing_part_is_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(RuleError, match=r"package\.yaml"):
        read_file(written(tmp_path, **{part: ...}))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("id", "GW-26-1"),
        ("affected", "~=1.0"),
        ("affected", ""),
        ("when", "betta > 0"),
        ("when", "loss > 0"),
        ("when", "beta"[:0]),
        ("severity", "fatal"),
        ("threads", []),
        ("threads", ["https://example.org"]),
        ("wrong", " "),
        ("remark", "no such part"),
    ],
)
def test_a_malformed_part_is_refused(tmp_path: Path, part: str, value: object) -> None:
    """A metric is no setting: conditions are over what is configured."""
    with pytest.raises(RuleError):
        read_file(written(tmp_path, **{part: value}))


def test_shipped_entries() -> None:
    """Ids are unique, name known rules, and stand in the file of their package."""
    assert len({advisory.id for advisory in advisories()}) == len(advisories())
    rules = {rule for advisory in advisories() for rule in advisory.shows}
    assert rules <= catalogue().keys()
    assert len(list(FOLDER.glob("*.yaml"))) == len({advisory.package for advisory in advisories()})


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("3.1", True),
        ("3.11.3", True),
        ("3.12", False),
        ("3.12.0", False),
        ("3.0.9", False),
        ("3.12.0.dev0", None),
        ("3.12.0rc1", None),
        ("3.11.0rc1", True),
        ("3.12.1.dev3+g1234", False),
        ("3.2.0+cu121", True),
        ("3.2.0.post1", True),
        ("v3.2", True),
        ("main", None),
        ("9f2c1ab", None),
    ],
)
def test_ranges(version: str, inside: object) -> None:
    assert in_range(">=3.1,<3.12", version) is inside
