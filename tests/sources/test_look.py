"""A look for runs costs a ``stat`` per file where nothing changed, and is a whole one where something did."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_watch.sources.discovery.discover import Discoverer

ROW = json.dumps({"loss": 0.1, "kl": 0.1, "reward": 0.5, "step": 1}) + "\n"
SWIFT = json.dumps({"loss": 0.1, "kl": 0.1, "reward": 0.5, "global_step/max_steps": "1/10"}) + "\n"


def confirmed(root: Path) -> Discoverer:
    """What has looked twice and knows that nothing changes."""
    looks = Discoverer()
    before = [looks.discover(root) for _ in range(2)][-1]
    assert looks.discover(root) is before
    return looks


def grow(log: Path) -> None:
    with log.open("a") as file:
        file.write(log.read_text())
    os.utime(log, (log.stat().st_mtime + 9.0, log.stat().st_mtime + 9.0))


def test_growth_of_a_known_log_is_no_news(tmp_path: Path) -> None:
    log = tmp_path / "a" / "logging.jsonl"
    log.parent.mkdir()
    log.write_text(SWIFT * 5)
    looks = confirmed(tmp_path)
    before = looks.discover(tmp_path)
    grow(log)
    assert looks.discover(tmp_path) is before
    assert looks.look.grows(log)


def new_folder(root: Path) -> None:
    (root / "b").mkdir()
    (root / "b" / "logging.jsonl").write_text(SWIFT * 5)


def first_rows(root: Path) -> None:
    (root / "empty" / "train.jsonl").write_text(ROW * 5)


def replaced(root: Path) -> None:
    (root / "a" / "logging.jsonl").unlink()
    (root / "a" / "train.jsonl").write_text(ROW * 5)


@pytest.mark.parametrize("change", [new_folder, first_rows, replaced])
def test_what_changes_the_runs_is_seen_by_the_next_look(tmp_path: Path, change: Callable[[Path], None]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "logging.jsonl").write_text(SWIFT * 5)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "train.jsonl").touch()
    looks = confirmed(tmp_path)
    change(tmp_path)
    assert looks.discover(tmp_path) == Discoverer().discover(tmp_path)


def test_growth_below_several_version_folders_is_looked_into(tmp_path: Path) -> None:
    """Whether two of them are one job shows by which of them grow."""
    for folder in ("v0-20261121-084049", "v1-20261121-084104"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "logging.jsonl").write_text(SWIFT * 5)
    looks = confirmed(tmp_path)
    before = looks.discover(tmp_path)
    grow(tmp_path / "v0-20261121-084049" / "logging.jsonl")
    assert looks.discover(tmp_path) is not before


def test_one_look_in_a_few_is_a_whole_one(tmp_path: Path) -> None:
    (tmp_path / "logging.jsonl").write_text(SWIFT * 5)
    looks = confirmed(tmp_path)
    before = looks.discover(tmp_path)
    assert any(looks.discover(tmp_path) is not before for _ in range(20))
