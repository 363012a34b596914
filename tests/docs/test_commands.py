"""The commands of the guides are run as they stand, and print what the guides show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from grpo_watch.demo.replayer import replay_run
from tests.support.bundles import unpack
from tests.support.console import Command, Shell, commands, fits
from tests.support.markdown import ROOT
from tests.support.receiving import receiving
from tests.support.servers import free_port

GUIDES = {"README.md": 2, "docs/start.md": 11, "docs/operations.md": 27}
"""Guides with the number of commands in each, so that a block that is no longer recognised is missed."""
AN_HOUR = 3600.0


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Beside two runs: ``my-run`` (the demo's, frozen) and ``healthy``; with a state directory and ports of its own.

    Both ended an hour ago.
    """
    work = tmp_path / "work"
    replay_run(work / "my-run", lambda _: False, 1e9)
    unpack("trl-1.16.0-04-healthy-lora", work).rename(work / "healthy")
    for path in work.rglob("*"):  # what is written now is shown before its checkpoints are read, if that takes long
        moment = path.stat().st_mtime - AN_HOUR
        os.utime(path, (moment, moment))
    port = str(free_port())
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "GRPO_WATCH_LISTEN": f"127.0.0.1:{port}",
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
    }
    return Shell(work, environment, {"9853": port})


@pytest.mark.slow
@pytest.mark.system("curl")
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_does_what_it_says(name: str, shell: Shell) -> None:
    with receiving() as receiver:
        shell.replaced["http://127.0.0.1:8080"] = receiver.url
        assert shell.follow(ROOT / name) == GUIDES[name]


def test_commands_are_distinguished_from_their_output() -> None:
    text = "$ one \\\n    two\nout\n…\n$ three\n"
    assert list(commands(text, 10)) == [Command("one two", "out\n…", 11), Command("three", "", 15)]


@pytest.mark.parametrize(
    ("shown", "printed", "fit"),
    [
        ("", "anything\n", True),
        ("a … c", "a b c\n", True),
        ("a … c", "a b\nc\n", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a", "a\nb\n", False),
        ("a.c", "abc", False),
    ],
)
def test_output_is_compared_with_gaps(shown: str, printed: str, fit: bool) -> None:  # noqa: FBT001
    assert fits(shown, printed) is fit
