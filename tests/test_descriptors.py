"""Without file descriptors nothing is taken for gone, and open logs leave some for what must go on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.files.tail import Tail

ROW = '{"loss": 0.1, "reward": 0.5, "kl": 0.01, "global_step/max_steps": "1/10"}\n'


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Every descriptor that the limit allows is taken."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, before[1]))  # noqa: PTH208
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        try:
            while True:
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError:
            yield


@pytest.mark.parametrize("place", ["", "run-0", "run-*", "run-*/logging.jsonl"])
def test_a_look_without_descriptors_finds_what_was_there(tmp_path: Path, place: str) -> None:
    for number in range(2):
        (tmp_path / f"run-{number}").mkdir()
        (tmp_path / f"run-{number}" / "logging.jsonl").write_text(ROW)
    finder = Discoverer()
    found = finder.discover(tmp_path / place)
    assert found
    with without_descriptors():
        assert finder.discover(tmp_path / place) == found
        assert finder.settled
        assert "no file descriptor is left" in finder.problems[0]
    assert finder.discover(tmp_path / place) == found
    assert finder.problems == ()


def test_the_first_look_without_descriptors_is_none(tmp_path: Path) -> None:
    (tmp_path / "logging.jsonl").write_text(ROW)
    finder = Discoverer()
    with without_descriptors():
        assert (finder.discover(tmp_path), finder.settled) == ([], False)
    assert (len(finder.discover(tmp_path)), finder.settled) == (1, True)


def test_a_tail_goes_on_where_it_was_once_there_are_descriptors(tmp_path: Path) -> None:
    """The log was rotated meanwhile: neither is what was read given out again, nor is the rotated part passed over."""
    log = tmp_path / "train.log"
    log.write_bytes(b"1\n2\n")
    tail = Tail(log, (tmp_path,))
    assert [line.data for line in tail.read()] == [b"1", b"2"]
    with log.open("ab") as file:
        file.write(b"3\n")
    log.rename(tmp_path / "train.log.1")
    log.write_bytes(b"4\n")
    with without_descriptors():
        said = [line.data for line in tail.read()]
        assert "no file descriptor is left" in tail.problem
        said += [line.data for line in tail.read()]
    said += [line.data for line in tail.read()]
    assert said == [b"3", b"4"]
    assert tail.problem == ""


def test_open_logs_leave_descriptors_for_others() -> None:
    """In a process of its own: how many descriptors this one has open depends on the tests before."""
    subprocess.run([sys.executable, "-c", KEEPS_SOME], check=True, close_fds=True, timeout=60)


KEEPS_SOME = """
import os, resource
from grpo_watch.descriptors import keep_some

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
kept = []
try:
    while True:
        kept.append(keep_some(os.open(os.devnull, os.O_RDONLY)))
except OSError:
    assert max(kept) == 199, kept  # half of the limit
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
assert keep_some(os.dup2(kept[0], 767)) == 767  # three quarters of a limit from 1,024 on
try:
    keep_some(os.dup2(kept[0], 768))
except OSError as error:
    assert "no file descriptor is left" in str(error)
else:
    raise AssertionError("descriptor 768 was kept")
"""
