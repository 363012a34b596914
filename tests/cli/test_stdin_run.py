"""``… | grpo-watch check -`` and ``… | grpo-watch run -`` as users type them."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from grpo_watch.sources.discovery.channels import ChannelContent
from tests.support.process import PATIENCE, PROGRAM

CONSTANT = Path(__file__).parents[1] / "runs" / "trl-1.16.0-13-const-reward" / "train.log.gz"
HEALTHY = Path(__file__).parents[1] / "runs" / "trl-1.16.0-02-healthy-nobeta" / "train.log.gz"


def piped(data: bytes, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """The command with ``data`` on a pipe (which can't be sought), in a home of its own."""
    environment = {**os.environ, "NO_COLOR": "1", "GRPO_WATCH_CONFIG": "", "HOME": str(home), "TMPDIR": str(home)}
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=data,
        capture_output=True,
        cwd=home,
        env=environment,
        timeout=PATIENCE,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.slow
def test_a_console_on_a_pipe_is_checked(tmp_path: Path) -> None:
    """A real run whose reward is constant; nothing is left behind."""
    done = piped(gzip.decompress(CONSTANT.read_bytes()), "check", "-", "--ended", home=tmp_path)
    assert "reward-variance-collapse" in done.stdout
    assert "stdin" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_json_lines_on_a_pipe_are_checked(tmp_path: Path) -> None:
    lines = b"".join(b'{"step": %d, "reward": 0.5, "loss": 0.1}\n' % step for step in range(1, 9))
    done = piped(lines, "check", "-", "--format", "json", home=tmp_path)
    assert f'"kind": "{ChannelContent.JSONL.value}"' in done.stdout
    assert '"records": 8' in done.stdout


@pytest.mark.slow
def test_an_empty_pipe_is_a_usage_error(tmp_path: Path) -> None:
    done = piped(b"", "check", "-", home=tmp_path)
    assert done.returncode == 2
    assert "standard input is empty" in done.stderr


@pytest.mark.slow
def test_a_live_watch_of_a_pipe_ends_with_a_verdict(tmp_path: Path) -> None:
    """The pipe was closed: all of it was read, the verdict is printed, nothing of it stays on the disk."""
    data = gzip.decompress(CONSTANT.read_bytes())
    done = piped(data, "run", "-", "--listen", "127.0.0.1:0", "--exit-when-done", home=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert "warning: stdin ended at step 80" in printed
    assert any(line.startswith("  warning: dead-reward-component since step 1") for line in printed)
    assert list(tmp_path.glob("grpo-watch-*")) == []


@pytest.mark.slow
def test_a_pipe_that_is_cut_in_the_middle_of_a_run_ends_too(tmp_path: Path) -> None:
    """Half of a healthy run: without an end marker it would be waited for, but a pipe can't go on."""
    data = gzip.decompress(HEALTHY.read_bytes())
    done = piped(data[: len(data) // 2], "run", "-", "--listen", "127.0.0.1:0", "--exit-when-done", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "stdin ended at step" in done.stdout
