"""The daemon as nobody, without capabilities, on a read-only file system: only its state directory can be written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import unpack
from tests.support.process import PATIENCE, until
from tests.support.sandbox import NOBODY, assert_powerless, confined, environment, status_of, unprivileged

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"


@pytest.mark.slow
@pytest.mark.system("unshare", "setpriv")
def test_starts_answers_and_stops(place: Path, interpreter: str) -> None:
    """Its process holds no capability, can't gain any, and finds the frozen run's fault."""
    run = unpack(FROZEN, place / "runs")
    state = place / "state"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    daemon = [interpreter, "-m", "grpo_watch", "run", str(run), "--listen", ":0", "--state-dir", str(state)]
    output = place / "output"
    with output.open("wb") as log:
        command = confined(state, [*unprivileged(), *daemon])
        child = subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT)
    try:
        url = until(lambda: re.search(r"http://[^/]+", output.read_text()), child)[0]
        until(lambda: 'rule="kl-stuck-at-zero",run=' in httpx.get(f"{url}/metrics").text, child)
        link = re.search(r"page: (http\S+)", output.read_text())
        assert link is not None
        assert httpx.get(link[1], follow_redirects=True).is_success
        assert_powerless(status_of(Path(f"/proc/{child.pid}/status").read_text()), NOBODY)
        mounts = Path(f"/proc/{child.pid}/mountinfo").read_text().splitlines()
        assert next(line for line in mounts if line.split()[4] == "/").split()[5].startswith("ro")
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    finally:
        child.kill()
        child.wait()
    assert (state / "state.db").stat().st_uid == NOBODY
    assert "Read-only" not in output.read_text()


@pytest.mark.slow
@pytest.mark.system("setpriv")
def test_a_state_directory_that_it_may_not_write_is_one_line(place: Path, interpreter: str) -> None:
    """As an ordinary user, whom permissions bind."""
    run = unpack(FROZEN, place / "runs")
    state = place / "state"
    state.mkdir(mode=0o555)
    daemon = [interpreter, "-m", "grpo_watch", "run", str(run), "--listen", ":0", "--state-dir", str(state)]
    command = [*unprivileged(), *daemon]
    done = subprocess.run(command, env=environment(), cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "state can't be kept there: Permission denied" in line
    assert list(state.iterdir()) == []
